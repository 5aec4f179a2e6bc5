"use strict";
(() => {
const draw = () => {
  for (const box of document.querySelectorAll("[data-diagram]")) diagram(box, data.diagrams[box.dataset.diagram]);
  const metric = data.metrics.find((m) => m.key === chosen("target")), { targets } = data;
  const series = data.entries.map((entry, e) => ({ entry, y: targets.shares[metric.key][e] })).filter((s) => s.y);
  if (targets.grid.length > 1 && series.length) lineChart(find("targets"), { series, x: targets.grid, yRange: [0, 1.02], larger: true, height: 320, xLabel: "training seconds", figure: `targets-${metric.key}`,
    title: `Share of ${metric.label} targets reached against training seconds`, description: series.map((s) => `${s.entry.name} ${number(s.y[s.y.length - 1], 3)}`).join(", ") });
  else find("targets").textContent = "The store has no curve to draw.";
};
prepareTables();
radios("target", draw);
draw();
onResize(draw);
ready();
})();

/* Demšar's diagram: a scale of mean ranks, names left and right, bars over what cannot be told apart. */
function diagram(box, item) {
  box.replaceChildren();
  const count = item.names.length;
  if (count < 2) { box.textContent = "Two entries are needed."; return; }
  const width = Math.max(Math.min(box.clientWidth, 900), 300), side = Math.min(200, width * 0.3), axis = 46;
  const left = Math.ceil(count / 2), rows = Math.max(left, count - left), barStep = 8, first = axis + 16 + item.bars.length * barStep;
  const height = first + rows * 19 + 8;
  const fx = (rank) => side + ((rank - 1) / (count - 1)) * (width - 2 * side);
  const short = (name) => { const most = Math.max(Math.floor((side - 44) / 6), 6); return name.length > most ? `${name.slice(0, most - 1)}…` : name; };
  const root = svg("svg", { class: "chart", viewBox: `0 0 ${width} ${height}`, height, style: `max-width:${width}px`, role: "img" },
    svg("title", {}, `Critical-difference diagram, critical difference ${number(item.critical, 3)}`),
    svg("desc", {}, item.names.map((name, i) => `${name} ${item.ranks[i].toFixed(2)}`).join(", ")),
    svg("line", { class: "axis", x1: fx(1), x2: fx(count), y1: axis, y2: axis }));
  const every = Math.ceil((count * 20) / (width - 2 * side));
  for (let rank = 1; rank <= count; rank += every) root.append(svg("line", { class: "axis", x1: fx(rank), x2: fx(rank), y1: axis - 5, y2: axis }), svg("text", { x: fx(rank), y: axis - 9, "text-anchor": "middle" }, String(rank)));
  const span = fx(1 + item.critical) - fx(1);
  if (Number.isFinite(span) && item.critical <= count - 1) root.append(svg("line", { stroke: "currentColor", "stroke-width": 2, x1: fx(1), x2: fx(1) + span, y1: 14, y2: 14 }), svg("text", { x: fx(1) + span + 6, y: 18 }, `critical difference ${number(item.critical, 3)}`));
  else root.append(svg("text", { x: fx(1), y: 18 }, `critical difference ${number(item.critical, 3)}: wider than the scale`));
  item.bars.forEach(([from, to], i) => root.append(svg("line", { stroke: "currentColor", "stroke-width": 3.5, "stroke-linecap": "round", x1: fx(from) - 3, x2: fx(to) + 3, y1: axis + 10 + i * barStep, y2: axis + 10 + i * barStep })));
  item.names.forEach((name, i) => {
    const entry = entryNamed(name), onLeft = i < left, row = onLeft ? i : count - 1 - i, y = first + row * 19 + 10, x = fx(item.ranks[i]);
    const end = onLeft ? side - 8 : width - side + 8;
    root.append(svg("path", { d: `M${x} ${axis}V${y}H${end}`, fill: "none", stroke: entry.colour, "stroke-width": 1.6 }),
      svg("text", { class: "strong", x: onLeft ? end - 4 : end + 4, y: y + 4, "text-anchor": onLeft ? "end" : "start" }, svg("title", {}, name), `${short(name)} `, svg("tspan", { opacity: 0.65 }, item.ranks[i].toFixed(2))));
  });
  box.append(root);
  const bars = item.bars.map(([from, to], i) => `axes.hlines(${-0.6 - 0.25 * i}, ${from}, ${to}, color="black", lw=2)`);
  box.append(figureDownloads(box, { title: `Critical differences in ${box.dataset.diagram}, ${number(item.critical, 3)} ranks`, figure: `critical-difference-${box.dataset.diagram}`, labels: { xlabel: "rank of means" },
    rows: () => [["entry", "rank"], ...item.names.map((name, i) => [name, item.ranks[i]])],
    draw: ["axes.plot(table[\"rank\"], range(len(table)), \"o\")", "axes.set_yticks(range(len(table)), table[\"entry\"])", ...bars, "axes.invert_yaxis()"] }));
}
