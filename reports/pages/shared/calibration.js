"use strict";
/* Cards with a PIT histogram and a coverage curve, for the pages that show some. */

function pitHistogram(box, item, entry) {
  const high = Math.max(2, ...item.pit) * 1.05;
  const chart = frame(box, { xRange: [0, 1], yRange: [0, high], logX: false, height: 130, yTicks: 3, title: `PIT histogram of ${entry.name}`,
    description: `Density in ${item.pit.length} bins: ${item.pit.map((v) => number(v, 3)).join(", ")}. 1 everywhere is calibrated.`, xLabel: "probability integral transform" });
  item.pit.forEach((v, i) => { const x = chart.fx(i / item.pit.length), w = chart.fx((i + 1) / item.pit.length) - x;
    chart.marks.append(svg("rect", { x: x + 0.5, y: chart.fy(v), width: Math.max(w - 1, 0.5), height: Math.max(chart.fy(0) - chart.fy(v), 0), fill: entry.colour, opacity: 0.75 })); });
  chart.root.append(svg("line", { class: "cursor", x1: chart.fx(0), x2: chart.fx(1), y1: chart.fy(1), y2: chart.fy(1) }));
  box.append(chart.root);
}

function coverageCurve(box, item, entry, levels) {
  const chart = frame(box, { xRange: [0, 1], yRange: [0, 1], logX: false, height: 170, yTicks: 4, title: `Coverage of ${entry.name}`, xLabel: "promised coverage of central intervals",
    description: levels.map((l, i) => `${Math.round(100 * l)} %: ${(100 * item.coverage[i]).toFixed(1)} %`).join(", ") });
  chart.marks.append(svg("line", { class: "cursor", x1: chart.fx(0), y1: chart.fy(0), x2: chart.fx(1), y2: chart.fy(1) }));
  const xs = [0, ...levels, 1].map(chart.fx), ys = [0, ...item.coverage, 1].map(chart.fy);
  chart.marks.append(svg("path", { class: "series", d: path(xs, ys), stroke: entry.colour }));
  levels.forEach((l, i) => chart.marks.append(svg("circle", { cx: chart.fx(l), cy: chart.fy(item.coverage[i]), r: 2.6, fill: entry.colour })));
  box.append(chart.root);
}

/* One card; `heading` is the element that names it. */
function calibrationCard(container, item, entry, levels, heading) {
  const histogram = html("div", { class: "plot" }), coverage = html("div", { class: "plot" }), colour = JSON.stringify(entry.colour), facts = [`calibration error ${number(item.error, 3)}`];
  if (item.sharpness !== null) facts.push(`sharpness (mean predictive sd) ${number(item.sharpness, 3)}`);
  container.append(html("figure", {}, heading, histogram, coverage, html("figcaption", {}, `${facts.join(", ")}.`)));
  pitHistogram(histogram, item, entry);
  coverageCurve(coverage, item, entry, levels);
  histogram.append(figureDownloads(histogram, { title: `PIT of ${entry.name}`, rows: () => [["pit", "density"], ...item.pit.map((v, i) => [(i + 0.5) / item.pit.length, v])], labels: { xlabel: "PIT", ylabel: "density" },
    draw: [`axes.bar(table["pit"], table["density"], width=${0.9 / item.pit.length}, color=${colour})`, "axes.axhline(1.0, color=\"black\", lw=0.6, ls=\"--\")"] }));
  coverage.append(figureDownloads(coverage, { title: `Coverage of ${entry.name}`, rows: () => [["promised", "covered"], [0, 0], ...levels.map((l, i) => [l, item.coverage[i]]), [1, 1]], labels: { xlabel: "promised", ylabel: "covered" },
    draw: [`axes.plot(table["promised"], table["covered"], marker=".", color=${colour})`, "axes.plot([0, 1], [0, 1], color=\"grey\", lw=0.6)"] }));
}
