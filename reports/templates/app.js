"use strict";
/* Everything a page does after loading. Data comes from the JSON in the page; names are only ever set as text. */
(() => {
const data = JSON.parse(document.getElementById("data").textContent);
const find = (id) => document.getElementById(id);
const NAMESPACE = "http://www.w3.org/2000/svg";

// Small tools -----------------------------------------------------------------------------------------------

function html(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) if (value !== null && value !== undefined) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

function svg(tag, attributes = {}, ...children) {
  const node = document.createElementNS(NAMESPACE, tag);
  for (const [name, value] of Object.entries(attributes)) if (value !== null && value !== undefined) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

function number(value, digits = 4) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  if (!Number.isFinite(value)) return value > 0 ? "∞" : "−∞";
  const size = Math.abs(value);
  let text;
  if (size && (size < 1e-3 || size >= 1e6)) text = value.toExponential(Math.max(digits - 1, 0));
  else text = value.toFixed(Math.min(Math.max(digits - 1 - (size ? Math.floor(Math.log10(size)) : 0), 0), digits));
  return text.replace("e+", "e").replaceAll("-", "−");
}

function withError(mean, error) {
  if (!Number.isFinite(error) || error === 0 || !Number.isFinite(mean)) return number(mean);
  const exponent = Math.floor(Math.log10(error));
  const scale = Math.max(Math.abs(mean), error);
  if (scale < 1e-3 || scale >= 1e6) {
    const power = Math.floor(Math.log10(scale));
    const decimals = Math.min(Math.max(power - exponent + 1, 1), 5);
    return `(${(mean / 10 ** power).toFixed(decimals)} ± ${(error / 10 ** power).toFixed(decimals)})e${power}`.replaceAll("-", "−");
  }
  const decimals = Math.min(Math.max(1 - exponent, 0), 6);
  return `${mean.toFixed(decimals)} ± ${error.toFixed(decimals)}`.replaceAll("-", "−");
}

const seconds = (value) => (value < 1e-3 ? `${(value * 1e6).toPrecision(3)} µs` : value < 1 ? `${(value * 1e3).toPrecision(3)} ms`
  : value < 120 ? `${+value.toPrecision(3)} s` : value < 7200 ? `${+(value / 60).toPrecision(3)} min` : `${+(value / 3600).toPrecision(3)} h`);

function floats(text) {
  const bytes = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  return new Float32Array(bytes.buffer);
}

/* A random stream with a seed, so that a page shows the same interval each time it is opened. */
function randomStream(seed) {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let t = Math.imul(state ^ (state >>> 15), 1 | state);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  };
}

function quantile(sorted, p) {
  const position = p * (sorted.length - 1);
  const low = Math.floor(position);
  return sorted[low] + (position - low) * (sorted[Math.min(low + 1, sorted.length - 1)] - sorted[low]);
}

const debounce = (run, wait) => { let timer; return () => { clearTimeout(timer); timer = setTimeout(run, wait); }; };
const chosen = (id) => find(id).querySelector("input:checked").value;

function swatch(entry) {
  const line = svg("line", { x1: 0, y1: 5, x2: 22, y2: 5, stroke: entry.colour, "stroke-width": 3, "stroke-dasharray": entry.dash.join(" ") || null });
  return svg("svg", { width: 22, height: 10, class: "swatch", "aria-hidden": "true" }, line);
}

function entryLabel(entry) {
  const parts = [swatch(entry), document.createTextNode(entry.name)];
  if (entry.note) parts.push(html("span", { class: "note" }, entry.note));
  if (entry.doubtful) parts.push(html("span", { class: "flag", title: `${entry.doubtful} cells failed the method's own diagnostics`, role: "img",
    "aria-label": "warning: diagnostics failed" }, "⚠"));
  return parts;
}

// Sorting ---------------------------------------------------------------------------------------------------

function sortKey(cell) {
  if (cell.dataset.value !== undefined) return cell.dataset.value === "" ? NaN : +cell.dataset.value;
  const text = cell.textContent.trim().replaceAll("−", "-");
  const match = /^[<(]?\s*(-?\d[\d.]*(?:e-?\d+)?)/i.exec(text);
  return match ? parseFloat(match[1]) : text;
}

function sortBy(table, column, ascending) {
  const body = table.tBodies[0];
  const rows = [...body.rows].map((row) => ({ row, key: sortKey(row.cells[column]) }));
  const numeric = rows.filter((item) => typeof item.key === "number").length * 2 > rows.length;
  const compare = (a, b) => {
    if (!numeric) return String(a.key).localeCompare(String(b.key));
    const x = typeof a.key === "number" ? a.key : NaN, y = typeof b.key === "number" ? b.key : NaN;
    if (Number.isNaN(x) || Number.isNaN(y)) return (Number.isNaN(x) ? 1 : 0) - (Number.isNaN(y) ? 1 : 0) || 0;
    return ascending ? x - y : y - x;
  };
  rows.sort((a, b) => (numeric ? compare(a, b) : ascending ? compare(a, b) : -compare(a, b)));
  body.append(...rows.map((item) => item.row));
  [...table.tHead.rows[0].cells].forEach((cell, index) => {
    if (index === column) cell.setAttribute("aria-sort", ascending ? "ascending" : "descending");
    else cell.removeAttribute("aria-sort");
  });
}

function makeSortable(table, onSort) {
  [...table.tHead.rows[0].cells].forEach((cell, column) => {
    const small = cell.querySelector("small");
    const button = html("button", { type: "button" });
    while (cell.firstChild && cell.firstChild !== small) button.append(cell.firstChild);
    cell.prepend(button);
    button.addEventListener("click", () => {
      const ascending = cell.getAttribute("aria-sort") !== "ascending";
      sortBy(table, column, ascending);
      if (onSort) onSort(column, ascending);
    });
  });
}

// Charts ----------------------------------------------------------------------------------------------------

function niceTicks(low, high, count = 5) {
  const raw = (high - low) / count || 1;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 2.5, 5, 10].map((m) => m * power).find((s) => s >= raw * 0.999) || power * 10;
  const ticks = [];
  for (let k = Math.ceil(low / step - 1e-9); k * step <= high + step * 1e-9; k += 1) ticks.push(k * step);
  return ticks;
}

function logTicks(low, high) {
  const ticks = [];
  for (let k = Math.floor(Math.log10(low)); k <= Math.ceil(Math.log10(high)); k += 1) if (10 ** k >= low * 0.999 && 10 ** k <= high * 1.001) ticks.push(10 ** k);
  if (ticks.length >= 2) return ticks;
  const more = [];
  for (let k = Math.floor(Math.log10(low)); k <= Math.ceil(Math.log10(high)); k += 1)
    for (const m of [1, 2, 5]) if (m * 10 ** k >= low * 0.999 && m * 10 ** k <= high * 1.001) more.push(m * 10 ** k);
  return more.length ? more : [low, high];
}

const tickText = (value) => {
  if (value === 0) return "0";
  const size = Math.abs(value);
  return (size >= 1e5 || size < 1e-3 ? value.toExponential(1).replace(".0e", "e").replace("e+", "e") : String(+value.toPrecision(6))).replaceAll("-", "−");
};

function path(xs, ys) {
  let text = "", pen = false;
  for (let i = 0; i < xs.length; i += 1) {
    if (ys[i] === null || !Number.isFinite(ys[i])) { pen = false; continue; }
    text += `${pen ? "L" : "M"}${xs[i].toFixed(1)} ${ys[i].toFixed(1)}`;
    pen = true;
  }
  return text;
}

function bandPath(xs, low, high) {
  const kept = xs.map((_, i) => i).filter((i) => Number.isFinite(low[i]) && Number.isFinite(high[i]) && low[i] !== null && high[i] !== null);
  if (!kept.length) return "";
  return "M" + kept.map((i) => `${xs[i].toFixed(1)} ${high[i].toFixed(1)}`).join("L") + "L" + kept.reverse().map((i) => `${xs[i].toFixed(1)} ${low[i].toFixed(1)}`).join("L") + "Z";
}

let chartCount = 0;
let tip = null;

/* Axes of a chart: x in logarithmic seconds or linear, y linear; `clip` keeps curves inside. */
function frame(box, options) {
  const width = Math.max(box.clientWidth, 220), height = options.height || 230;
  const left = 52, right = 10, top = 8, bottom = 34;
  chartCount += 1;
  const id = `chart${chartCount}`;
  const [x0, x1] = options.xRange;
  let [y0, y1] = options.yRange;
  if (y0 === y1) { y0 -= 0.5; y1 += 0.5; }
  const log = options.logX !== false;
  const fx = log ? (v) => left + (Math.log(v / x0) / (Math.log(x1 / x0) || 1)) * (width - left - right) : (v) => left + ((v - x0) / (x1 - x0 || 1)) * (width - left - right);
  const fy = (v) => top + (1 - (v - y0) / (y1 - y0)) * (height - top - bottom);
  const root = svg("svg", { class: "chart", viewBox: `0 0 ${width} ${height}`, height, role: "img", "aria-labelledby": `${id}t ${id}d` },
    svg("title", { id: `${id}t` }, options.title), svg("desc", { id: `${id}d` }, options.description || options.title),
    svg("clipPath", { id: `${id}c` }, svg("rect", { x: left, y: top, width: width - left - right, height: height - top - bottom })));
  for (const tick of niceTicks(y0, y1, options.yTicks || 5)) {
    root.append(svg("line", { class: "gridline", x1: left, x2: width - right, y1: fy(tick), y2: fy(tick) }),
      svg("text", { x: left - 6, y: fy(tick) + 3.5, "text-anchor": "end" }, tickText(tick)));
  }
  for (const tick of log ? logTicks(x0, x1) : niceTicks(x0, x1, Math.max(Math.floor(width / 60), 3))) {
    root.append(svg("line", { class: "axis", x1: fx(tick), x2: fx(tick), y1: height - bottom, y2: height - bottom + 4 }),
      svg("text", { x: fx(tick), y: height - bottom + 16, "text-anchor": "middle" }, tickText(tick)));
  }
  root.append(svg("line", { class: "axis", x1: left, x2: width - right, y1: height - bottom, y2: height - bottom }));
  if (options.xLabel) root.append(svg("text", { x: (left + width - right) / 2, y: height - 3, "text-anchor": "middle" }, options.xLabel));
  const marks = svg("g", { "clip-path": `url(#${id}c)` });
  root.append(marks);
  return { root, marks, fx, fy, width, height, left, right, top, bottom };
}

/* Lines with bands against a shared grid of seconds. series: {entry, y, low, high}. */
function lineChart(box, options) {
  box.replaceChildren();
  const shown = options.series;
  const chart = frame(box, { ...options, yRange: options.yRange || rangeOf(shown.flatMap((s) => s.y)), xRange: [options.x[0], options.x[options.x.length - 1]] });
  const xs = options.x.map(chart.fx);
  const scaled = (values) => values.map((v) => (v === null || Number.isNaN(v) ? null : chart.fy(v)));
  for (const s of shown) if (s.low) chart.marks.append(svg("path", { class: "band", d: bandPath(xs, scaled(s.low), scaled(s.high)), fill: s.entry.colour }));
  for (const s of shown) {
    chart.marks.append(svg("path", { class: "series", d: path(xs, scaled(s.y)), stroke: s.entry.colour, "stroke-dasharray": s.entry.dash.join(" ") || null, "data-entry": s.entry.name }));
    // A curve of one point would be invisible as a line.
    const single = s.y.map((v, i) => i).filter((i) => s.y[i] !== null && Number.isFinite(s.y[i]));
    if (single.length === 1) chart.marks.append(svg("circle", { cx: xs[single[0]], cy: chart.fy(s.y[single[0]]), r: 3.5, fill: s.entry.colour }));
  }
  if (options.extra) options.extra(chart, xs);
  if (options.markAt !== undefined && options.markAt !== null)
    chart.root.append(svg("line", { class: "cursor", x1: chart.fx(options.markAt), x2: chart.fx(options.markAt), y1: chart.top, y2: chart.height - chart.bottom }));
  box.append(chart.root);
  addCursor(box, chart, options, xs, shown);
}

function rangeOf(values) {
  let low = Infinity, high = -Infinity;
  for (const v of values) if (v !== null && Number.isFinite(v)) { if (v < low) low = v; if (v > high) high = v; }
  if (low > high) return [0, 1];
  const margin = (high - low) * 0.05 || Math.abs(high) * 0.05 || 0.5;
  return [low - margin, high + margin];
}

function addCursor(box, chart, options, xs, shown) {
  const line = svg("line", { class: "cursor", y1: chart.top, y2: chart.height - chart.bottom, visibility: "hidden" });
  chart.root.append(line);
  chart.root.setAttribute("tabindex", "0");
  let index = xs.length - 1;
  const show = (i) => {
    index = Math.min(Math.max(i, 0), xs.length - 1);
    line.setAttribute("x1", xs[index]); line.setAttribute("x2", xs[index]); line.setAttribute("visibility", "visible");
    const rows = shown.map((s) => ({ s, v: s.y[index] })).filter((r) => r.v !== null && Number.isFinite(r.v));
    rows.sort((a, b) => (options.larger ? b.v - a.v : a.v - b.v));
    if (!tip) { tip = html("div", { class: "tip", role: "status" }); document.body.append(tip); }
    tip.replaceChildren(html("strong", {}, options.xText ? options.xText(index) : seconds(options.x[index])),
      ...rows.slice(0, 14).map((r) => html("div", {}, html("span", {}, swatch(r.s.entry), r.s.entry.name), html("span", {}, number(r.v)))));
    tip.hidden = false;
    const rectangle = box.getBoundingClientRect();
    const x = rectangle.left + window.scrollX + xs[index] * (rectangle.width / chart.width);
    const toLeft = xs[index] > chart.width / 2;
    tip.style.top = `${rectangle.top + window.scrollY + 10}px`;
    tip.style.left = toLeft ? `${Math.max(x - tip.offsetWidth - 10, window.scrollX + 4)}px` : `${x + 10}px`;
  };
  const hide = () => { line.setAttribute("visibility", "hidden"); if (tip) tip.hidden = true; };
  chart.root.addEventListener("pointermove", (event) => {
    const rectangle = chart.root.getBoundingClientRect();
    const x = (event.clientX - rectangle.left) * (chart.width / rectangle.width);
    let best = 0;
    xs.forEach((v, i) => { if (Math.abs(v - x) < Math.abs(xs[best] - x)) best = i; });
    show(best);
  });
  chart.root.addEventListener("pointerleave", hide);
  chart.root.addEventListener("blur", hide);
  chart.root.addEventListener("keydown", (event) => {
    if (event.key === "ArrowLeft") show(index - 1);
    else if (event.key === "ArrowRight") show(index + 1);
    else if (event.key === "Home") show(0);
    else if (event.key === "End") show(xs.length - 1);
    else if (event.key === "Escape") return hide();
    else return undefined;
    event.preventDefault();
    return undefined;
  });
}

function onResize(draw) {
  let width = window.innerWidth;
  window.addEventListener("resize", debounce(() => { if (window.innerWidth !== width) { width = window.innerWidth; draw(); } }, 150));
}

// Leaderboard -----------------------------------------------------------------------------------------------

function leaderboard() {
  const board = data.board, entries = data.entries, num = board.num_blocks, width = board.grid.length + 1;
  const cache = {};
  const values = (metric) => (cache[metric] = cache[metric] || floats(board.values[metric]));
  const state = { metric: chosen("metric"), time: width - 1, on: new Set(board.ranked), datasets: new Set(data.datasets.map((_, i) => i)), text: "", sort: null };

  // Score of an entry in a block at a grid point; the last grid point is the end of the budget.
  const at = (metric, e, b, t) => values(metric)[(e * num + b) * width + t];
  const known = (e, b) => board.known[e * num + b] === "1";
  const used = () => {
    const on = [...state.on];
    return board.dataset_of.map((_, b) => b).filter((b) => state.datasets.has(board.dataset_of[b]) && on.every((e) => known(e, b)));
  };

  /* Ranks within one row: ties share their mean, NaN shares the last places. */
  function rank(exact, larger) {
    const scores = exact.map((v) => (Number.isFinite(v) ? +v.toPrecision(6) : v)); // what differs by less is the same score
    const order = scores.map((_, i) => i).sort((i, j) => {
      const a = Number.isNaN(scores[i]) ? -Infinity : larger ? scores[i] : -scores[i];
      const b = Number.isNaN(scores[j]) ? -Infinity : larger ? scores[j] : -scores[j];
      return b - a || 0;
    });
    const ranks = new Array(scores.length);
    for (let start = 0; start < order.length;) {
      let end = start;
      const same = (i, j) => scores[i] === scores[j] || (Number.isNaN(scores[i]) && Number.isNaN(scores[j]));
      while (end + 1 < order.length && same(order[end + 1], order[start])) end += 1;
      for (let k = start; k <= end; k += 1) ranks[order[k]] = (start + end) / 2 + 1;
      start = end + 1;
    }
    return ranks;
  }

  /* Rows of ranks for blocks at a time, in the order of `on`. */
  const rankRows = (on, blocks, metric, time) => blocks.map((b) => rank(on.map((e) => at(metric.key, e, b, time)), metric.larger));

  /* Mean score and its standard error per data set; failed cells replaced by the score of constant where there is one. */
  function datasetMeans(e, blocks, metric, time) {
    const groups = new Map();
    for (const b of blocks) {
      let v = at(metric.key, e, b, time), replaced = false;
      if (Number.isNaN(v)) { replaced = true; if (board.constant !== null && known(board.constant, b)) v = at(metric.key, board.constant, b, time); }
      const d = board.dataset_of[b];
      if (!groups.has(d)) groups.set(d, { splits: new Map(), failed: 0, broken: false });
      const group = groups.get(d);
      if (replaced) group.failed += 1;
      if (Number.isNaN(v)) { group.broken = true; continue; }
      const key = board.split_of[b];
      if (!group.splits.has(key)) group.splits.set(key, []);
      group.splits.get(key).push(v);
    }
    const result = new Map();
    for (const [d, group] of groups) {
      const list = [...group.splits.values()].map((v) => v.reduce((x, y) => x + y, 0) / v.length);
      const mean = list.length ? list.reduce((x, y) => x + y, 0) / list.length : NaN;
      const variance = list.length > 1 ? list.reduce((x, y) => x + (y - mean) ** 2, 0) / (list.length - 1) : NaN;
      result.set(d, { mean, error: Math.sqrt(variance / list.length), failed: group.failed, broken: group.broken, splits: list.length });
    }
    return result;
  }

  /* Two-level bootstrap of the mean ranks: data sets are redrawn, then splits within each. */
  function intervals(rows, blocks, count) {
    const groups = new Map();
    blocks.forEach((b, i) => { const d = board.dataset_of[b]; if (!groups.has(d)) groups.set(d, []); groups.get(d).push(rows[i]); });
    const sets = [...groups.values()];
    const tail = data.tails[sets.length];
    if (sets.length < 2 || tail === undefined || tail === null) return new Array(count).fill(null);
    const random = randomStream(1), draws = Array.from({ length: count }, () => new Float64Array(board.num_draws));
    for (let k = 0; k < board.num_draws; k += 1) {
      const total = new Float64Array(count);
      let weight = 0;
      for (let j = 0; j < sets.length; j += 1) {
        const set = sets[Math.floor(random() * sets.length)];
        for (let i = 0; i < set.length; i += 1) {
          const row = set[Math.floor(random() * set.length)];
          for (let e = 0; e < count; e += 1) total[e] += row[e];
        }
        weight += set.length;
      }
      for (let e = 0; e < count; e += 1) draws[e][k] = total[e] / weight;
    }
    return draws.map((d) => { d.sort(); return [quantile(d, tail), quantile(d, 1 - tail)]; });
  }

  function tiersOf(ranks, numDatasets) {
    const k = ranks.length, critical = data.nemenyi[k] === undefined ? Infinity : data.nemenyi[k] / Math.sqrt(numDatasets);
    const order = ranks.map((_, i) => i).sort((i, j) => ranks[i] - ranks[j]);
    const tiers = new Array(k);
    let tier = 1, leader = ranks[order[0]];
    for (const i of order) { if (ranks[i] - leader > critical) { tier += 1; leader = ranks[i]; } tiers[i] = tier; }
    return tiers;
  }

  function compute() {
    const metric = data.metrics.find((m) => m.key === state.metric), on = [...state.on].sort((a, b) => a - b), blocks = used();
    const rows = rankRows(on, blocks, metric, state.time);
    const meanRank = on.map((_, i) => rows.reduce((sum, row) => sum + row[i], 0) / rows.length);
    const means = new Map(entries.map((_, e) => [e, datasetMeans(e, blocks.filter((b) => known(e, b)), metric, state.time)]));
    const sets = [...new Set(blocks.map((b) => board.dataset_of[b]))].sort((a, b) => a - b);
    const setRanks = sets.map((d) => rank(on.map((e) => { const m = means.get(e).get(d); return !m || m.broken ? NaN : m.mean; }), metric.larger));
    const rankOfMeans = on.map((_, i) => setRanks.reduce((sum, row) => sum + row[i], 0) / setRanks.length);
    const interval = intervals(rows, blocks, on.length);
    return { metric, on, blocks, meanRank, rankOfMeans, interval, tiers: on.length && sets.length ? tiersOf(rankOfMeans, sets.length) : [], means, sets };
  }

  const heads = [["entry", ""], ["tier", "Nemenyi"], ["mean rank", "over dataset × split"], ["95 % interval", "bootstrap"], ["rank of means", "over data sets"],
    ["failed", "cells"], ["no result yet", "at this time"], ["CPU seconds", "mean per cell"], ["memory", "MB, peak"]];

  function drawBoard(result) {
    const table = find("board"), body = table.tBodies[0], place = new Map(result.on.map((e, i) => [e, i]));
    const rows = entries.map((entry, e) => {
      const i = place.get(e), on = i !== undefined, cost = costOf(e);
      const box = html("input", { type: "checkbox", "aria-label": `rank ${entry.name}` });
      box.checked = on;
      box.addEventListener("change", () => { if (box.checked) state.on.add(e); else state.on.delete(e); draw(); focusBox(e); });
      const cells = [
        [null, null], [on ? result.tiers[i] : null, on ? String(result.tiers[i] ?? "–") : "–"],
        [on ? result.meanRank[i] : null, on && result.blocks.length ? result.meanRank[i].toFixed(2) : "–"],
        [on && result.interval[i] ? result.interval[i][0] : null, on && result.interval[i] ? `${result.interval[i][0].toFixed(2)} to ${result.interval[i][1].toFixed(2)}` : "–"],
        [on ? result.rankOfMeans[i] : null, on && result.sets.length ? result.rankOfMeans[i].toFixed(2) : "–"],
        [cost.failed, cost.failed ? `${cost.failed} / ${cost.cells}` : "0"], [cost.waiting, String(cost.waiting)],
        [cost.cpu, number(cost.cpu, 3)], [cost.memory, number(cost.memory, 3)]];
      const row = html("tr", { class: on ? null : "off", "data-entry": entry.name });
      row.append(html("td", { class: "entry", title: entry.name, "data-value": null }, html("label", {}, box, " ", ...entryLabel(entry))));
      cells.slice(1).forEach(([value, text], column) => row.append(html("td", { "data-value": value === null || value === undefined || Number.isNaN(value) ? "" : value,
        class: column === 4 && cost.failed ? "bad" : null }, text)));
      row.hidden = !entry.name.toLowerCase().includes(state.text);
      row.entryIndex = e;
      return row;
    });
    rows.sort((a, b) => { const x = place.get(a.entryIndex), y = place.get(b.entryIndex);
      return (x === undefined) - (y === undefined) || (x === undefined ? 0 : result.meanRank[x] - result.meanRank[y]) || a.entryIndex - b.entryIndex; });
    body.replaceChildren(...rows);
    if (state.sort) sortBy(table, state.sort[0], state.sort[1]);
    const sets = result.sets.length;
    find("board-caption").textContent = `${result.metric.label} (${result.metric.direction}), ${timeText()}: ${result.blocks.length} dataset × split blocks of ${sets} data set${sets === 1 ? "" : "s"}, ${result.on.length} entries ranked.`;
  }

  function focusBox(e) {
    const row = [...find("board").tBodies[0].rows].find((r) => r.entryIndex === e);
    if (row) row.querySelector("input").focus();
  }

  function costOf(e) {
    let cells = 0, failed = 0, waiting = 0, cpu = 0, cpuCells = 0, memory = 0;
    for (let b = 0; b < num; b += 1) {
      if (!state.datasets.has(board.dataset_of[b]) || !known(e, b)) continue;
      cells += 1;
      if (board.failed[e * num + b] === "1") failed += 1;
      else if (Number.isNaN(at(state.metric, e, b, state.time))) waiting += 1;
    }
    for (const d of state.datasets) {
      const item = board.cost[e][d];
      if (item) { cpu += item[0]; memory += item[1]; cpuCells += item[2]; }
    }
    return { cells, failed, waiting, cpu: cpuCells ? cpu / cpuCells : NaN, memory: cpuCells ? memory / cpuCells : NaN };
  }

  function drawScores(result) {
    const table = find("scores"), head = html("tr", {}, html("th", { scope: "col", class: "entry" }, "entry"));
    for (const d of result.sets) head.append(html("th", { scope: "col", title: data.datasets[d] }, data.datasets[d]));
    table.tHead.replaceChildren(head);
    const places = new Map();
    for (const d of result.sets) {
      const list = result.on.map((e) => ({ e, m: result.means.get(e).get(d) })).filter((x) => x.m && !x.m.broken && Number.isFinite(x.m.mean));
      list.sort((a, b) => (result.metric.larger ? b.m.mean - a.m.mean : a.m.mean - b.m.mean));
      places.set(d, list.map((x) => x.e));
    }
    const order = result.on.map((e, i) => [e, i]).sort((a, b) => result.meanRank[a[1]] - result.meanRank[b[1]]);
    table.tBodies[0].replaceChildren(...order.map(([e]) => {
      const row = html("tr", { "data-entry": entries[e].name }, html("td", { class: "entry", title: entries[e].name }, ...entryLabel(entries[e])));
      for (const d of result.sets) {
        const m = result.means.get(e).get(d), rankThere = places.get(d).indexOf(e);
        const text = !m || Number.isNaN(m.mean) ? (m && m.failed ? "failed" : "–") : withError(m.mean, m.error) + (m.failed ? " †" : "");
        row.append(html("td", { class: rankThere === 0 ? "best" : rankThere === 1 ? "second" : null, "data-value": m && Number.isFinite(m.mean) ? m.mean : "",
          title: m && m.failed ? `${m.failed} without a result` : null }, text));
      }
      row.hidden = !entries[e].name.toLowerCase().includes(state.text);
      return row;
    }));
    makeSortable(table);
    find("scores-caption").textContent = `${result.metric.label}: ${result.metric.explanation}. Mean ± standard error over splits (sd/√splits; the splits share training rows, so it is too small to compare entries with), `
      + `${timeText()}, over the ${result.blocks.length} dataset × split blocks that every ranked entry has finished; ${result.metric.direction}. Best in bold on green, second underlined. † contains failed cells or cells without a result yet, ${board.constant === null ? "which are left out of the mean" : "replaced by the score of constant"}.`;
  }

  const timeText = () => (state.time === width - 1 ? "at the end of the budget" : `after ${seconds(board.grid[state.time])} of training`);

  function drawRankChart(result) {
    const series = result.on.map((e) => ({ entry: entries[e], y: [] }));
    for (let t = 0; t < width - 1; t += 1) {
      const rows = rankRows(result.on, result.blocks, result.metric, t);
      result.on.forEach((_, i) => series[i].y.push(rows.length ? rows.reduce((sum, row) => sum + row[i], 0) / rows.length : null));
    }
    if (width < 3) { find("rank-chart").textContent = "The store has no curve to draw."; return; }
    lineChart(find("rank-chart"), { series, x: board.grid, title: `Mean rank in ${result.metric.label} against training seconds`, xLabel: "training seconds", height: 300,
      markAt: state.time < width - 1 ? board.grid[state.time] : null, yRange: [0.8, Math.max(result.on.length, 2) + 0.2],
      description: `One line per entry. At the end: ${series.map((s) => `${s.entry.name} ${number(s.y[width - 2], 3)}`).join(", ")}.` });
  }

  /* 0: the score of constant, 1: the best final score of any entry, within each block. */
  function drawFront(result) {
    if (width < 3) { find("front-chart").textContent = "The store has no curve to draw."; return; }
    const key = result.metric.key, sign = result.metric.larger ? 1 : -1, end = width - 1;
    const series = result.on.map((e) => ({ entry: entries[e], y: new Array(width - 1).fill(0) }));
    let count = 0;
    for (const b of result.blocks) {
      const finals = result.on.map((e) => at(key, e, b, end)).filter((v) => !Number.isNaN(v)).map((v) => v * sign);
      if (!finals.length) continue;
      const best = Math.max(...finals);
      let floor = board.constant !== null && known(board.constant, b) ? at(key, board.constant, b, end) * sign : NaN;
      if (Number.isNaN(floor)) floor = Math.min(...finals);
      if (!(best > floor)) continue;
      count += 1;
      result.on.forEach((e, i) => { for (let t = 0; t < end; t += 1) {
        const v = at(key, e, b, t) * sign;
        series[i].y[t] += Number.isNaN(v) ? 0 : Math.min(Math.max((v - floor) / (best - floor), 0), 1); } });
    }
    series.forEach((s) => { s.y = s.y.map((v) => (count ? v / count : null)); });
    const leader = board.grid.map((_, t) => series.reduce((best, s) => (s.y[t] > (best === null ? 0 : best.y[t]) ? s : best), null));
    lineChart(find("front-chart"), { series, x: board.grid, title: `Quality in ${result.metric.label} against training seconds`, xLabel: "training seconds", height: 300, larger: true,
      yRange: [-0.02, 1.02], markAt: state.time < width - 1 ? board.grid[state.time] : null,
      extra: (chart, xs) => chart.marks.prepend(svg("path", { id: "front", d: path(xs, leader.map((s, t) => (s ? chart.fy(s.y[t]) : null))), fill: "none", stroke: "currentColor",
        opacity: 0.16, "stroke-width": 9, "stroke-linecap": "round" })) });
    const names = [];
    leader.forEach((s, t) => { if (s && (!names.length || names[names.length - 1][0] !== s.entry.name)) names.push([s.entry.name, board.grid[t]]); });
    find("front-caption").textContent = `0 is ${board.constant === null ? "the worst final score" : "the score of constant"}, 1 the best final score of any entry, within each dataset × split. The wide line is the front: `
      + `${names.map(([name, t]) => `${name} from ${seconds(t)}`).slice(0, 8).join(", ") || "nobody is better than that yet"}.`;
  }

  function draw(everything = true) {
    const result = compute();
    drawBoard(result);
    drawScores(result);
    if (everything) { drawRankChart(result); drawFront(result); }
    document.body.dataset.ready = "yes";
  }
  const drawLater = debounce(() => draw(), 60);

  const head = find("board").tHead.rows[0];
  head.replaceChildren(...heads.map(([name, small], i) => html("th", { scope: "col", class: i ? null : "entry" }, name, ...(small ? [html("small", {}, small)] : []))));
  makeSortable(find("board"), (column, ascending) => { state.sort = [column, ascending]; });
  find("metric").addEventListener("change", () => { state.metric = chosen("metric"); draw(); });
  const slider = find("budget");
  slider.max = width - 1; slider.value = width - 1;
  const label = () => { const text = state.time === width - 1 ? "full budget" : seconds(board.grid[state.time]); find("budget-text").textContent = text; slider.setAttribute("aria-valuetext", text); };
  slider.addEventListener("input", () => { state.time = +slider.value; label(); draw(false); drawLater(); });
  label();
  find("filter").addEventListener("input", () => { state.text = find("filter").value.trim().toLowerCase(); draw(false); });
  data.datasets.forEach((name, d) => {
    const button = html("button", { type: "button", "aria-pressed": "true", title: name }, name);
    button.addEventListener("click", () => {
      if (state.datasets.has(d)) state.datasets.delete(d); else state.datasets.add(d);
      button.setAttribute("aria-pressed", String(state.datasets.has(d)));
      draw();
    });
    find("datasets").append(button);
  });
  draw();
  onResize(() => draw());
}

// Convergence -----------------------------------------------------------------------------------------------

function convergence() {
  const hidden = new Set(), box = find("panels"), curves = data.curves;
  const sections = data.datasets.map((name, d) => {
    const panels = html("div", { class: "panels" });
    box.append(html("section", {}, html("h2", {}, name), panels));
    return { panels, d, drawn: false };
  });
  const metrics = () => (chosen("which") === "three" ? data.metrics.filter((m) => m.key !== "calibration") : data.metrics.filter((m) => m.key === chosen("which")));

  /* Where it matters: the last medians and quartiles, the best ever seen, and as much again on the worse side to show how they came there. */
  function focus(series, larger) {
    const ends = series.map((s) => [s.y, s.low, s.high].map(lastOf)).filter((end) => end[0] !== null);
    const everything = rangeOf(series.flatMap((s) => [...s.y, ...s.low, ...s.high]));
    if (!ends.length || chosen("range") === "all") return everything;
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
  const lastOf = (values) => { for (let i = values.length - 1; i >= 0; i -= 1) if (values[i] !== null) return values[i]; return null; };

  function drawSection(section) {
    section.panels.replaceChildren();
    for (const metric of metrics()) {
      const series = data.entries.map((entry, e) => ({ entry, band: curves.bands[metric.key][section.d][e] })).filter((s) => s.band && !hidden.has(s.entry.name))
        .map((s) => ({ entry: s.entry, y: s.band[0], low: s.band[1], high: s.band[2] }));
      const plot = html("div", { class: "plot" });
      section.panels.append(html("figure", {}, html("h4", {}, `${metric.label}, ${metric.direction}`), plot));
      const ends = series.map((s) => `${s.entry.name} ${number(lastOf(s.y))}`).join(", ");
      lineChart(plot, { series, x: curves.grid[section.d], yRange: focus(series, metric.larger), larger: metric.larger, xLabel: "training seconds",
        title: `${metric.label} on ${data.datasets[section.d]} against training seconds`, description: `Medians at the end: ${ends || "none"}.` });
    }
    section.drawn = true;
  }
  // Panels far below are drawn when they come near, so that the page is ready at once; printing draws them all.
  const observer = new IntersectionObserver((items) => items.forEach((item) => {
    const section = sections.find((s) => s.panels === item.target);
    if (item.isIntersecting && !section.drawn) drawSection(section);
  }), { rootMargin: "600px" });
  sections.forEach((section) => { section.panels.style.minHeight = "260px"; observer.observe(section.panels); });
  window.addEventListener("beforeprint", () => sections.filter((s) => !s.drawn).forEach(drawSection));
  const redraw = () => sections.forEach((section) => { const rectangle = section.panels.getBoundingClientRect();
    if (rectangle.top < window.innerHeight + 600 && rectangle.bottom > -600) drawSection(section); else { section.drawn = false; section.panels.replaceChildren(); observer.unobserve(section.panels); observer.observe(section.panels); } });
  legend(hidden, redraw);
  find("which").addEventListener("change", redraw);
  find("range").addEventListener("change", redraw);
  onResize(redraw);
  document.body.dataset.ready = "yes";
}

function legend(hidden, redraw) {
  for (const entry of data.entries) {
    const button = html("button", { type: "button", "aria-pressed": "true", title: entry.name }, ...entryLabel(entry));
    button.addEventListener("click", () => {
      if (hidden.has(entry.name)) hidden.delete(entry.name); else hidden.add(entry.name);
      button.setAttribute("aria-pressed", String(!hidden.has(entry.name)));
      redraw();
    });
    find("legend").append(button);
  }
}

// Calibration -----------------------------------------------------------------------------------------------

function calibration() {
  const select = find("dataset"), cards = find("cards");
  const names = ["all data sets, each with equal weight", ...data.datasets];
  names.forEach((name, i) => select.append(html("option", { value: i }, name)));
  const draw = () => {
    cards.replaceChildren();
    const d = +select.value;
    data.entries.forEach((entry, e) => {
      const item = data.calibration[d][e];
      if (!item) return;
      const histogram = html("div", { class: "plot" }), coverage = html("div", { class: "plot" });
      const facts = [`calibration error ${number(item.error, 3)}`];
      if (item.sharpness !== null) facts.push(`sharpness (mean predictive sd) ${number(item.sharpness, 3)}`);
      cards.append(html("figure", {}, html("h3", {}, ...entryLabel(entry)), histogram, coverage, html("figcaption", {}, facts.join(", ") + ".")));
      drawHistogram(histogram, item, entry);
      drawCoverage(coverage, item, entry);
    });
    if (!cards.children.length) cards.append(html("p", {}, "No finished cells."));
  };
  function drawHistogram(box, item, entry) {
    const high = Math.max(2, ...item.pit) * 1.05;
    const chart = frame(box, { xRange: [0, 1], yRange: [0, high], logX: false, height: 130, yTicks: 3, title: `PIT histogram of ${entry.name}`,
      description: `Density in ${item.pit.length} bins: ${item.pit.map((v) => number(v, 3)).join(", ")}. 1 everywhere is calibrated.`, xLabel: "probability integral transform" });
    item.pit.forEach((v, i) => { const x = chart.fx(i / item.pit.length), w = chart.fx((i + 1) / item.pit.length) - x;
      chart.marks.append(svg("rect", { x: x + 0.5, y: chart.fy(v), width: Math.max(w - 1, 0.5), height: Math.max(chart.fy(0) - chart.fy(v), 0), fill: entry.colour, opacity: 0.75 })); });
    chart.root.append(svg("line", { class: "cursor", x1: chart.fx(0), x2: chart.fx(1), y1: chart.fy(1), y2: chart.fy(1) }));
    box.append(chart.root);
  }
  function drawCoverage(box, item, entry) {
    const chart = frame(box, { xRange: [0, 1], yRange: [0, 1], logX: false, height: 170, yTicks: 4, title: `Coverage of ${entry.name}`, xLabel: "promised coverage of central intervals",
      description: data.levels.map((l, i) => `${Math.round(100 * l)} %: ${(100 * item.coverage[i]).toFixed(1)} %`).join(", ") });
    chart.marks.append(svg("line", { class: "cursor", x1: chart.fx(0), y1: chart.fy(0), x2: chart.fx(1), y2: chart.fy(1) }));
    const xs = [0, ...data.levels, 1].map(chart.fx), ys = [0, ...item.coverage, 1].map(chart.fy);
    chart.marks.append(svg("path", { class: "series", d: path(xs, ys), stroke: entry.colour }));
    data.levels.forEach((l, i) => chart.marks.append(svg("circle", { cx: chart.fx(l), cy: chart.fy(item.coverage[i]), r: 2.6, fill: entry.colour })));
    box.append(chart.root);
  }
  select.addEventListener("change", draw);
  draw();
  onResize(draw);
  document.body.dataset.ready = "yes";
}

// Statistics ------------------------------------------------------------------------------------------------

function statistics() {
  const draw = () => {
    for (const box of document.querySelectorAll("[data-diagram]")) diagram(box, data.diagrams[box.dataset.diagram]);
    const metric = data.metrics.find((m) => m.key === chosen("target-metric")), targets = data.targets;
    const series = data.entries.map((entry, e) => ({ entry, y: targets.shares[metric.key][e] })).filter((s) => s.y);
    if (targets.grid.length > 1 && series.length) lineChart(find("targets"), { series, x: targets.grid, yRange: [0, 1.02], larger: true, height: 320, xLabel: "training seconds",
      title: `Share of ${metric.label} targets reached against training seconds`, description: series.map((s) => `${s.entry.name} ${number(s.y[s.y.length - 1], 3)}`).join(", ") });
    else find("targets").textContent = "The store has no curve to draw.";
  };
  for (const table of document.querySelectorAll("table.sortable")) makeSortable(table);
  find("target-metric").addEventListener("change", draw);
  draw();
  onResize(draw);
  document.body.dataset.ready = "yes";
}

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
    const entry = data.entries.find((e) => e.name === name), onLeft = i < left, row = onLeft ? i : count - 1 - i, y = first + row * 19 + 10, x = fx(item.ranks[i]);
    const end = onLeft ? side - 8 : width - side + 8;
    root.append(svg("path", { d: `M${x} ${axis}V${y}H${end}`, fill: "none", stroke: entry.colour, "stroke-width": 1.6 }),
      svg("text", { class: "strong", x: onLeft ? end - 4 : end + 4, y: y + 4, "text-anchor": onLeft ? "end" : "start" }, svg("title", {}, name), `${short(name)} `, svg("tspan", { opacity: 0.65 }, item.ranks[i].toFixed(2))));
  });
  box.append(root);
}

