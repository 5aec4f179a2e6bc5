"use strict";
/* Ranks, means, intervals and tiers of any choice of entries, data sets and time, by the rules of ranking.py and statistics.py.
   What a page shows before anything is chosen comes from Python; tests compare the two. */

/* What differs by less than six digits is the same score. */
const significant = (value) => (Number.isFinite(value) ? +value.toPrecision(6) : value);

/* Ranks within one row: ties share their mean, NaN shares the last places. */
function rankRow(exact, larger) {
  const scores = exact.map((v) => (Number.isNaN(v) ? -Infinity : (larger ? 1 : -1) * significant(v)));
  const order = scores.map((_, i) => i).sort((i, j) => (scores[j] === scores[i] ? 0 : scores[j] > scores[i] ? 1 : -1));
  const ranks = new Array(scores.length);
  for (let start = 0; start < order.length;) {
    let end = start;
    while (end + 1 < order.length && scores[order[end + 1]] === scores[order[start]]) end += 1;
    for (let k = start; k <= end; k += 1) ranks[order[k]] = (start + end) / 2 + 1;
    start = end + 1;
  }
  return ranks;
}

/* "best" and "second" of one column. Means that stand for missing results (`imputed`) get no mark; equal means share one. */
function marksOf(means, imputed, larger) {
  const values = means.map((v, i) => (imputed[i] || !Number.isFinite(v) ? null : (larger ? 1 : -1) * significant(v)));
  const sorted = values.filter((v) => v !== null).sort((a, b) => b - a);
  if (!sorted.length) return values.map(() => null);
  const tied = sorted.filter((v) => v === sorted[0]).length > 1;
  return values.map((v) => (v === null ? null : v === sorted[0] ? "best" : !tied && v === sorted[1] ? "second" : null));
}

const average = (list) => list.reduce((sum, v) => sum + v, 0) / list.length;

/* The index-th number of the stream mulberry32, as `uniforms` in statistics.py. */
function uniform(index, seed = 1) {
  const state = (seed + Math.imul(index + 1, 0x6d2b79f5)) >>> 0;
  let t = Math.imul(state ^ (state >>> 15), 1 | state);
  t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
  return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
}

/* Two-level bootstrap of the means of rows: data sets are redrawn, then splits within each. `sets`: data set -> its rows. */
function bootstrapMeans(sets, count, numDraws) {
  const largest = Math.max(...sets.map((set) => set.length)), draws = Array.from({ length: count }, () => new Float64Array(numDraws));
  for (let k = 0; k < numDraws; k += 1) {
    const total = new Float64Array(count);
    let weight = 0;
    for (let j = 0; j < sets.length; j += 1) {
      const start = (k * sets.length + j) * (largest + 1), set = sets[Math.floor(uniform(start) * sets.length)];
      for (let i = 0; i < set.length; i += 1) {
        const row = set[Math.floor(uniform(start + 1 + i) * set.length)];
        for (let e = 0; e < count; e += 1) total[e] += row[e];
      }
      weight += set.length;
    }
    for (let e = 0; e < count; e += 1) draws[e][k] = total[e] / weight;
  }
  return draws;
}

/* Percentile intervals, widened for few data sets; null where there are fewer than two. */
function intervalsOf(sets, count, numDraws, tails) {
  const tail = tails[sets.length];
  if (sets.length < 2 || tail === undefined || tail === null) return new Array(count).fill(null);
  return bootstrapMeans(sets, count, numDraws).map((draws) => { draws.sort(); return [quantile(draws, tail), quantile(draws, 1 - tail)]; });
}

function tiersOf(ranks, critical) {
  const order = ranks.map((_, i) => i).sort((i, j) => ranks[i] - ranks[j]), tiers = new Array(ranks.length);
  let tier = 1, leader = ranks[order[0]];
  for (const i of order) { if (ranks[i] - leader > critical) { tier += 1; leader = ranks[i]; } tiers[i] = tier; }
  return tiers;
}

/* The scores of all cells, and what can be computed from a choice of them. */
function makeBoard(board, metrics, tails, nemenyi) {
  const num = board.num_blocks, cache = {}, width = board.grid.length + 1;
  const values = (key) => (cache[key] = cache[key] || floats(board.values[key]));
  const hasCurve = (key) => board.with_curve.includes(key);
  // Score of an entry in a block at a grid point; the last grid point is the end of the budget, the only one that some metrics have.
  const at = (key, e, b, t) => (hasCurve(key) ? values(key)[(e * num + b) * width + t] : values(key)[e * num + b]);
  const known = (key, e, b) => board.known[key][e * num + b] === "1";
  const blocksOf = (key, on, datasets) => board.dataset_of.map((_, b) => b).filter((b) => datasets.has(board.dataset_of[b]) && on.every((e) => known(key, e, b)));
  const rankRows = (metric, on, blocks, time) => blocks.map((b) => rankRow(on.map((e) => at(metric.key, e, b, time)), metric.larger));

  /* Data set -> mean score and its standard error; missing results replaced by the score of constant where there is one. */
  function datasetMeans(metric, e, blocks, time) {
    const groups = new Map();
    for (const b of blocks) {
      const d = board.dataset_of[b], own = at(metric.key, e, b, time), missing = Number.isNaN(own);
      const floor = missing && board.constant !== null && known(metric.key, board.constant, b) ? at(metric.key, board.constant, b, time) : NaN;
      const v = missing ? floor : own;
      if (!groups.has(d)) groups.set(d, { splits: new Map(), missing: 0, broken: false });
      const group = groups.get(d);
      if (missing) group.missing += 1;
      if (Number.isNaN(v)) { group.broken = true; continue; }
      const split = board.split_of[b];
      if (!group.splits.has(split)) group.splits.set(split, []);
      group.splits.get(split).push(v);
    }
    return new Map([...groups].map(([d, group]) => {
      const list = [...group.splits.values()].map(average), mean = list.length ? average(list) : NaN;
      const variance = list.length > 1 ? list.reduce((sum, v) => sum + (v - mean) ** 2, 0) / (list.length - 1) : NaN;
      return [d, { mean, error: Math.sqrt(variance / list.length), missing: group.missing, broken: group.broken, splits: list.length }];
    }));
  }

  /* Ranks, intervals and tiers of the entries `on` over the data sets at a time. */
  function compute(metric, on, datasets, time) {
    const blocks = blocksOf(metric.key, on, datasets), rows = rankRows(metric, on, blocks, time);
    const means = new Map(data.entries.map((_, e) => [e, datasetMeans(metric, e, blocks.filter((b) => known(metric.key, e, b)), time)]));
    const sets = [...new Set(blocks.map((b) => board.dataset_of[b]))];
    const setRanks = sets.map((d) => rankRow(on.map((e) => { const m = means.get(e).get(d); return !m || m.broken ? NaN : m.mean; }), metric.larger));
    const rankOfMeans = on.map((_, i) => average(setRanks.map((row) => row[i]))), groups = sets.map((d) => rows.filter((_, i) => board.dataset_of[blocks[i]] === d));
    const critical = nemenyi[on.length] === undefined ? Infinity : nemenyi[on.length] / Math.sqrt(sets.length);
    return { metric, on, blocks, sets: [...sets].sort((a, b) => a - b), means, rankOfMeans, meanRank: on.map((_, i) => average(rows.map((row) => row[i]))),
      interval: intervalsOf(groups, on.length, board.num_draws, tails), tiers: on.length && sets.length ? tiersOf(rankOfMeans, critical) : [] };
  }
  return { at, known, hasCurve, rankRows, compute, width };
}
