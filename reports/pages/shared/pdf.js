"use strict";
/* A drawn chart as a PDF of one page: lines, paths, rectangles, circles and text in Helvetica, nothing else. */

// Widths of the characters 32 to 126 of Helvetica, in thousandths of its size.
const HELVETICA = "278 278 355 556 556 889 667 191 333 333 389 584 278 333 278 278 556 556 556 556 556 556 556 556 556 556 278 278 584 584 584 556 1015 667 667 722 722 667 611 778 722 278 500 667 556 833 722 778 667 778 722 667 611 722 667 944 667 667 611 278 278 278 469 556 333 556 556 500 556 556 278 556 556 222 222 500 222 833 556 556 556 556 333 500 278 556 500 722 500 500 500 334 260 334 584".split(" ").map(Number);
// What the font has beyond Latin-1; the minus sign is not in it and becomes a dash of its width.
const WIN_ANSI = { "−": 0x96, "–": 0x96, "—": 0x97, "…": 0x85, "‘": 0x91, "’": 0x92, "“": 0x93, "”": 0x94, "•": 0x95, "†": 0x86, "∞": 0x38, "μ": 0xb5 };
const pdfCode = (character) => WIN_ANSI[character] || (character.codePointAt(0) < 256 ? character.codePointAt(0) : 0x3f);
const pdfWidth = (text, size) => ([...text].reduce((sum, c) => sum + (HELVETICA[pdfCode(c) - 32] || 556), 0) * size) / 1000;
const pdfString = (text) => `(${[...text].map((c) => { const code = pdfCode(c); return code < 32 || code > 126 || "()\\".includes(c) ? `\\${code.toString(8).padStart(3, "0")}` : c; }).join("")})`;
const pdfNumber = (value) => String(+(+value).toFixed(3));

function pdfColour(text) {
  const parts = /rgba?\(([^)]+)\)/.exec(text);
  if (!parts) return null;
  const [r, g, b, a = 1] = parts[1].split(/[\s,/]+/).map(Number);
  return a === 0 ? null : { alpha: a, text: [r, g, b].map((v) => pdfNumber(v / 255)).join(" ") };
}

/* The outline of an element in PDF operators; empty for what has none. */
function pdfOutline(node) {
  const at = (name) => +node.getAttribute(name) || 0, n = (...values) => values.map(pdfNumber).join(" ");
  if (node.tagName === "line") return `${n(at("x1"), at("y1"))} m ${n(at("x2"), at("y2"))} l`;
  if (node.tagName === "rect") return `${n(at("x"), at("y"), at("width"), at("height"))} re`;
  if (node.tagName === "circle") {
    const [x, y, r] = [at("cx"), at("cy"), at("r")], k = 0.5523 * r;
    return `${n(x + r, y)} m ${n(x + r, y + k, x + k, y + r, x, y + r)} c ${n(x - k, y + r, x - r, y + k, x - r, y)} c ${n(x - r, y - k, x - k, y - r, x, y - r)} c ${n(x + k, y - r, x + r, y - k, x + r, y)} c h`;
  }
  let x = 0, y = 0;
  return [...(node.getAttribute("d") || "").matchAll(/([MLHVZ])([^MLHVZ]*)/g)].map(([, command, rest]) => {
    const values = rest.trim().split(/[\s,]+/).map(Number);
    if (command === "Z") return "h";
    if (command === "H") [x] = values; else if (command === "V") [y] = values; else [x, y] = values;
    return `${n(x, y)} ${command === "M" ? "m" : "l"}`;
  }).join(" ");
}

function pdfText(node, style) {
  const size = parseFloat(style.fontSize), anchor = style.textAnchor, copy = node.cloneNode(true);
  copy.querySelectorAll("title").forEach((title) => title.remove());
  const text = copy.textContent, shift = { middle: 0.5, end: 1 }[anchor] || 0, x = +node.getAttribute("x") - shift * pdfWidth(text, size);
  return `BT /F1 ${pdfNumber(size)} Tf 1 0 0 -1 ${pdfNumber(x)} ${pdfNumber(node.getAttribute("y"))} Tm ${pdfString(text)} Tj ET`;
}

/* Operators of an element and what is in it. `opacities` collects the graphics states that are needed. */
function pdfDrawn(node, opacities, inherited = 1) {
  if (["title", "desc", "clipPath", "defs"].includes(node.tagName)) return "";
  const style = getComputedStyle(node), opacity = inherited * parseFloat(style.opacity), clip = /#([\w-]+)/.exec(node.getAttribute("clip-path") || "");
  if (node.children.length && node.tagName !== "text") {
    const area = clip ? `${pdfOutline(node.ownerDocument.getElementById(clip[1]).querySelector("rect"))} W n` : "";
    return `q ${area}\n${[...node.children].map((child) => pdfDrawn(child, opacities, opacity)).join("")}Q\n`;
  }
  const fill = node.tagName === "line" ? null : pdfColour(style.fill), stroke = pdfColour(style.stroke), text = node.tagName === "text";
  const outline = text ? pdfText(node, style) : pdfOutline(node);
  if (!outline || (!fill && !stroke)) return "";
  const alpha = pdfNumber(opacity * (stroke && !fill ? stroke.alpha : fill.alpha)), dash = style.strokeDasharray === "none" ? "" : `[${style.strokeDasharray.replace(/px|,/g, " ")}] 0 d `;
  if (!opacities.includes(alpha)) opacities.push(alpha);
  return `q /A${opacities.indexOf(alpha)} gs ${fill ? `${fill.text} rg ` : ""}${stroke ? `${stroke.text} RG ${pdfNumber(parseFloat(style.strokeWidth))} w ${dash}` : ""}${outline}${text ? "" : fill && stroke ? " B" : fill ? " f" : " S"} Q\n`;
}

function pdfDocument(root) {
  const { width, height } = root.viewBox.baseVal, points = 0.75, opacities = [];
  const content = `q ${points} 0 0 ${-points} 0 ${pdfNumber(height * points)} cm 1 J 1 j\n${[...root.children].map((child) => pdfDrawn(child, opacities)).join("")}Q\n`;
  const states = opacities.map((alpha, i) => `/A${i} << /ca ${alpha} /CA ${alpha} >>`).join(" ");
  const objects = ["<< /Type /Catalog /Pages 2 0 R >>", "<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
    `<< /Type /Page /Parent 2 0 R /MediaBox [0 0 ${pdfNumber(width * points)} ${pdfNumber(height * points)}] /Contents 4 0 R /Resources << /Font << /F1 5 0 R >> /ExtGState << ${states} >> >> >>`,
    `<< /Length ${content.length} >>\nstream\n${content}\nendstream`, "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding >>"];
  let text = "%PDF-1.4\n";
  const places = objects.map((object, i) => { const place = text.length; text += `${i + 1} 0 obj\n${object}\nendobj\n`; return place; }), start = text.length;
  return `${text}xref\n0 ${objects.length + 1}\n0000000000 65535 f \n${places.map((place) => `${String(place).padStart(10, "0")} 00000 n \n`).join("")}trailer\n<< /Size ${objects.length + 1} /Root 1 0 R >>\nstartxref\n${start}\n%%EOF\n`;
}
