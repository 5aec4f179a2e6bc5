"use strict";
/* Charts as SVG: axes, lines with bands, values under the pointer, highlight, zoom, legends. */

// Axes ------------------------------------------------------------------------------------------------------------

function niceTicks(low, high, count = 5) {
  const raw = (high - low) / count || 1, power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 2.5, 5, 10].map((m) => m * power).find((s) => s >= raw * 0.999) || power * 10;
  const ticks = [];
  for (let k = Math.ceil(low / step - 1e-9); k * step <= high + step * 1e-9; k += 1) ticks.push(k * step);
  return ticks;
}

function logTicks(low, high) {
  const within = (steps) => {
    const ticks = [];
    for (let k = Math.floor(Math.log10(low)); k <= Math.ceil(Math.log10(high)); k += 1)
      for (const m of steps) if (m * 10 ** k >= low * 0.999 && m * 10 ** k <= high * 1.001) ticks.push(m * 10 ** k);
    return ticks;
  };
  const decades = within([1]), more = within([1, 2, 5]);
  return decades.length >= 2 ? decades : more.length ? more : [low, high];
}

const tickText = (value) => {
  if (value === 0) return "0";
  const size = Math.abs(value);
  return (size >= 1e5 || size < 1e-3 ? value.toExponential(1).replace(".0e", "e").replace("e+", "e") : String(+value.toPrecision(6))).replaceAll("-", "−");
};

const present = (value) => value !== null && Number.isFinite(value);

function path(xs, ys) {
  let text = "", pen = false;
  for (let i = 0; i < xs.length; i += 1) {
    if (!present(ys[i])) { pen = false; continue; }
    text += `${pen ? "L" : "M"}${xs[i].toFixed(1)} ${ys[i].toFixed(1)}`;
    pen = true;
  }
  return text;
}

function bandPath(xs, low, high) {
  const kept = xs.map((_, i) => i).filter((i) => present(low[i]) && present(high[i]));
  if (!kept.length) return "";
  const points = (values, order) => order.map((i) => `${xs[i].toFixed(1)} ${values[i].toFixed(1)}`).join("L");
  return `M${points(high, kept)}L${points(low, [...kept].reverse())}Z`;
}

function rangeOf(values) {
  let low = Infinity, high = -Infinity;
  for (const v of values) if (present(v)) { if (v < low) low = v; if (v > high) high = v; }
  if (low > high) return [0, 1];
  const margin = (high - low) * 0.05 || Math.abs(high) * 0.05 || 0.5;
  return [low - margin, high + margin];
}

let chartCount = 0;

/* Axes of a chart: x in logarithmic seconds or linear, y linear; `marks` keeps curves inside. */
function frame(box, options) {
  const width = Math.max(box.clientWidth, 220), height = options.height || 230, left = 52, right = 10, top = 8, bottom = 34;
  chartCount += 1;
  const id = `chart${chartCount}`, [x0, x1] = options.xRange, log = options.logX !== false;
  let [y0, y1] = options.yRange;
  if (y0 === y1) { y0 -= 0.5; y1 += 0.5; }
  const fx = log ? (v) => left + (Math.log(v / x0) / (Math.log(x1 / x0) || 1)) * (width - left - right) : (v) => left + ((v - x0) / (x1 - x0 || 1)) * (width - left - right);
  const fy = (v) => top + (1 - (v - y0) / (y1 - y0)) * (height - top - bottom);
  const root = svg("svg", { class: "chart", viewBox: `0 0 ${width} ${height}`, height, role: "img", "aria-labelledby": `${id}t ${id}d` },
    svg("title", { id: `${id}t` }, options.title), svg("desc", { id: `${id}d` }, options.description || options.title),
    svg("clipPath", { id: `${id}c` }, svg("rect", { x: left, y: top, width: width - left - right, height: height - top - bottom })));
  for (const tick of options.yTickValues || niceTicks(y0, y1, options.yTicks || 5)) {
    root.append(svg("line", { class: "gridline", x1: left, x2: width - right, y1: fy(tick), y2: fy(tick) }),
      svg("text", { x: left - 6, y: fy(tick) + 3.5, "text-anchor": "end" }, (options.yTickText || tickText)(tick)));
  }
  for (const tick of log ? logTicks(x0, x1) : niceTicks(x0, x1, Math.max(Math.floor(width / 60), 3))) {
    root.append(svg("line", { class: "axis", x1: fx(tick), x2: fx(tick), y1: height - bottom, y2: height - bottom + 4 }),
      svg("text", { x: fx(tick), y: height - bottom + 16, "text-anchor": "middle" }, tickText(tick)));
  }
  root.append(svg("line", { class: "axis", x1: left, x2: width - right, y1: height - bottom, y2: height - bottom }));
  if (options.xLabel) root.append(svg("text", { x: (left + width - right) / 2, y: height - 3, "text-anchor": "middle" }, options.xLabel));
  const marks = svg("g", { "clip-path": `url(#${id}c)` });
  root.append(marks);
  return { root, marks, fx, fy, width, height, left, right, top, bottom, log };
}

