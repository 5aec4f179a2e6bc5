"use strict";
/* One chart per series of the chosen entry; a press on a point tells its commit and the command that measures it again. */
(() => {
const unitText = (series) => (series.unit === "T" ? "CPU time in T" : series.unit || "value");
const quoted = (text) => `"${text.replaceAll('"', '\\"')}"`;

function describe(series, index) {
  const place = series.places[index], commit = data.commits[place], point = series.points.find((p) => p.place === place);
  const before = index > 0 ? data.commits[series.places[index - 1]].sha : null;
  const parts = [html("strong", {}, `${commit.sha} `), commit.subject, html("br"), `${commit.date} · ${series.name} = ${number(series.values[index])} ${series.unit}`,
    ` (${series.repeats[index].map((value) => number(value)).join(", ")})`];
  if (point) parts.push(html("br"), `${point.word} by ${point.size} since ${point.from}; detectors: ${point.votes}${point.accepted ? `; accepted: ${point.accepted}` : ""}`);
  if (before) parts.push(html("br"), html("code", {}, `fsibench gate ${before} ${commit.sha} --series ${quoted(series.name)}`));
  find("detail").replaceChildren(...parts);
}

function draw(series) {
  const box = html("div", { class: "panel", "data-series": series.name });
  find("charts").append(html("h3", {}, series.name), box);
  const last = data.commits.length - 1;
  const chart = frame(box, { title: series.name, description: `${unitText(series)} by commit`, logX: false, xRange: [0, Math.max(last, 1)],
    yRange: rangeOf(series.repeats.flat()), xLabel: `commit (0: ${data.commits[0].sha}, ${last}: ${data.commits[last].sha}); ${unitText(series)}`, height: 200 });
  const xs = series.places.map(chart.fx), ys = series.values.map(chart.fy);
  for (const point of series.points) {
    const x = chart.fx(point.place - 0.5);
    chart.marks.append(svg("line", { class: `change ${point.word}`, x1: x, x2: x, y1: chart.top, y2: chart.height - chart.bottom, stroke: point.word === "worse" ? "#b3261e" : "#1a7f37", "stroke-width": 2, "stroke-dasharray": "4 3" },
      svg("title", {}, `${point.word}: ${point.size}`)));
  }
  chart.marks.append(svg("path", { class: "series", d: path(xs, ys), stroke: "#3b6ea5" }));
  series.repeats.forEach((repeats, i) => repeats.forEach((value) => chart.marks.append(svg("circle", { cx: xs[i], cy: chart.fy(value), r: 1.5, fill: "#3b6ea5", opacity: 0.4 }))));
  xs.forEach((x, i) => {
    const commit = data.commits[series.places[i]];
    const dot = svg("circle", { class: "commit", cx: x, cy: ys[i], r: 5, fill: "#3b6ea5", tabindex: 0, role: "button", "aria-label": `${commit.sha} ${number(series.values[i])}`, style: "cursor: pointer" });
    dot.addEventListener("click", () => describe(series, i));
    dot.addEventListener("keydown", (event) => { if (event.key === "Enter" || event.key === " ") { event.preventDefault(); describe(series, i); } });
    chart.root.append(dot);
  });
  chart.root.setAttribute("role", "group");
  box.append(chart.root);
}

function show() {
  find("charts").replaceChildren();
  for (const series of data.series.filter((one) => one.entry === find("entry").value)) draw(series);
}

const entries = [...new Set(data.series.map((series) => series.entry))];
for (const entry of entries) find("entry").append(html("option", { value: entry }, entry));
selects("entry", show);
window.addEventListener("hashchange", () => { const told = address.get("entry"); if (told && entries.includes(told)) { find("entry").value = told; show(); } });
onResize(show);
show();
prepareTables();
ready();
})();
