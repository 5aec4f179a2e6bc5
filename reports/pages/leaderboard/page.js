"use strict";
(() => {
function randomStream(seed) {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let t = Math.imul(state ^ (state >>> 15), 1 | state);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  };
}
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
    ready();
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
})();
