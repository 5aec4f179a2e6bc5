"use strict";
(() => {
const metricNow = () => data.metrics.find((m) => m.key === chosen("metric"));

/* The duel of two entries seen from `a`; null where there is none. */
function duelOf(a, b) {
  const list = data.duels[chosen("metric")], found = list.find((d) => (d.a === a && d.b === b) || (d.a === b && d.b === a));
  if (!found || found.a === a) return found || null;
  const turned = (list3) => [...list3].reverse(), minus = (v) => (v === null ? null : -v);
  return { ...found, a, b, record: turned(found.record), odds: turned(found.odds), population: turned(found.population),
    sets: found.sets.map(([d, mean, low, high, wins, losses, splits, needed]) => [d, minus(mean), minus(high), minus(low), losses, wins, splits, needed]) };
}

const percent = (v) => (v === null ? "–" : v > 0.995 ? "> 0.99" : v < 0.005 ? "< 0.01" : v.toFixed(2));
const neededText = (v) => (v === null ? "–" : v === "never" ? "no number" : String(v));

/* One line per data set: difference, its interval, zero and the region of equivalence. */
function drawForest(box, duel) {
  const rows = duel.sets.filter((row) => row[1] !== null), names = rows.map(([d]) => data.datasets[d]), unit = data.units[chosen("metric")];
  const range = rangeOf([0, ...rows.flatMap(([, mean, low, high]) => [mean, low, high])]);
  const short = (name) => (name.length > 9 ? `${name.slice(0, 8)}…` : name);
  box.replaceChildren();
  const chart = frame(box, { xRange: range, yRange: [-0.6, rows.length - 0.4], logX: false, height: 60 + 24 * rows.length, yTickValues: rows.map((_, i) => i), yTickText: (i) => short(names[rows.length - 1 - i]),
    title: `${data.entries[duel.a].name} minus ${data.entries[duel.b].name} in ${metricNow().label}`, xLabel: `A − B${unit ? `, ${unit}` : ""}; right is better for A`,
    description: rows.map(([d, mean]) => `${data.datasets[d]} ${number(mean, 3)}`).join(", ") });
  chart.marks.append(svg("line", { class: "axis", x1: chart.fx(0), x2: chart.fx(0), y1: chart.top, y2: chart.height - chart.bottom }));
  rows.forEach(([, mean, low, high], i) => {
    const y = chart.fy(rows.length - 1 - i), { colour } = data.entries[mean >= 0 ? duel.a : duel.b];
    if (low !== null) chart.marks.append(svg("line", { x1: chart.fx(low), x2: chart.fx(high), y1: y, y2: y, stroke: colour, "stroke-width": 2.5, opacity: 0.55 }));
    chart.marks.append(svg("circle", { cx: chart.fx(mean), cy: y, r: 4, fill: colour }));
  });
  box.append(chart.root);
  box.append(figureDownloads(box, { title: `${data.entries[duel.a].name} minus ${data.entries[duel.b].name} in ${metricNow().label}`, labels: { xlabel: `A − B${unit ? `, ${unit}` : ""}` },
    rows: () => [["data_set", "difference", "low", "high"], ...rows.map(([d, mean, low, high]) => [data.datasets[d], mean, low ?? "", high ?? ""])],
    draw: ["axes.hlines(table[\"data_set\"], table[\"low\"], table[\"high\"], lw=2)", "axes.plot(table[\"difference\"], table[\"data_set\"], \"o\")", "axes.axvline(0, color=\"black\", lw=0.6)"] }));
}

function drawPair() {
  const a = +find("a").value, b = +find("b").value, duel = a === b ? null : duelOf(a, b), names = [a, b].map((e) => data.entries[e].name);
  find("pair-title").textContent = `${names[0]} or ${names[1]}, ${metricNow().label}`;
  if (!duel) {
    find("verdict").textContent = a === b ? "Choose two different entries." : "These two have no common blocks in this score, or one of them is not ranked.";
    for (const id of ["forest", "forest-caption"]) find(id).replaceChildren();
    find("odds").tBodies[0].replaceChildren(); find("sets").tBodies[0].replaceChildren();
    return;
  }
  const [won, tied, lost] = duel.record, wins = duel.sets.reduce((sum, row) => sum + row[4], 0), losses = duel.sets.reduce((sum, row) => sum + row[5], 0), splits = duel.sets.reduce((sum, row) => sum + row[6], 0);
  find("verdict").textContent = `Data sets: ${won} won, ${tied} tied, ${lost} lost by ${names[0]}. Splits: ${wins} won, ${splits - wins - losses} tied, ${losses} lost. `
    + `${names[0]} is better with probability ${percent(duel.odds[0])}, equivalent ${percent(duel.odds[1])}, worse ${percent(duel.odds[2])}.`;
  find("odds").tBodies[0].replaceChildren(...[["signed rank", duel.odds], ["hierarchical", duel.population]].map(([name, odds]) => html("tr", {}, html("td", {}, name), ...odds.map((v) => html("td", {}, percent(v))))));
  find("sets").tBodies[0].replaceChildren(...duel.sets.map(([d, mean, low, high, setWins, setLosses, count, needed]) => html("tr", {}, html("td", {}, datasetLabel(d)), html("td", { "data-value": mean ?? "" }, number(mean, 3)),
    html("td", {}, low === null ? "–" : `${number(low, 3)} to ${number(high, 3)}`), ...[setWins, setLosses, count].map((v) => html("td", {}, String(v))), html("td", { "data-value": typeof needed === "number" ? needed : "" }, neededText(needed)))));
  find("forest-caption").textContent = "Mean difference with its 95 % interval, corrected for overlapping splits; the colour is that of the better entry.";
  drawForest(find("forest"), duel);
}

function drawMatrix() {
  const list = data.duels[chosen("metric")], present = [...new Set(list.flatMap((d) => [d.a, d.b]))], table = find("matrix");
  table.tHead.replaceChildren(html("tr", {}, html("th", { scope: "col", class: "entry" }, "entry"), ...present.map((e) => html("th", { scope: "col", title: data.entries[e].name }, data.entries[e].name))));
  table.tBodies[0].replaceChildren(...present.map((a) => html("tr", {}, html("th", { scope: "row", class: "entry", title: data.entries[a].name }, ...entryLabel(data.entries[a])), ...present.map((b) => {
    const duel = a === b ? null : duelOf(a, b);
    if (!duel) return html("td", {}, "");
    const button = html("button", { type: "button", class: "pick", title: `${data.entries[a].name} or ${data.entries[b].name}` }, percent(duel.odds[0]), html("small", {}, duel.record.join(" / ")));
    button.addEventListener("click", () => { pick(a, b); find("pair-title").scrollIntoView({ block: "start" }); });
    return html("td", { class: duel.odds[0] > 0.95 ? "win" : duel.odds[2] > 0.95 ? "loss" : null }, button);
  }))));
}

function pick(a, b) {
  find("a").value = a; find("b").value = b;
  address.set({ a: data.entries[a].name, b: data.entries[b].name });
  drawPair();
}

const first = data.duels[chosen("metric")][0], named = (id, otherwise) => { const i = data.entries.findIndex((e) => e.name === address.get(id)); return i >= 0 ? i : otherwise; };
for (const id of ["a", "b"]) {
  find(id).append(...data.entries.map((entry, e) => html("option", { value: e }, entry.name)));
  find(id).addEventListener("change", () => pick(+find("a").value, +find("b").value));
}
find("a").value = named("a", first.a); find("b").value = named("b", first.b);
radios("metric", () => { drawPair(); drawMatrix(); });
prepareTables();
drawPair();
drawMatrix();
onResize(drawPair);
ready();
})();
