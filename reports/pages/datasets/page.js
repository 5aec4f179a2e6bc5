"use strict";
(() => {
prepareTables();
if (!data.curves) { ready(); return; }
const hidden = new Set(address.list("hidden") || []);
const drawCurves = () => {
  find("curves").replaceChildren();
  for (const metric of data.metrics.filter((m) => m.key in data.curves.bands)) curvePanel(find("curves"), data.curves, 0, data.name, metric, data.entries.map((entry) => ({ ...entry, hidden: hidden.has(entry.name) })), false);
};
const draw = () => {
  drawCurves();
  find("cards").replaceChildren(); find("functions").replaceChildren();
  data.calibration.forEach((item, e) => { if (item) calibrationCard(find("cards"), item, data.entries[e], data.levels, html("h3", {}, ...entryLabel(data.entries[e]))); });
  if (!find("cards").children.length) find("cards").append(html("p", {}, "No finished cells."));
  for (const panel of data.panels) {
    const [kind, title] = kindsOf(panel)[0];
    find("functions").append(html("h2", {}, title), html("p", { class: "quiet" }, "Draws, samples, priors and inducing inputs: ", html("a", { href: "functions.html#kind=all" }, "Functions"), "."));
    functionGallery(find("functions"), panel, kind);
  }
};
toggles(find("legend"), hidden, drawCurves);
draw();
onResize(draw);
ready();
})();