// Functions -------------------------------------------------------------------------------------------------

function functions() {
  const select = find("dataset"), box = find("functions");
  data.panels.forEach((panel, i) => select.append(html("option", { value: i }, panel.dataset)));
  const kinds = [["fan", "Predictive quantiles and data"], ["samples", "Predictive samples of y"], ["draws", "Draws of the function"], ["prior", "Draws of the prior"], ["inducing", "Inducing inputs during training"]];
  const draw = () => {
    box.replaceChildren();
    const panel = data.panels[+select.value];
    for (const [kind, title] of kinds) {
      const columns = panel.columns.filter((c) => has(c, kind));
      if (!columns.length) continue;
      const row = html("div", { class: "columns" });
      box.append(html("h2", {}, title), row);
      // All columns first: a chart takes the width that its column has when it is drawn.
      const plots = columns.map((column) => {
        const plot = html("div", { class: "plot" }), entry = data.entries.find((e) => e.name === column.entry);
        row.append(html("div", {}, html("h3", {}, ...entryLabel(entry)), plot));
        return { plot, column, entry };
      });
      for (const { plot, column, entry } of plots) {
        if (kind === "inducing") drawInducing(plot, column, entry, panel); else drawPanel(plot, column, entry, panel, kind);
      }
    }
  };
  const has = (c, kind) => ({ fan: c.quantiles.length, samples: c.samples.length, draws: c.draws.length, prior: c.prior.length, inducing: c.inducing.length })[kind] > 0;
  function drawPanel(plot, column, entry, panel, kind) {
    const prior = kind === "prior";
    const chart = frame(plot, { xRange: panel.x_range, yRange: prior ? panel.prior_range : panel.y_range, logX: false, height: 210, yTicks: 4, title: `${kind} of ${entry.name} on ${panel.dataset}`,
      description: `Split ${column.split}, after training.` });
    const xs = column.x.map(chart.fx), ys = (values) => values.map(chart.fy);
    if (panel.oracle && kind !== "draws" && !prior) panel.oracle.forEach((part) => chart.marks.append(svg("path", { d: bandPath(part.x.map(chart.fx), ys(part.low), ys(part.high)), fill: "currentColor", opacity: 0.13 })));
    if (!prior) panel.train.forEach(([x, y]) => chart.marks.append(svg("circle", { cx: chart.fx(x).toFixed(1), cy: chart.fy(y).toFixed(1), r: 1.1, fill: "currentColor", opacity: 0.28 })));
    if (kind === "fan") {
      const q = column.quantiles;
      for (let i = 0; i < Math.floor(q.length / 2); i += 1) chart.marks.append(svg("path", { d: bandPath(xs, ys(q[i].y), ys(q[q.length - 1 - i].y)), fill: entry.colour, opacity: 0.22 }));
      if (q.length % 2) chart.marks.append(svg("path", { class: "series", d: path(xs, ys(q[(q.length - 1) / 2].y)), stroke: entry.colour }));
    }
    if (kind === "samples") column.samples.forEach((row) => row.forEach((y, i) => chart.marks.append(svg("circle", { cx: xs[i].toFixed(1), cy: chart.fy(y).toFixed(1), r: 1, fill: entry.colour, opacity: 0.55 }))));
    if (kind === "draws" || prior) (prior ? column.prior : column.draws).forEach((row) => chart.marks.append(svg("path", { d: path(xs, ys(row)), fill: "none", stroke: entry.colour, "stroke-width": 1, opacity: 0.6 })));
    plot.append(chart.root);
  }
  function drawInducing(plot, column, entry, panel) {
    const times = column.inducing.map((item) => Math.max(item.train_seconds, 1e-3)), all = column.inducing.flatMap((item) => item.z);
    // Seconds run upwards: the inputs lie on the same horizontal axis as the functions above.
    const wide = rangeOf([...all, ...panel.x_range]), logs = times.map(Math.log10);
    const chart = frame(plot, { xRange: wide, yRange: rangeOf(logs), logX: false, height: 190, yTicks: 3, title: `Inducing inputs of ${entry.name} on ${panel.dataset} during training`, xLabel: "x; upwards: log₁₀ training seconds" });
    const count = Math.min(...column.inducing.map((item) => item.z.length));
    for (let k = 0; k < count; k += 1) chart.marks.append(svg("path", { d: path(column.inducing.map((item) => chart.fx(item.z[k])), logs.map(chart.fy)), fill: "none", stroke: entry.colour, "stroke-width": 1, opacity: 0.7 }));
    column.inducing[column.inducing.length - 1].z.forEach((z) => chart.marks.append(svg("circle", { cx: chart.fx(z), cy: chart.fy(logs[logs.length - 1]), r: 2, fill: entry.colour })));
    plot.append(chart.root);
  }
  select.addEventListener("change", draw);
  draw();
  onResize(draw);
  document.body.dataset.ready = "yes";
}

// Tables only -----------------------------------------------------------------------------------------------

function tables() {
  for (const table of document.querySelectorAll("table.sortable")) makeSortable(table);
  const verdict = find("verdict");
  if (verdict) verdict.addEventListener("change", () => { for (const row of find("lines").tBodies[0].rows) row.hidden = verdict.value !== "" && row.dataset.verdict !== verdict.value; });
  document.body.dataset.ready = "yes";
}

({ leaderboard, convergence, calibration, statistics, functions, tables })[data.page]();
})();
