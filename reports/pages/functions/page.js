"use strict";
(() => {
const box = find("functions");
data.panels.forEach((panel, i) => find("dataset").append(html("option", { value: i }, panel.dataset)));
for (const [kind, title] of KINDS.filter(([key]) => data.panels.some((panel) => kindsOf(panel).some(([own]) => own === key)))) find("kind").append(html("option", { value: kind }, title));
find("kind").append(html("option", { value: "all" }, "everything"));
const draw = () => {
  box.replaceChildren();
  const panel = data.panels[+find("dataset").value], kinds = kindsOf(panel), wanted = find("kind").value, chosenKinds = kinds.filter(([key]) => key === wanted);
  // Heat maps have no quantiles and curves no planes: what a set has is better than nothing.
  for (const [kind, title] of wanted === "all" ? kinds : chosenKinds.length ? chosenKinds : kinds.slice(0, 1)) {
    box.append(html("h2", {}, `${title}, ${panel.dataset}`));
    functionGallery(box, panel, kind);
  }
};
selects("dataset", draw);
selects("kind", draw);
window.addEventListener("beforeprint", draw);
draw();
onResize(draw);
ready();
})();