// Lines -----------------------------------------------------------------------------------------------------------

/* Lines with bands against a shared grid. series: {entry, y, low, high}. Drag over a part to zoom into it. */
function lineChart(box, options) {
  const zoom = zoomState(box, [options.x[0], options.x[options.x.length - 1]], options.logX !== false, () => lineChart(box, options)), { range, zoomed } = zoom, shown = options.series;
  const inside = options.x.map((x) => x >= range[0] * (1 - 1e-9) && x <= range[1] * (1 + 1e-9));
  const seen = zoomed ? rangeOf(shown.flatMap((s) => s.y.filter((_, i) => inside[i]))) : options.yRange || rangeOf(shown.flatMap((s) => s.y));
  box.replaceChildren();
  const chart = frame(box, { ...options, xRange: range, yRange: seen });
  const xs = options.x.map(chart.fx), scaled = (values) => values.map((v) => (v === null || Number.isNaN(v) ? null : chart.fy(v)));
  for (const s of shown) if (s.low) chart.marks.append(svg("path", { class: "band", d: bandPath(xs, scaled(s.low), scaled(s.high)), fill: s.entry.colour, "data-entry": s.entry.name }));
  for (const s of shown) {
    chart.marks.append(svg("path", { class: "series", d: path(xs, scaled(s.y)), stroke: s.entry.colour, "stroke-dasharray": s.entry.dash.join(" ") || null, "data-entry": s.entry.name }));
    // A curve of one point would be invisible as a line.
    const single = s.y.map((_, i) => i).filter((i) => present(s.y[i]));
    if (single.length === 1) chart.marks.append(svg("circle", { cx: xs[single[0]], cy: chart.fy(s.y[single[0]]), r: 3.5, fill: s.entry.colour, "data-entry": s.entry.name }));
  }
  if (options.extra) options.extra(chart, xs);
  if (present(options.markAt === undefined ? null : options.markAt))
    chart.root.append(svg("line", { class: "cursor", x1: chart.fx(options.markAt), x2: chart.fx(options.markAt), y1: chart.top, y2: chart.height - chart.bottom }));
  box.append(chart.root);
  addCursor(box, chart, { ...options, zoom }, xs, inside);
  addZoom(box, chart, zoom);
  if (options.legend !== false) box.append(figureLegend(box, shown.map((s) => s.entry)));
  box.append(figureDownloads(box, { title: options.title, figure: options.figure, rows: () => chartRows(options), draw: curvePython(shown.map((s) => s.entry), shown.some((s) => s.low)),
    labels: { xlabel: options.xLabel || "", xscale: zoom.log ? "log" : "linear" } }));
}

/* One curve in full, the others faded; null shows all. */
function highlight(box, name) {
  for (const mark of box.querySelectorAll("[data-entry]")) mark.classList.toggle("faded", name !== null && mark.dataset.entry !== name);
}

function figureLegend(box, entries) {
  const list = html("ul", { class: "key" });
  for (const entry of entries) {
    const item = html("li", { "data-entry": entry.name, title: entry.name }, swatch(entry), entry.name);
    item.addEventListener("pointerenter", () => highlight(box, entry.name));
    item.addEventListener("pointerleave", () => highlight(box, null));
    list.append(item);
  }
  return list;
}

