"use strict";
(() => {
const board = data.board, entries = data.entries, all = makeBoard(board, data.metrics, data.tails, data.nemenyi), { width } = all;
const state = { metric: null, time: width - 1, picked: null, datasets: new Set(data.datasets.map((_, i) => i)), text: "", sort: null, scoreSort: null };

// What is chosen --------------------------------------------------------------------------------------------------

const metricNamed = (key) => data.metrics.find((m) => m.key === key);
const onNow = () => (state.picked ? [...state.picked] : board.ranked[state.metric]).slice().sort((a, b) => a - b);
const timeNow = () => (all.hasCurve(state.metric) ? state.time : width - 1);
const timeText = () => (timeNow() === width - 1 ? "at the end of the budget" : `after ${seconds(board.grid[state.time])} of training`);

/* Python's numbers while nothing is chosen, the browser's own otherwise. */
function compute() {
  const result = all.compute(metricNamed(state.metric), onNow(), state.datasets, timeNow()), told = board.standings[state.metric];
  if (state.picked || timeNow() < width - 1 || state.datasets.size < data.datasets.length || !told) return result;
  const column = (name) => result.on.map((e) => told[e][name]);
  return { ...result, meanRank: column("mean_rank"), rankOfMeans: column("rank_of_means"), tiers: column("tier"), interval: result.on.map((e) => (told[e].low === null ? null : [told[e].low, told[e].high])) };
}

function readAddress() {
  const named = (list, names) => list.map((name) => names.indexOf(name)).filter((i) => i >= 0);
  const picked = address.list("entries"), datasets = address.list("datasets"), sort = address.list("sort"), scoreSort = address.list("sort-scores");
  if (picked) state.picked = new Set(named(picked, entries.map((e) => e.name)));
  if (datasets) state.datasets = new Set(named(datasets, data.datasets));
  if (sort) state.sort = [+sort[0], sort[1] === "up"];
  if (scoreSort) state.scoreSort = [+scoreSort[0], scoreSort[1] === "up"];
  state.text = (address.get("find") || "").toLowerCase();
  const time = parseSeconds(address.get("time") || "");
  if (time > 0) state.time = indexOfTime(time);
}

const sortText = (sort) => (sort ? [sort[0], sort[1] ? "up" : "down"] : null);
function writeAddress() {
  address.set({ entries: state.picked ? [...state.picked].map((e) => entries[e].name) : null, find: state.text || null, sort: sortText(state.sort), "sort-scores": sortText(state.scoreSort),
    datasets: state.datasets.size < data.datasets.length ? [...state.datasets].map((d) => data.datasets[d]) : null, time: state.time < width - 1 ? `${+board.grid[state.time].toPrecision(4)} s` : null });
}

/* The last grid point that is not later; beyond the grid is the whole budget. */
function indexOfTime(time) {
  if (time > board.grid[width - 2] * 1.001) return width - 1;
  let index = 0;
  board.grid.forEach((t, i) => { if (t <= time * 1.001) index = i; });
  return index;
}

// Tables ----------------------------------------------------------------------------------------------------------

const HEADS = [["entry", ""], ["tier", "Nemenyi"], ["mean rank", "over dataset × split"], ["95 % interval", "bootstrap"], ["rank of means", "over data sets"], ["failed", "cells"],
  ["no result yet", "at this time"], ["CPU seconds", "whole budget"], ["predict", "CPU s per 1,000 rows"], ["memory", "MB, whole budget"]];

function costOf(e) {
  const found = { cells: 0, failed: 0, waiting: 0 }, total = [0, 0, 0], counts = [0, 0, 0];
  board.dataset_of.forEach((d, b) => {
    if (!state.datasets.has(d) || board.ran[e * board.num_blocks + b] !== "1") return;
    found.cells += 1;
    if (board.failed[e * board.num_blocks + b] === "1") found.failed += 1;
    else if (all.known(state.metric, e, b) && Number.isNaN(all.at(state.metric, e, b, timeNow()))) found.waiting += 1;
  });
  for (const d of state.datasets) (board.cost[e][d] || []).forEach(([sum, count], i) => { total[i] += sum; counts[i] += count; });
  const [cpu, predict, memory] = total.map((sum, i) => (counts[i] ? sum / counts[i] : NaN));
  return { ...found, cpu, predict, memory };
}

function boardRow(entry, e, result) {
  const i = result.on.indexOf(e), on = i >= 0, cost = costOf(e), interval = on ? result.interval[i] : null;
  const box = html("input", { type: "checkbox", "aria-label": `rank ${entry.name}` });
  box.checked = on;
  box.addEventListener("change", () => { state.picked = new Set(onNow()); if (box.checked) state.picked.add(e); else state.picked.delete(e); draw(); focusBox(e); });
  const cells = [[on ? result.tiers[i] : null, on ? String(result.tiers[i] ?? "–") : "–"], [on ? result.meanRank[i] : null, on && result.blocks.length ? result.meanRank[i].toFixed(2) : "–"],
    [interval ? interval[0] : null, interval ? `${interval[0].toFixed(2)} to ${interval[1].toFixed(2)}` : "–"], [on ? result.rankOfMeans[i] : null, on && result.sets.length ? result.rankOfMeans[i].toFixed(2) : "–"],
    [cost.failed, cost.failed ? `${cost.failed} / ${cost.cells}` : "0"], [cost.waiting, String(cost.waiting)], [cost.cpu, number(cost.cpu, 3)], [cost.predict, number(cost.predict, 3)], [cost.memory, number(cost.memory, 3)]];
  const row = html("tr", { class: on ? null : "off", "data-entry": entry.name }, html("td", { class: "entry", title: entry.name }, box, " ", ...entryLabel(entry)));
  cells.forEach(([value, text], column) => row.append(html("td", { "data-value": value === null || value === undefined || Number.isNaN(value) ? "" : value, class: column === 4 && cost.failed ? "bad" : null }, text)));
  row.hidden = !entry.name.toLowerCase().includes(state.text);
  row.entryIndex = e;
  row.place = on ? result.meanRank[i] : Infinity;
  return row;
}

function drawBoard(result) {
  const table = find("board"), rows = entries.map((entry, e) => boardRow(entry, e, result));
  rows.sort((a, b) => (a.place === b.place ? a.entryIndex - b.entryIndex : a.place - b.place));
  table.tBodies[0].replaceChildren(...rows);
  if (state.sort) sortBy(table, state.sort[0], state.sort[1]);
  find("board-caption").textContent = `${result.metric.label} (${result.metric.direction}), ${timeText()}: ${counted(result.blocks.length, "dataset × split block")} of ${counted(result.sets.length, "data set")}, `
    + `${counted(result.on.length, "entry", "entries")} ranked.`;
}

function focusBox(e) {
  const row = [...find("board").tBodies[0].rows].find((r) => r.entryIndex === e);
  if (row) row.querySelector("input").focus();
}

function drawScores(result) {
  const table = find("scores"), head = html("tr", {}, html("th", { scope: "col", class: "entry" }, "entry"));
  for (const d of result.sets) head.append(html("th", { scope: "col", title: data.datasets[d] }, data.datasets[d]));
  table.tHead.replaceChildren(head);
  const order = result.on.map((e, i) => [e, result.meanRank[i]]).sort((a, b) => a[1] - b[1]).map(([e]) => e);
  const marks = result.sets.map((d) => { const found = order.map((e) => result.means.get(e).get(d)); return marksOf(found.map((m) => (m && !m.broken ? m.mean : NaN)), found.map((m) => !m || m.missing > 0), result.metric.larger); });
  table.tBodies[0].replaceChildren(...order.map((e, place) => {
    const row = html("tr", { "data-entry": entries[e].name }, html("td", { class: "entry", title: entries[e].name }, ...entryLabel(entries[e])));
    result.sets.forEach((d, column) => {
      const m = result.means.get(e).get(d);
      const text = !m || Number.isNaN(m.mean) ? (m && m.missing ? "failed" : "–") : withError(m.mean, m.error, m.splits) + (m.missing ? " †" : "");
      row.append(html("td", { class: marks[column][place] || (m && m.missing ? "imputed" : null), "data-value": m && Number.isFinite(m.mean) ? m.mean : "", title: m && m.missing ? `${m.missing} without a result` : null }, text));
    });
    row.hidden = !entries[e].name.toLowerCase().includes(state.text);
    return row;
  }));
  makeSortable(table, (column, ascending) => { state.scoreSort = [column, ascending]; writeAddress(); });
  if (state.scoreSort && table.tHead.rows[0].cells[state.scoreSort[0]]) sortBy(table, ...state.scoreSort);
  find("scores-caption").textContent = `${result.metric.label}: ${result.metric.explanation}. Mean ± standard error over splits (sd/√splits; the splits share training rows, so it is too small to compare entries with), `
    + `${timeText()}, over the ${counted(result.blocks.length, "dataset × split block")} that every ranked entry has finished; ${result.metric.direction}. Best in bold on green, second underlined; equal means share a mark. `
    + `† contains failed cells or cells without a result yet, ${board.constant === null ? "which are left out of the mean" : "replaced by the score of constant"}; it gets no mark.`;
}

// Charts ----------------------------------------------------------------------------------------------------------

const markAt = () => (timeNow() < width - 1 ? board.grid[state.time] : null);
const noCurve = (box) => { box.textContent = "There is no curve of this score to draw."; };

function drawRankChart(result) {
  if (width < 3 || !all.hasCurve(state.metric)) { noCurve(find("rank-chart")); return; }
  const series = result.on.map((e) => ({ entry: entries[e], y: [] }));
  for (let t = 0; t < width - 1; t += 1) {
    const rows = all.rankRows(result.metric, result.on, result.blocks, t);
    result.on.forEach((_, i) => series[i].y.push(rows.length ? average(rows.map((row) => row[i])) : null));
  }
  lineChart(find("rank-chart"), { series, x: board.grid, title: `Mean rank in ${result.metric.label} against training seconds`, xLabel: "training seconds", height: 300, figure: `rank-over-time-${result.metric.key}`,
    markAt: markAt(), yRange: [0.8, Math.max(result.on.length, 2) + 0.2], description: `One line per entry. At the end: ${series.map((s) => `${s.entry.name} ${number(s.y[width - 2], 3)}`).join(", ")}.` });
}

/* 0: the score of constant, 1: the best final score of any entry, within each block. */
function qualities(result) {
  const { key } = result.metric, sign = result.metric.larger ? 1 : -1, end = width - 1, sums = result.on.map(() => new Array(end).fill(0));
  let count = 0;
  for (const b of result.blocks) {
    const finals = result.on.map((e) => all.at(key, e, b, end)).filter((v) => !Number.isNaN(v)).map((v) => v * sign), best = Math.max(...finals);
    let floor = board.constant !== null && all.known(key, board.constant, b) ? all.at(key, board.constant, b, end) * sign : NaN;
    if (Number.isNaN(floor)) floor = Math.min(...finals);
    if (!(best > floor)) continue;
    count += 1;
    result.on.forEach((e, i) => { for (let t = 0; t < end; t += 1) {
      const v = all.at(key, e, b, t) * sign;
      sums[i][t] += Number.isNaN(v) ? 0 : Math.min(Math.max((v - floor) / (best - floor), 0), 1); } });
  }
  return result.on.map((e, i) => ({ entry: entries[e], y: sums[i].map((v) => (count ? v / count : null)) }));
}

function drawFront(result) {
  if (width < 3 || !all.hasCurve(state.metric)) { noCurve(find("front-chart")); find("front-caption").textContent = ""; return; }
  const series = qualities(result), leader = board.grid.map((_, t) => series.reduce((best, s) => (s.y[t] > (best === null ? 0 : best.y[t]) ? s : best), null));
  lineChart(find("front-chart"), { series, x: board.grid, title: `Quality in ${result.metric.label} against training seconds`, xLabel: "training seconds", height: 300, larger: true, yRange: [-0.02, 1.02], markAt: markAt(),
    extra: (chart, xs) => chart.marks.prepend(svg("path", { id: "front", d: path(xs, leader.map((s, t) => (s ? chart.fy(s.y[t]) : null))), fill: "none", stroke: "currentColor", opacity: 0.16, "stroke-width": 9, "stroke-linecap": "round" })) });
  const names = [];
  leader.forEach((s, t) => { if (s && (!names.length || names[names.length - 1][0] !== s.entry.name)) names.push([s.entry.name, board.grid[t]]); });
  find("front-caption").textContent = `0 is ${board.constant === null ? "the worst final score" : "the score of constant"}, 1 the best final score of any entry, within each dataset × split. The wide line is the front: `
    + `${names.map(([name, t]) => `${name} from ${seconds(t)}`).slice(0, 8).join(", ") || "nobody is better than that yet"}${names.length > 8 ? ", and more after that" : ""}.`;
}

function draw(everything = true) {
  const result = compute();
  drawBoard(result);
  drawScores(result);
  if (everything) { drawRankChart(result); drawFront(result); }
  writeAddress();
  ready();
}
const drawLater = debounce(() => draw(), 60);

// Controls --------------------------------------------------------------------------------------------------------

function label() {
  const text = timeNow() === width - 1 ? "full budget" : seconds(board.grid[state.time]), slider = find("budget");
  find("budget-text").textContent = text;
  find("time").value = timeNow() === width - 1 ? "" : text;
  slider.value = state.time; slider.setAttribute("aria-valuetext", text);
  slider.disabled = find("time").disabled = !all.hasCurve(state.metric);
}

function prepareControls() {
  const select = find("more"), choose = (key) => { state.metric = key; label(); };
  const segments = [...find("metric").querySelectorAll("input")].map((input) => input.value);
  const told = address.get("metric");
  choose(metricNamed(told) ? told : chosen("metric"));
  const show = () => { if (segments.includes(state.metric)) find("metric").querySelector(`input[value=${state.metric}]`).checked = true; if (select) select.value = segments.includes(state.metric) ? "" : state.metric; };
  const changed = (key) => { choose(key); show(); address.set({ metric: key === data.first_metric ? null : key }); draw(); };
  show();
  find("metric").addEventListener("change", () => changed(chosen("metric")));
  if (select) select.addEventListener("change", () => changed(select.value || chosen("metric")));
  find("budget").addEventListener("input", () => { state.time = +find("budget").value; label(); draw(false); drawLater(); });
  find("time").addEventListener("change", () => { const time = parseSeconds(find("time").value); state.time = time > 0 ? indexOfTime(time) : width - 1; label(); draw(); });
  find("filter").value = address.get("find") || "";
  find("filter").addEventListener("input", () => { state.text = find("filter").value.trim().toLowerCase(); draw(false); });
  data.datasets.forEach((name, d) => {
    const button = html("button", { type: "button", "aria-pressed": String(state.datasets.has(d)), title: name }, name);
    button.addEventListener("click", () => { if (!state.datasets.delete(d)) state.datasets.add(d); button.setAttribute("aria-pressed", String(state.datasets.has(d))); draw(); });
    find("datasets").append(button);
  });
}

find("board").tHead.rows[0].replaceChildren(...HEADS.map(([name, small], i) => html("th", { scope: "col", class: i ? null : "entry" }, name, ...(small ? [html("small", {}, small)] : []))));
makeSortable(find("board"), (column, ascending) => { state.sort = [column, ascending]; writeAddress(); });
find("budget").max = width - 1;
readAddress();
prepareControls();
prepareTables();
draw();
onResize(() => draw());
})();
