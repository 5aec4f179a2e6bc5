"use strict";
/* Tables that sort. */

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
    if (!numeric) return String(a.key).localeCompare(String(b.key));
    const x = typeof a.key === "number" ? a.key : NaN, y = typeof b.key === "number" ? b.key : NaN;
    if (Number.isNaN(x) || Number.isNaN(y)) return (Number.isNaN(x) ? 1 : 0) - (Number.isNaN(y) ? 1 : 0) || 0;
    return ascending ? x - y : y - x;
  };
  rows.sort((a, b) => (numeric ? compare(a, b) : ascending ? compare(a, b) : -compare(a, b)));
  body.append(...rows.map((item) => item.row));
  [...table.tHead.rows[0].cells].forEach((cell, index) => {
    if (index === column) cell.setAttribute("aria-sort", ascending ? "ascending" : "descending");
    else cell.removeAttribute("aria-sort");
  });
}

function makeSortable(table, onSort) {
  [...table.tHead.rows[0].cells].forEach((cell, column) => {
    const small = cell.querySelector("small");
    const button = html("button", { type: "button" });
    while (cell.firstChild && cell.firstChild !== small) button.append(cell.firstChild);
    cell.prepend(button);
    button.addEventListener("click", () => {
      const ascending = cell.getAttribute("aria-sort") !== "ascending";
      sortBy(table, column, ascending);
      if (onSort) onSort(column, ascending);
    });
  });
}

const makeTablesSortable = () => document.querySelectorAll("table.sortable").forEach((table) => makeSortable(table));
