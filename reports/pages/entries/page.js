"use strict";
(() => {
prepareTables();
if (!data.curves) { ready(); return; }
const [entry] = data.entries;
const draw = () => {
  find("curves").replaceChildren(); find("cards").replaceChildren(); find("functions").replaceChildren();
  const panels = html("div", { class: "panels" }), metric = data.metrics.find((m) => m.key === data.headline[data.headline.length - 1]) || data.metrics[0];
  find("curves").append(html("p", { class: "quiet" }, `${metric.label} on every data set; the other scores are on the pages of the data sets.`), panels);
  data.datasets.forEach((name, d) => { if (data.curves.bands[metric.key][d][0]) curvePanel(panels, data.curves, d, name, metric, data.entries, false); });
  [...panels.children].forEach((figure, i) => { const shown = data.datasets.filter((_, d) => data.curves.bands[metric.key][d][0]); figure.querySelector("h3").replaceChildren(datasetLabel(data.datasets.indexOf(shown[i]))); });
  data.calibration.forEach((item, d) => { if (item) calibrationCard(find("cards"), item, entry, data.levels, html("h3", {}, datasetLabel(d))); });
  if (!find("cards").children.length) find("cards").append(html("p", {}, "No finished cells."));
  for (const panel of data.panels) for (const [kind, title] of kindsOf(panel)) { find("functions").append(html("h2", {}, `${title}, ${panel.dataset}`)); functionGallery(find("functions"), panel, kind); }
};
draw();
onResize(draw);
ready();
})();
