"use strict";
/* Panels of functions of one input, and heat maps of two, for the pages that show some. */

const KINDS = [["fan", "Predictive quantiles"], ["samples", "Samples of y"], ["draws", "Draws of the function"], ["prior", "Draws of the prior"], ["inducing", "Inducing inputs during training"],
  ["mean", "Predictive mean"], ["sd", "Predictive standard deviation"]];
const hasKind = (column, kind) => ({ fan: column.quantiles, samples: column.samples, draws: column.draws, prior: column.prior, inducing: column.inducing, mean: column.mean, sd: column.sd }[kind] || []).length > 0;
const kindsOf = (panel) => KINDS.filter(([kind]) => panel.columns.some((column) => hasKind(column, kind)));

/* The panel with the part of its inputs that is shown; all panels of a gallery are zoomed together. */
function zoomedPanel(panel, range) {
  const columns = panel.columns.filter((column) => column.x), inside = (x) => x >= range[0] && x <= range[1];
  const seen = (rows) => rows.flatMap(([x, y]) => y.filter((_, i) => inside(x[i])));
  const fans = columns.flatMap((column) => column.quantiles.map((q) => [column.x, q.y])), priors = columns.flatMap((column) => (column.prior || []).map((y) => [column.x, y]));
  return { ...panel, x_range: range, y_range: rangeOf([...seen(fans), ...panel.train.filter(([x]) => inside(x)).map(([, y]) => y)]), prior_range: rangeOf(seen(priors)) };
}

function drawCurves(chart, column, entry, panel, kind) {
  const xs = column.x.map(chart.fx), ys = (values) => values.map(chart.fy), rows = { draws: column.draws, prior: column.prior }[kind] || [];
  if (panel.oracle && (kind === "fan" || kind === "samples")) panel.oracle.forEach((part) => chart.marks.append(svg("path", { d: bandPath(part.x.map(chart.fx), ys(part.low), ys(part.high)), fill: "currentColor", opacity: 0.13 })));
  if (kind !== "prior") panel.train.forEach(([x, y]) => chart.marks.append(svg("circle", { cx: chart.fx(x).toFixed(1), cy: chart.fy(y).toFixed(1), r: 1.1, fill: "currentColor", opacity: 0.28 })));
  if (kind === "fan") {
    const q = column.quantiles;
    for (let i = 0; i < Math.floor(q.length / 2); i += 1) chart.marks.append(svg("path", { d: bandPath(xs, ys(q[i].y), ys(q[q.length - 1 - i].y)), fill: entry.colour, opacity: 0.22 }));
    if (q.length % 2) chart.marks.append(svg("path", { class: "series median", d: path(xs, ys(q[(q.length - 1) / 2].y)), stroke: entry.colour }));
  }
  if (kind === "samples") column.samples.forEach((row) => row.forEach((y, i) => chart.marks.append(svg("circle", { cx: xs[i].toFixed(1), cy: chart.fy(y).toFixed(1), r: 1, fill: entry.colour, opacity: 0.55 }))));
  rows.forEach((row) => chart.marks.append(svg("path", { d: path(xs, ys(row)), fill: "none", stroke: entry.colour, "stroke-width": 1, opacity: 0.6 })));
  return xs;
}

function functionPanel(plot, column, entry, panel, kind, zoom) {
  if (kind === "inducing") return inducingPanel(plot, column, entry, panel);
  if (kind === "mean" || kind === "sd") return heatMap(plot, column, entry, panel, kind);
  const title = KINDS.find(([key]) => key === kind)[1], shown = zoom.zoomed ? zoomedPanel(panel, zoom.range) : panel;
  const chart = frame(plot, { xRange: shown.x_range, yRange: kind === "prior" ? shown.prior_range : shown.y_range, logX: false, height: 210, yTicks: 4, title: `${title} of ${entry.name} on ${panel.dataset}`,
    description: `Split ${column.split}, seed ${column.seed}, after training.` });
  const xs = drawCurves(chart, column, entry, shown, kind), inside = column.x.map((x) => x >= shown.x_range[0] && x <= shown.x_range[1]);
  plot.append(chart.root);
  // Values under the pointer, the highest quantile first.
  const series = kind === "fan" ? column.quantiles.map((q) => ({ entry: { ...entry, name: `${+(100 * q.p).toPrecision(3)} %` }, y: q.y })) : [];
  addCursor(plot, chart, { series, x: column.x, xText: (i) => `x = ${number(column.x[i])}`, larger: true, zoom }, xs, inside);
  addZoom(plot, chart, zoom, "Show all inputs");
  return undefined;
}

/* The numbers of a panel as rows of one table: curves by name, points of training. */
function panelRows(column, panel, kind) {
  if (kind === "mean" || kind === "sd") return [["x", "x2", kind], ...column[kind].flatMap((row, j) => row.map((v, i) => [panel.x_axis[i], panel.x2_axis[j], v]))];
  if (kind === "inducing") return [["seconds", "number", "z"], ...column.inducing.flatMap((item) => item.z.map((z, k) => [item.train_seconds, k, z]))];
  const curves = kind === "fan" ? column.quantiles.map((q) => [`quantile ${q.p}`, q.y]) : column[kind].map((y, k) => [`${kind} ${k}`, y]);
  const rows = curves.flatMap(([name, ys]) => ys.map((y, i) => [name, column.x[i], y]));
  return [["curve", "x", "y"], ...rows, ...(kind === "prior" ? [] : panel.train.map(([x, y]) => ["training", x, y]))];
}

function panelPython(entry, kind) {
  const colour = JSON.stringify(entry.colour);
  if (kind === "mean" || kind === "sd") return [`plane = table.pivot(index="x2", columns="x", values="${kind}")`, "drawn = axes.pcolormesh(plane.columns, plane.index, plane, shading=\"nearest\")", "figure.colorbar(drawn)"];
  if (kind === "inducing") return ["for _, part in table.groupby(\"number\"):", `    axes.plot(part["z"], part["seconds"], color=${colour}, lw=0.6)`, "axes.set_yscale(\"log\")"];
  const mark = kind === "samples" ? '"."' : '"." if name == "training" else "-"';
  return ["for name, part in table.groupby(\"curve\", sort=False):", `    axes.plot(part["x"], part["y"], ${mark}, ms=2, lw=0.8, color="grey" if name == "training" else ${colour})`];
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

/* A gallery of one kind: all entries, the same axes, zoomed together. */
function functionGallery(box, panel, kind, columns = panel.columns) {
  const gallery = html("div", { class: "gallery", "data-id": `functions-${panel.dataset}` }), shown = columns.filter((column) => hasKind(column, kind));
  box.append(gallery);
  const draw = () => {
    const zoom = zoomState(gallery, panel.x_range, false, draw);
    // All cards first: a chart takes the width that its card has when it is drawn.
    const cards = shown.map((column) => ({ column, entry: entryNamed(column.entry), plot: html("div", { class: "plot" }) }));
    gallery.replaceChildren(...cards.map(({ column, entry, plot }) => html("figure", {}, html("h3", {}, ...entryLabel(entry)), plot, html("figcaption", {}, `split ${column.split}, seed ${column.seed}${scaleText(panel, kind)}`))));
    for (const { plot, column, entry } of cards) {
      functionPanel(plot, column, entry, panel, kind, zoom);
      plot.append(figureDownloads(plot, { title: `${KINDS.find(([key]) => key === kind)[1]} of ${column.entry} on ${panel.dataset}`, rows: () => panelRows(column, panel, kind), labels: { xlabel: kind === "inducing" ? "z" : "x" }, draw: panelPython(entry, kind) }));
    }
  };
  draw();
}
