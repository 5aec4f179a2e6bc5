"use strict";
/* Tables that sort and can be taken away as CSV, LaTeX or Markdown. */

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
    if (!numeric) return (ascending ? 1 : -1) * String(a.key).localeCompare(String(b.key));
    const x = typeof a.key === "number" ? a.key : NaN, y = typeof b.key === "number" ? b.key : NaN;
    if (Number.isNaN(x) || Number.isNaN(y)) return (Number.isNaN(x) ? 1 : 0) - (Number.isNaN(y) ? 1 : 0) || 0;
    return ascending ? x - y : y - x;
  };
  body.append(...rows.sort(compare).map((item) => item.row));
  [...table.tHead.rows[0].cells].forEach((cell, index) => {
    if (index === column) cell.setAttribute("aria-sort", ascending ? "ascending" : "descending");
    else cell.removeAttribute("aria-sort");
  });
}

function makeSortable(table, onSort) {
  [...table.tHead.rows[0].cells].forEach((cell, column) => {
    const small = cell.querySelector("small"), button = html("button", { type: "button" });
    while (cell.firstChild && cell.firstChild !== small) button.append(cell.firstChild);
    cell.prepend(button);
    button.addEventListener("click", () => {
      const ascending = cell.getAttribute("aria-sort") !== "ascending";
      sortBy(table, column, ascending);
      if (onSort) onSort(column, ascending);
    });
  });
}

// Taking away -----------------------------------------------------------------------------------------------------

function save(name, text, type = "text/plain") {
  const url = URL.createObjectURL(new Blob([text], { type: `${type};charset=utf-8` }));
  html("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 10000);
}

/* A small group of buttons: [label, file name, () => text, type]. */
function downloadButtons(title, kinds) {
  const box = html("span", { class: "downloads", role: "group", "aria-label": `Download ${title}` });
  for (const [label, name, text, type] of kinds) {
    const button = html("button", { type: "button", title: `Download ${title} as ${label}` }, label);
    button.addEventListener("click", () => save(name, text(), type));
    box.append(button);
  }
  return box;
}

const plainText = (cell) => {
  const copy = cell.cloneNode(true);
  copy.querySelectorAll("details, svg, input").forEach((node) => node.remove());
  copy.querySelectorAll("small, .note, .flag, br").forEach((node) => node.before(" "));
  return copy.textContent.replace(/\s+/g, " ").trim();
};
const tableRows = (table) => [...table.rows].filter((row) => !row.hidden).map((row) => [...row.cells].map(plainText));

const csvCell = (text) => (/[",\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);
const csvText = (rows) => `${rows.map((row) => row.map((cell) => csvCell(String(cell))).join(",")).join("\r\n")}\r\n`;
const tableCsv = (table) => csvText(tableRows(table).map((row) => row.map((cell) => cell.replaceAll("−", "-"))));

const markdownText = (text) => text.replaceAll("\\", "\\\\").replaceAll("|", "\\|").replaceAll("<", "&lt;");
function tableMarkdown(table) {
  const rows = tableRows(table).map((row) => `| ${row.map(markdownText).join(" | ")} |`);
  const [head, ...rest] = rows;
  return [head, `|${" --- |".repeat(table.rows[0].cells.length)}`, ...rest].join("\n") + "\n";
}

const LATEX = { "\\": "\\textbackslash{}", "{": "\\{", "}": "\\}", $: "\\$", "&": "\\&", "#": "\\#", "%": "\\%", _: "\\_", "^": "\\textasciicircum{}", "~": "\\textasciitilde{}",
  "<": "\\textless{}", ">": "\\textgreater{}", "−": "\\ensuremath{-}", "±": "\\ensuremath{\\pm}", "×": "\\ensuremath{\\times}", "†": "\\ensuremath{\\dagger}", "⚠": "(!)", "–": "--" };
const latexText = (text) => [...text].map((c) => LATEX[c] || c).join("");
function tableLatex(table) {
  const marked = (cell) => { const text = latexText(plainText(cell)); return cell.classList.contains("best") ? `\\textbf{${text}}` : cell.classList.contains("second") ? `\\underline{${text}}` : text; };
  const lines = [...table.rows].filter((row) => !row.hidden).map((row) => `${[...row.cells].map(marked).join(" & ")} \\\\`);
  return ["% needs \\usepackage{booktabs}", `\\begin{tabular}{l${"r".repeat(table.rows[0].cells.length - 1)}}`, "\\toprule", lines[0], "\\midrule", ...lines.slice(1), "\\bottomrule", "\\end{tabular}", ""].join("\n");
}

/* Buttons above a table; what they give is what the table shows at that moment. */
function tableDownloads(table, name) {
  const title = table.getAttribute("aria-label") || name;
  const buttons = downloadButtons(`table ${title}`, [["CSV", `${name}.csv`, () => tableCsv(table), "text/csv"], ["LaTeX", `${name}.tex`, () => tableLatex(table)],
    ["Markdown", `${name}.md`, () => tableMarkdown(table)]]);
  (table.closest(".scroll") || table).before(buttons);
}

/* Sorting that the address remembers, by the name of the table. */
function rememberSort(table) {
  const key = `sort-${table.dataset.name}`, told = address.list(key);
  makeSortable(table, (column, ascending) => address.set({ [key]: [column, ascending ? "up" : "down"] }));
  if (told && table.tHead.rows[0].cells[+told[0]]) sortBy(table, +told[0], told[1] === "up");
}

/* What is unfolded stays so in the address. */
function rememberDetails() {
  const all = [...document.querySelectorAll("details[id]")], told = address.list("open") || [];
  for (const details of all) {
    details.open = details.open || told.includes(details.id);
    details.addEventListener("toggle", () => { const open = all.filter((one) => one.open).map((one) => one.id); address.set({ open: open.length ? open : null }); });
  }
}

function prepareTables() {
  document.querySelectorAll("table.sortable").forEach(rememberSort);
  document.querySelectorAll("table[data-name]").forEach((table) => tableDownloads(table, table.dataset.name));
  rememberDetails();
}
