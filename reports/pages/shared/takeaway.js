"use strict";
/* Taking a figure away: SVG and PDF as drawn, its numbers as CSV, and a few lines of Python that draw it again. */

/* What `use` makes of the chart with its legend below it, in the colours of paper whatever the page's scheme is. */
function withPaperCopy(box, use) {
  const original = box.querySelector("svg.chart"), copy = original.cloneNode(true), { width, height } = original.viewBox.baseVal;
  copy.querySelectorAll(".brush, [visibility=hidden]").forEach((node) => node.remove());
  copy.querySelectorAll(".faded").forEach((node) => node.classList.remove("faded"));
  const names = [...box.querySelectorAll(".key li")].map((item) => item.dataset.entry).filter((name) => entryNamed(name));
  copy.setAttribute("viewBox", `0 0 ${width} ${height + addLegend(copy, names, width, height)}`);
  const holder = html("div", { class: "plot", style: `position:absolute;left:-9999px;top:0;width:${width}px` }, copy);
  document.documentElement.classList.add("on-paper");
  document.body.append(holder);
  const result = use(copy);
  holder.remove();
  document.documentElement.classList.remove("on-paper");
  return result;
}

/* Lines and names in rows below the chart; returns the height that they take. */
function addLegend(copy, names, width, top) {
  let x = 52, y = top + 14;
  for (const name of names) {
    const entry = entryNamed(name), room = 40 + 6.4 * name.length;
    if (x > 52 && x + room > width) { x = 52; y += 15; }
    copy.append(svg("line", { x1: x, x2: x + 22, y1: y - 4, y2: y - 4, stroke: entry.colour, "stroke-width": 2, "stroke-dasharray": entry.dash.join(" ") || null }), svg("text", { x: x + 27, y }, name));
    x += room;
  }
  return names.length ? y + 6 - top : 0;
}

/* Colours are written out, since the page's style sheet stays behind. */
const chartSvg = (box) => withPaperCopy(box, (copy) => {
  for (const node of copy.querySelectorAll("*")) {
    const style = getComputedStyle(node), values = ["fill", "stroke", "stroke-width", "opacity", "stroke-dasharray"].map((name) => [name, style.getPropertyValue(name)]);
    values.forEach(([name, value]) => node.style.setProperty(name, value));
  }
  const { width, height } = copy.viewBox.baseVal;
  filled(copy, { xmlns: NAMESPACE, width, height }, []).style.setProperty("font", "11px sans-serif");
  return new XMLSerializer().serializeToString(copy);
});

const chartPdf = (box) => withPaperCopy(box, pdfDocument);

/* A program that draws `rows` again; `draw` are its lines between the table and the labels. */
function pythonText(rows, title, labels, draw) {
  const settings = Object.entries({ ...labels, title }).map(([name, value]) => `${name}=${JSON.stringify(value)}`).join(", ");
  return ["import io", "", "import matplotlib.pyplot as plt", "import pandas as pd", "", `DATA = r'''${csvText(rows).replaceAll("\r", "").replaceAll("'''", "")}'''`, "",
    "table = pd.read_csv(io.StringIO(DATA), keep_default_na=False, na_values=[\"\"])", "figure, axes = plt.subplots(figsize=(5, 3), layout=\"constrained\")",
    ...draw, `axes.set(${settings})`, "figure.savefig(\"figure.pdf\")", ""].join("\n");
}

const looksText = (entries) => ["LOOKS = {", ...entries.map((e) => `    ${JSON.stringify(e.name)}: (${JSON.stringify(e.colour)}, ${e.dash.length ? `(0, (${e.dash.join(", ")}))` : '"-"'}),`), "}"];

/* One curve per name in the first column. */
const curvePython = (entries, band) => [...looksText(entries), "for name, part in table.groupby(\"entry\", sort=False):", "    colour, dash = LOOKS[str(name)]",
  "    axes.plot(part[\"x\"], part[\"y\"], color=colour, linestyle=dash, label=name)", ...(band ? ["    axes.fill_between(part[\"x\"], part[\"low\"], part[\"high\"], color=colour, alpha=0.15, lw=0)"] : []), "axes.legend(fontsize=7)"];

/* Buttons below a figure. `item`: title, rows, labels (of the axes, for Python), draw (lines of Python), and the name of its print figure. */
function figureDownloads(box, item) {
  const name = item.title.replace(/[^A-Za-z0-9=.-]+/g, "-").slice(0, 80);
  const group = downloadButtons(`figure ${item.title}`, [["SVG", `${name}.svg`, () => chartSvg(box), "image/svg+xml"], ["PDF", `${name}.pdf`, () => chartPdf(box), "application/pdf"],
    ["CSV", `${name}.csv`, () => csvText(item.rows()), "text/csv"], ["Python", `${name}.py`, () => pythonText(item.rows(), item.title, item.labels, item.draw)]]);
  for (const format of data.figures && data.figures.names.includes(item.figure) ? data.figures.formats : [])
    group.append(html("a", { href: `figures/${item.figure}.${format}`, title: `${item.title}, drawn for print` }, `${format.toUpperCase()} for print`));
  return group;
}