/* Buttons that switch entries on and off on a whole page; the address remembers them. */
function toggles(container, hidden, changed) {
  for (const entry of data.entries) {
    const button = html("button", { type: "button", "aria-pressed": String(!hidden.has(entry.name)), title: entry.name, "data-entry": entry.name }, ...entryLabel(entry, false));
    button.addEventListener("click", () => {
      if (hidden.has(entry.name)) hidden.delete(entry.name); else hidden.add(entry.name);
      for (const twin of document.querySelectorAll(".legend button[data-entry]")) twin.setAttribute("aria-pressed", String(!hidden.has(twin.dataset.entry)));
      address.set({ hidden: hidden.size ? [...hidden] : null });
      changed();
    });
    container.append(button);
  }
}

// Values under the pointer ----------------------------------------------------------------------------------------

const MOST_TIP_ROWS = 14;
let tip = null;

function showTip(box, chart, title, rows, x) {
  if (!tip) { tip = html("div", { class: "tip", role: "status" }); document.body.append(tip); }
  const cut = rows.length > MOST_TIP_ROWS ? [html("div", { class: "cut" }, `and ${rows.length - MOST_TIP_ROWS} more`)] : [];
  tip.replaceChildren(html("strong", {}, title),
    ...rows.slice(0, MOST_TIP_ROWS).map((r) => html("div", {}, html("span", {}, swatch(r.s.entry), r.s.entry.name), html("span", {}, number(r.v)))), ...cut);
  tip.hidden = false;
  const rectangle = box.getBoundingClientRect(), pointer = rectangle.left + x * (rectangle.width / chart.width), room = document.documentElement.clientWidth;
  const left = x > chart.width / 2 ? pointer - tip.offsetWidth - 10 : pointer + 10;
  tip.style.top = `${rectangle.top + window.scrollY + 10}px`;
  tip.style.left = `${window.scrollX + Math.max(Math.min(left, room - tip.offsetWidth - 4), 4)}px`;
}

function addCursor(box, chart, options, xs, inside) {
  const line = svg("line", { class: "cursor", y1: chart.top, y2: chart.height - chart.bottom, visibility: "hidden" });
  chart.root.append(line);
  chart.root.setAttribute("tabindex", "0");
  const within = xs.map((_, i) => i).filter((i) => inside[i]);
  let place = within.length - 1;
  const show = (next, y) => {
    place = Math.min(Math.max(next, 0), within.length - 1);
    const i = within[place];
    line.setAttribute("x1", xs[i]); line.setAttribute("x2", xs[i]); line.setAttribute("visibility", "visible");
    const rows = options.series.map((s) => ({ s, v: s.y[i] })).filter((r) => present(r.v));
    const near = y === undefined ? null : rows.reduce((best, r) => { const gap = Math.abs(chart.fy(r.v) - y); return gap < (best ? best.gap : 24) ? { r, gap } : best; }, null);
    highlight(box, near ? near.r.s.entry.name : null);
    rows.sort((a, b) => (options.larger ? b.v - a.v : a.v - b.v));
    showTip(box, chart, options.xText ? options.xText(i) : seconds(options.x[i]), rows, xs[i]);
  };
  const hide = () => { line.setAttribute("visibility", "hidden"); highlight(box, null); if (tip) tip.hidden = true; };
  const point = (event) => {
    const rectangle = chart.root.getBoundingClientRect(), scale = chart.width / rectangle.width, x = (event.clientX - rectangle.left) * scale;
    let best = 0;
    within.forEach((i, k) => { if (Math.abs(xs[i] - x) < Math.abs(xs[within[best]] - x)) best = k; });
    show(best, (event.clientY - rectangle.top) * scale);
  };
  chart.root.addEventListener("pointermove", point);
  chart.root.addEventListener("pointerdown", point); // a finger does not hover
  chart.root.addEventListener("pointerleave", (event) => { if (event.pointerType !== "touch") hide(); });
  chart.root.addEventListener("blur", hide);
  chart.root.addEventListener("keydown", (event) => {
    const steps = { ArrowLeft: place - 1, ArrowRight: place + 1, Home: 0, End: within.length - 1 };
    if (event.key === "Escape") hide();
    else if (event.key in steps) { show(steps[event.key]); event.preventDefault(); }
    else if (event.key === "+" || event.key === "-") { zoomBy(options.zoom, options.x[within[place]], event.key === "+"); box.querySelector("svg.chart").focus(); }
  });
}

