"use strict";
/* Panels of scores against training seconds, for the pages that show some. */

const lastOf = (values) => { for (let i = values.length - 1; i >= 0; i -= 1) if (values[i] !== null) return values[i]; return null; };

/* Where it matters: the last medians and quartiles, the best ever seen, and as much again on the worse side to show how they came there. */
function focusRange(series, larger) {
  const ends = series.map((s) => [s.y, s.low, s.high].map(lastOf)).filter((end) => end[0] !== null);
  const everything = rangeOf(series.flatMap((s) => [...s.y, ...s.low, ...s.high]));
  if (!ends.length) return everything;
  const worse = (a, b) => (larger ? b - a : a - b), last = ends.map((end) => end[0]).sort(worse);
  const best = series.flatMap((s) => s.y.filter((v) => v !== null)).sort(worse)[0];
  const usual = last[Math.floor((last.length - 1) * 0.75)], worst = last[last.length - 1];
  // One entry that is hopeless must not flatten the others.
  const hopeless = usual !== best && Math.abs(worst - best) > 4 * Math.abs(usual - best);
  const limit = hopeless ? best + (usual - best) * 2 : worst;
  const quartiles = ends.filter((end) => worse(end[0], limit) <= 0).flat().filter((v) => v !== null).sort(worse);
  const edge = quartiles.length ? quartiles[quartiles.length - 1] : limit, top = quartiles.length ? quartiles[0] : best;
  const start = worse(best, top) < 0 ? best : top, reach = worse(edge, limit) > 0 && !hopeless ? edge : limit;
  const [low, high] = rangeOf([start, reach + (reach - start) * (hopeless ? 0 : 0.8)]);
  return [Math.max(low, everything[0]), Math.min(high, everything[1])];
}

/* One panel: a score on a data set (its place in `curves`), one curve per entry. */
function curvePanel(container, curves, place, name, metric, entries, everything) {
  const series = entries.map((entry, e) => ({ entry, band: curves.bands[metric.key][place][e] })).filter((s) => s.band && !s.entry.hidden)
    .map((s) => ({ entry: s.entry, y: s.band[0], low: s.band[1], high: s.band[2] }));
  const plot = html("div", { class: "plot", "data-id": `${metric.key}-${name}` });
  container.append(html("figure", {}, html("h3", {}, `${metric.label}, ${metric.direction}`), plot));
  const ends = series.map((s) => `${s.entry.name} ${number(lastOf(s.y))}`).join(", ");
  lineChart(plot, { series, x: curves.grid[place], yRange: everything ? rangeOf(series.flatMap((s) => [...s.y, ...s.low, ...s.high])) : focusRange(series, metric.larger), larger: metric.larger,
    xLabel: "training seconds", title: `${metric.label} on ${name} against training seconds`, figure: curves.figures[place], description: `Medians at the end: ${ends || "none"}.` });
}
