"use strict";
(() => {
prepareTables();
if (!data.curves) { ready(); return; }
const [entry] = data.entries, scores = data.metrics.filter((m) => m.key in data.curves.bands);
for (const metric of scores) find("score").append(html("option", { value: metric.key }, metric.label));
find("score").value = data.first_metric;
const drawCurves = () => {
  const metric = scores.find((m) => m.key === find("score").value), bands = data.curves.bands[metric.key];
  find("curves").replaceChildren();
  data.datasets.forEach((name, d) => {
    if (!bands[d][0]) return;
    curvePanel(find("curves"), data.curves, d, name, metric, data.entries, true);
    find("curves").lastChild.querySelector("h3").replaceChildren(datasetLabel(d));
  });
};
const draw = () => {
  drawCurves();
  find("cards").replaceChildren(); find("functions").replaceChildren();
  data.calibration.forEach((item, d) => { if (item) calibrationCard(find("cards"), item, entry, data.levels, html("h3", {}, datasetLabel(d))); });
  if (!find("cards").children.length) find("cards").append(html("p", {}, "No finished cells."));
  for (const panel of data.panels) for (const [kind, title] of kindsOf(panel)) { find("functions").append(html("h2", {}, `${title}, ${panel.dataset}`)); functionGallery(find("functions"), panel, kind); }
};
selects("score", drawCurves);
draw();
onResize(draw);
ready();
})();
