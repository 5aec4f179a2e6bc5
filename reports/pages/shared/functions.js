"use strict";
/* Panels of functions of one input, and heat maps of two, for the pages that show some. */

const KINDS = [["fan", "Predictive quantiles"], ["samples", "Samples of y"], ["draws", "Draws of the function"], ["prior", "Draws of the prior"], ["inducing", "Inducing inputs during training"],
  ["mean", "Predictive mean"], ["sd", "Predictive standard deviation"]];
const hasKind = (column, kind) => ({ fan: column.quantiles, samples: column.samples, draws: column.draws, prior: column.prior, inducing: column.inducing, mean: column.mean, sd: column.sd }[kind] || []).length > 0;
const kindsOf = (panel) => KINDS.filter(([kind]) => panel.columns.some((column) => hasKind(column, kind)));

function functionPanel(plot, column, entry, panel, kind) {
  if (kind === "inducing") return inducingPanel(plot, column, entry, panel);
  if (kind === "mean" || kind === "sd") return heatMap(plot, column, entry, panel, kind);
  const prior = kind === "prior", title = KINDS.find(([key]) => key === kind)[1];
  const chart = frame(plot, { xRange: panel.x_range, yRange: prior ? panel.prior_range : panel.y_range, logX: false, height: 210, yTicks: 4, title: `${title} of ${entry.name} on ${panel.dataset}`,
    description: `Split ${column.split}, seed ${column.seed}, after training.` });
  const xs = column.x.map(chart.fx), ys = (values) => values.map(chart.fy);
  if (panel.oracle && kind !== "draws" && !prior) panel.oracle.forEach((part) => chart.marks.append(svg("path", { d: bandPath(part.x.map(chart.fx), ys(part.low), ys(part.high)), fill: "currentColor", opacity: 0.13 })));
  if (!prior) panel.train.forEach(([x, y]) => chart.marks.append(svg("circle", { cx: chart.fx(x).toFixed(1), cy: chart.fy(y).toFixed(1), r: 1.1, fill: "currentColor", opacity: 0.28 })));
  if (kind === "fan") {
    const q = column.quantiles;
    for (let i = 0; i < Math.floor(q.length / 2); i += 1) chart.marks.append(svg("path", { d: bandPath(xs, ys(q[i].y), ys(q[q.length - 1 - i].y)), fill: entry.colour, opacity: 0.22 }));
    if (q.length % 2) chart.marks.append(svg("path", { class: "series median", d: path(xs, ys(q[(q.length - 1) / 2].y)), stroke: entry.colour }));
  }
  if (kind === "samples") column.samples.forEach((row) => row.forEach((y, i) => chart.marks.append(svg("circle", { cx: xs[i].toFixed(1), cy: chart.fy(y).toFixed(1), r: 1, fill: entry.colour, opacity: 0.55 }))));
  if (kind === "draws" || prior) (prior ? column.prior : column.draws).forEach((row) => chart.marks.append(svg("path", { d: path(xs, ys(row)), fill: "none", stroke: entry.colour, "stroke-width": 1, opacity: 0.6 })));
  plot.append(chart.root);
  return undefined;
}

/* Seconds run upwards: the inputs lie on the same horizontal axis as the functions. */
function inducingPanel(plot, column, entry, panel) {
  const times = column.inducing.map((item) => Math.max(item.train_seconds, 1e-3)), wide = rangeOf([...column.inducing.flatMap((item) => item.z), ...panel.x_range]), logs = times.map(Math.log10);
  const [low, high] = rangeOf(logs), ticks = logTicks(10 ** low, 10 ** high).map(Math.log10);
  const chart = frame(plot, { xRange: wide, yRange: [low, high], logX: false, height: 210, yTickValues: ticks, yTickText: (v) => seconds(10 ** v), title: `Inducing inputs of ${entry.name} on ${panel.dataset} during training`,
    xLabel: "input x; upwards: training time" });
  const count = Math.min(...column.inducing.map((item) => item.z.length));
  for (let k = 0; k < count; k += 1) chart.marks.append(svg("path", { d: path(column.inducing.map((item) => chart.fx(item.z[k])), logs.map(chart.fy)), fill: "none", stroke: entry.colour, "stroke-width": 1, opacity: 0.7 }));
  column.inducing[column.inducing.length - 1].z.forEach((z) => chart.marks.append(svg("circle", { cx: chart.fx(z), cy: chart.fy(logs[logs.length - 1]), r: 2, fill: entry.colour })));
  plot.append(chart.root);
}

