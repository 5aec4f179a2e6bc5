"use strict";
(() => {
const hidden = new Set(address.list("hidden") || []), box = find("panels"), { curves } = data;
const metrics = () => data.metrics.filter((m) => (chosen("which") === "headline" ? data.headline.includes(m.key) : m.key === chosen("which")));
const shown = () => data.entries.map((entry) => ({ ...entry, hidden: hidden.has(entry.name) }));

const sections = data.datasets.map((name, d) => {
  const panels = html("div", { class: "panels" }), legend = html("div", { class: "legend", role: "group", "aria-label": `Entries shown, ${name}` });
  toggles(legend, hidden, () => redraw());
  box.append(html("section", {}, html("h2", {}, datasetLabel(d)), legend, panels));
  return { panels, d, name, drawn: false };
});

function drawSection(section) {
  section.panels.replaceChildren();
  for (const metric of metrics()) curvePanel(section.panels, curves, section.d, section.name, metric, shown(), chosen("range") === "all");
  section.drawn = true;
}

// Panels far below are drawn when they come near, so that the page is ready at once; printing draws them all.
const observer = new IntersectionObserver((items) => items.forEach((item) => {
  const section = sections.find((s) => s.panels === item.target);
  if (item.isIntersecting && !section.drawn) drawSection(section);
}), { rootMargin: "600px" });
sections.forEach((section) => { section.panels.style.minHeight = "300px"; observer.observe(section.panels); });
window.addEventListener("beforeprint", () => sections.filter((s) => !s.drawn).forEach(drawSection));

function redraw() {
  for (const section of sections) {
    const rectangle = section.panels.getBoundingClientRect();
    if (rectangle.top < window.innerHeight + 600 && rectangle.bottom > -600) drawSection(section);
    else { section.drawn = false; section.panels.replaceChildren(); observer.unobserve(section.panels); observer.observe(section.panels); }
  }
}
radios("which", redraw);
radios("range", redraw);
onResize(redraw);
ready();
})();
