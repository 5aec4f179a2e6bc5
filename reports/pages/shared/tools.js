"use strict";
/* What every page uses: its data, elements, numbers, the address. Data comes from the JSON in the page; names are only ever set as text. */
const data = JSON.parse(document.getElementById("data").textContent);
const find = (id) => document.getElementById(id);
const NAMESPACE = "http://www.w3.org/2000/svg";

function filled(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) if (value !== null && value !== undefined) node.setAttribute(name, value);
  node.append(...children);
  return node;
}
const html = (tag, attributes = {}, ...children) => filled(document.createElement(tag), attributes, children);
const svg = (tag, attributes = {}, ...children) => filled(document.createElementNS(NAMESPACE, tag), attributes, children);

// Numbers, as numbers.py prints them ------------------------------------------------------------------------------

function number(value, digits = 4) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  if (!Number.isFinite(value)) return value > 0 ? "∞" : "−∞";
  const size = Math.abs(value);
  let text;
  if (size && (size < 1e-3 || size >= 1e6)) text = value.toExponential(Math.max(digits - 1, 0));
  else text = value.toFixed(Math.min(Math.max(digits - 1 - (size ? Math.floor(Math.log10(size)) : 0), 0), digits));
  return text.replace("e+", "e").replaceAll("-", "−");
}

const SPLITS_FOR_TWO_DIGITS = 12;

function withError(mean, error, count = Infinity) {
  if (!Number.isFinite(error) || error === 0 || !Number.isFinite(mean)) return number(mean);
  const digits = count >= SPLITS_FOR_TWO_DIGITS ? 2 : 1, exponent = Math.floor(Math.log10(error)), scale = Math.max(Math.abs(mean), error);
  if (scale < 1e-3 || scale >= 1e6) {
    const power = Math.floor(Math.log10(scale)), decimals = Math.min(Math.max(power - exponent + digits - 1, 1), 5);
    return `(${(mean / 10 ** power).toFixed(decimals)} ± ${(error / 10 ** power).toFixed(decimals)})e${power}`.replaceAll("-", "−");
  }
  const decimals = Math.min(Math.max(digits - 1 - exponent, 0), 6);
  return `${mean.toFixed(decimals)} ± ${error.toFixed(decimals)}`.replaceAll("-", "−");
}

const counted = (count, one, many = `${one}s`) => `${count} ${count === 1 ? one : many}`;
const seconds = (value) => (value < 1e-3 ? `${+(value * 1e6).toPrecision(3)} µs` : value < 1 ? `${+(value * 1e3).toPrecision(3)} ms`
  : value < 120 ? `${+value.toPrecision(3)} s` : value < 7200 ? `${+(value / 60).toPrecision(3)} min` : `${+(value / 3600).toPrecision(3)} h`);

/* "1.5 s", "200ms", "2 min" or a bare number of seconds; NaN for anything else. */
function parseSeconds(text) {
  const match = /^\s*([\d.]+(?:e[+-]?\d+)?)\s*(µs|us|ms|s|min|m|h)?\s*$/i.exec(text);
  return match ? parseFloat(match[1]) * { "µs": 1e-6, us: 1e-6, ms: 1e-3, s: 1, min: 60, m: 60, h: 3600 }[(match[2] || "s").toLowerCase()] : NaN;
}

function floats(text) {
  const bytes = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  return new Float32Array(bytes.buffer);
}

function quantile(sorted, p) {
  const position = p * (sorted.length - 1), low = Math.floor(position);
  return sorted[low] + (position - low) * (sorted[Math.min(low + 1, sorted.length - 1)] - sorted[low]);
}

// The address holds what the page shows, so that a link shows it to somebody else; it works from disk ---------------

const address = {
  read: () => new URLSearchParams(location.hash.slice(1)),
  get: (name) => address.read().get(name),
  list: (name) => { const text = address.get(name); return text === null ? null : text === "" ? [] : text.split("~"); },
  /* null takes a name out; a list is joined. */
  set(values) {
    const found = address.read();
    for (const [name, value] of Object.entries(values)) { if (value === null) found.delete(name); else found.set(name, Array.isArray(value) ? value.join("~") : value); }
    const text = String(found);
    if (text !== location.hash.slice(1)) history.replaceState(null, "", text ? `#${text}` : location.href.split("#")[0]);
  },
};

/* A group of radio buttons that the address remembers; the first one is the default. */
function radios(id, changed) {
  const box = find(id), inputs = [...box.querySelectorAll("input")], normal = box.querySelector("input:checked").value, told = address.get(id);
  const wanted = inputs.find((input) => input.value === told);
  if (wanted) wanted.checked = true;
  box.addEventListener("change", () => { address.set({ [id]: chosen(id) === normal ? null : chosen(id) }); changed(); });
}
const chosen = (id) => find(id).querySelector("input:checked").value;

/* A select that the address remembers. */
function selects(id, changed) {
  const select = find(id), normal = select.value, told = address.get(id);
  if (told !== null && [...select.options].some((option) => option.value === told)) select.value = told;
  select.addEventListener("change", () => { address.set({ [id]: select.value === normal ? null : select.value }); changed(); });
}

// Entries --------------------------------------------------------------------------------------------------------

const entryNamed = (name) => data.entries.find((entry) => entry.name === name);

function swatch(entry) {
  const line = svg("line", { x1: 0, y1: 5, x2: 22, y2: 5, stroke: entry.colour, "stroke-width": 3, "stroke-dasharray": entry.dash.join(" ") || null });
  return svg("svg", { width: 22, height: 10, class: "swatch", "aria-hidden": "true" }, line);
}

/* The entry with its look, a link to its page, its note and a warning. */
function entryLabel(entry, linked = true) {
  const parts = [swatch(entry), linked && entry.page ? html("a", { href: entry.page }, entry.name) : document.createTextNode(entry.name)];
  if (entry.note) parts.push(html("span", { class: "note" }, entry.note));
  if (entry.doubtful) parts.push(html("span", { class: "flag", title: `${counted(entry.doubtful, "cell")} failed the method's own diagnostics`, role: "img",
    "aria-label": "warning: diagnostics failed" }, "⚠"));
  return parts;
}

const datasetLabel = (index) => (data.dataset_pages && data.dataset_pages[index] ? html("a", { href: data.dataset_pages[index] }, data.datasets[index]) : document.createTextNode(data.datasets[index]));

// Drawing again ---------------------------------------------------------------------------------------------------

const debounce = (run, wait) => { let timer; return () => { clearTimeout(timer); timer = setTimeout(run, wait); }; };

function onResize(draw) {
  let width = window.innerWidth;
  window.addEventListener("resize", debounce(() => { if (window.innerWidth !== width) { width = window.innerWidth; draw(); } }, 150));
}

const ready = () => { document.body.dataset.ready = "yes"; };