// Zoom ------------------------------------------------------------------------------------------------------------

const zoomKey = (box) => (box.id || box.dataset.id ? `zoom-${box.id || box.dataset.id}` : null);

/* The part of `whole` that is shown: what the address says, or everything. */
function zoomOf(box, whole) {
  const told = zoomKey(box) ? address.get(zoomKey(box)) : box.dataset.zoom;
  const range = told ? told.split("to").map(Number) : [];
  return range.length === 2 && range[0] < range[1] && range.every(Number.isFinite) ? [Math.max(range[0], whole[0]), Math.min(range[1], whole[1])] : whole;
}

function keepZoom(box, range) {
  const text = range ? range.map((v) => +v.toPrecision(5)).join("to") : null;
  if (zoomKey(box)) address.set({ [zoomKey(box)]: text }); else if (text) box.dataset.zoom = text; else delete box.dataset.zoom;
}

/* What addZoom needs: the range shown, the whole one, and `to(range)`, which remembers a range (null: all) and draws again. */
function zoomState(box, whole, log, draw) {
  const range = zoomOf(box, whole), zoomed = range[0] !== whole[0] || range[1] !== whole[1];
  return { range, whole, log, zoomed, to: (next) => { keepZoom(box, next); draw(); } };
}

function zoomBy(zoom, centre, closer) {
  const scale = closer ? 0.5 : 2, [low, high] = zoom.range;
  const moved = (edge) => (zoom.log ? centre * (edge / centre) ** scale : centre + (edge - centre) * scale);
  const range = [Math.max(moved(low), zoom.whole[0]), Math.min(moved(high), zoom.whole[1])];
  zoom.to(range[0] <= zoom.whole[0] && range[1] >= zoom.whole[1] ? null : range);
}

/* Drag over a part of the chart to see only that; a button shows all again. */
function addZoom(box, chart, zoom, words = "Show all times") {
  const value = (x) => { const share = (x - chart.left) / (chart.width - chart.left - chart.right), [low, high] = zoom.range; return zoom.log ? low * (high / low) ** share : low + share * (high - low); };
  const at = (event) => { const rectangle = chart.root.getBoundingClientRect(); return Math.min(Math.max((event.clientX - rectangle.left) * (chart.width / rectangle.width), chart.left), chart.width - chart.right); };
  const area = svg("rect", { class: "brush", y: chart.top, height: chart.height - chart.top - chart.bottom, visibility: "hidden" });
  chart.root.append(area);
  let from = null;
  chart.root.addEventListener("pointerdown", (event) => { if (event.pointerType === "mouse") from = at(event); });
  chart.root.addEventListener("pointermove", (event) => {
    if (from === null) return;
    const to = at(event);
    area.setAttribute("x", Math.min(from, to)); area.setAttribute("width", Math.abs(to - from)); area.setAttribute("visibility", "visible");
  });
  chart.root.addEventListener("pointerup", (event) => {
    const start = from, to = at(event);
    from = null;
    area.setAttribute("visibility", "hidden");
    if (start !== null && Math.abs(to - start) > 12) zoom.to([value(Math.min(start, to)), value(Math.max(start, to))]);
  });
  if (!zoom.zoomed) return;
  const button = html("button", { type: "button", class: "unzoom" }, words);
  button.addEventListener("click", () => zoom.to(null));
  box.prepend(button);
}

// Numbers of a chart ----------------------------------------------------------------------------------------------

function chartRows(options) {
  const rows = [["entry", "x", "y", "low", "high"]], text = (v) => (present(v === undefined ? null : v) ? v : "");
  for (const s of options.series) options.x.forEach((x, i) => { if (present(s.y[i])) rows.push([s.entry.name, x, s.y[i], s.low ? text(s.low[i]) : "", s.high ? text(s.high[i]) : ""]); });
  return rows;
}
