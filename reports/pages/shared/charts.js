"use strict";
/* Charts as SVG: axes, lines with bands, values under the pointer. */

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