/* Low is dark blue, high is yellow: seen in grey as well. */
function heatColour(share) {
  const stops = [[46, 30, 92], [42, 98, 142], [31, 158, 137], [122, 209, 81], [253, 231, 37]], place = Math.min(Math.max(share, 0), 1) * (stops.length - 1), low = Math.min(Math.floor(place), stops.length - 2);
  return `rgb(${stops[low].map((v, i) => Math.round(v + (place - low) * (stops[low + 1][i] - v))).join(",")})`;
}

function heatMap(plot, column, entry, panel, kind) {
  const rows = column[kind], [low, high] = panel[`${kind}_range`], chart = frame(plot, { xRange: panel.x_range, yRange: panel.x2_range, logX: false, height: 230, yTicks: 4,
    title: `${kind === "mean" ? "Predictive mean" : "Predictive standard deviation"} of ${entry.name} on ${panel.dataset}`, xLabel: "first input; upwards: second input",
    description: `Split ${column.split}, seed ${column.seed}. From ${number(low, 3)} (dark) to ${number(high, 3)} (bright).` });
  const across = chart.fx(panel.x_range[1]) - chart.fx(panel.x_range[0]), up = chart.fy(panel.x2_range[0]) - chart.fy(panel.x2_range[1]), w = across / rows[0].length, h = up / rows.length;
  rows.forEach((row, j) => row.forEach((v, i) => { if (present(v)) chart.marks.append(svg("rect", { x: (chart.fx(panel.x_range[0]) + i * w).toFixed(1), y: (chart.fy(panel.x2_range[0]) - (j + 1) * h).toFixed(1), width: w + 0.4, height: h + 0.4, fill: heatColour((v - low) / (high - low || 1)) })); }));
  panel.train.forEach(([x, y]) => chart.marks.append(svg("circle", { cx: chart.fx(x).toFixed(1), cy: chart.fy(y).toFixed(1), r: 1.3, fill: "#fff", stroke: "#000", "stroke-width": 0.4 })));
  plot.append(chart.root);
}

const scaleText = (panel, kind) => (panel[`${kind}_range`] && panel.x2_range ? `; dark ${number(panel[`${kind}_range`][0], 3)}, bright ${number(panel[`${kind}_range`][1], 3)}` : "");

/* A gallery of one kind: all entries, the same axes. */
function functionGallery(box, panel, kind, columns = panel.columns) {
  const gallery = html("div", { class: "gallery" }), shown = columns.filter((column) => hasKind(column, kind));
  box.append(gallery);
  // All cards first: a chart takes the width that its card has when it is drawn.
  const cards = shown.map((column) => {
    const plot = html("div", { class: "plot" }), entry = entryNamed(column.entry), name = `${kind}-${column.entry}-${panel.dataset}`.replace(/[^A-Za-z0-9=.-]+/g, "-");
    gallery.append(html("figure", {}, html("h3", {}, ...entryLabel(entry)), plot, html("figcaption", {}, `split ${column.split}, seed ${column.seed}${scaleText(panel, kind)}`),
      downloadButtons(`panel of ${column.entry}`, [["SVG", `${name}.svg`, () => chartSvg(plot), "image/svg+xml"]])));
    return { plot, column, entry };
  });
  for (const { plot, column, entry } of cards) functionPanel(plot, column, entry, panel, kind);
}
