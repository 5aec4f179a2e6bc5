"use strict";
/* What every page uses: its data, elements, numbers. Data comes from the JSON in the page; names are only ever set as text. */
const data = JSON.parse(document.getElementById("data").textContent);
const find = (id) => document.getElementById(id);
const NAMESPACE = "http://www.w3.org/2000/svg";

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

function onResize(draw) {
  let width = window.innerWidth;
  window.addEventListener("resize", debounce(() => { if (window.innerWidth !== width) { width = window.innerWidth; draw(); } }, 150));
}

const ready = () => { document.body.dataset.ready = "yes"; };
