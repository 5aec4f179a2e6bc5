"use strict";
(() => {
  const select = find("dataset"), box = find("functions");
  data.panels.forEach((panel, i) => select.append(html("option", { value: i }, panel.dataset)));
  const kinds = [["fan", "Predictive quantiles and data"], ["samples", "Predictive samples of y"], ["draws", "Draws of the function"], ["prior", "Draws of the prior"], ["inducing", "Inducing inputs during training"]];
  const draw = () => {
    box.replaceChildren();
    const panel = data.panels[+select.value];
    for (const [kind, title] of kinds) {
      const columns = panel.columns.filter((c) => has(c, kind));
      if (!columns.length) continue;
      const row = html("div", { class: "columns" });
      box.append(html("h2", {}, title), row);
      // All columns first: a chart takes the width that its column has when it is drawn.
      const plots = columns.map((column) => {
        const plot = html("div", { class: "plot" }), entry = data.entries.find((e) => e.name === column.entry);
        row.append(html("div", {}, html("h3", {}, ...entryLabel(entry)), plot));
        return { plot, column, entry };
      });
      for (const { plot, column, entry } of plots) {
        if (kind === "inducing") drawInducing(plot, column, entry, panel); else drawPanel(plot, column, entry, panel, kind);
      }
    }
  };
  const has = (c, kind) => ({ fan: c.quantiles.length, samples: c.samples.length, draws: c.draws.length, prior: c.prior.length, inducing: c.inducing.length })[kind] > 0;
  function drawPanel(plot, column, entry, panel, kind) {
    const prior = kind === "prior";
    const chart = frame(plot, { xRange: panel.x_range, yRange: prior ? panel.prior_range : panel.y_range, logX: false, height: 210, yTicks: 4, title: `${kind} of ${entry.name} on ${panel.dataset}`,
      description: `Split ${column.split}, after training.` });
    const xs = column.x.map(chart.fx), ys = (values) => values.map(chart.fy);
    if (panel.oracle && kind !== "draws" && !prior) panel.oracle.forEach((part) => chart.marks.append(svg("path", { d: bandPath(part.x.map(chart.fx), ys(part.low), ys(part.high)), fill: "currentColor", opacity: 0.13 })));
    if (!prior) panel.train.forEach(([x, y]) => chart.marks.append(svg("circle", { cx: chart.fx(x).toFixed(1), cy: chart.fy(y).toFixed(1), r: 1.1, fill: "currentColor", opacity: 0.28 })));
    if (kind === "fan") {
      const q = column.quantiles;
      for (let i = 0; i < Math.floor(q.length / 2); i += 1) chart.marks.append(svg("path", { d: bandPath(xs, ys(q[i].y), ys(q[q.length - 1 - i].y)), fill: entry.colour, opacity: 0.22 }));
      if (q.length % 2) chart.marks.append(svg("path", { class: "series", d: path(xs, ys(q[(q.length - 1) / 2].y)), stroke: entry.colour }));
    }
    if (kind === "samples") column.samples.forEach((row) => row.forEach((y, i) => chart.marks.append(svg("circle", { cx: xs[i].toFixed(1), cy: chart.fy(y).toFixed(1), r: 1, fill: entry.colour, opacity: 0.55 }))));
    if (kind === "draws" || prior) (prior ? column.prior : column.draws).forEach((row) => chart.marks.append(svg("path", { d: path(xs, ys(row)), fill: "none", stroke: entry.colour, "stroke-width": 1, opacity: 0.6 })));
    plot.append(chart.root);
  }
  function drawInducing(plot, column, entry, panel) {
    const times = column.inducing.map((item) => Math.max(item.train_seconds, 1e-3)), all = column.inducing.flatMap((item) => item.z);
    // Seconds run upwards: the inputs lie on the same horizontal axis as the functions above.
    const wide = rangeOf([...all, ...panel.x_range]), logs = times.map(Math.log10);
    const chart = frame(plot, { xRange: wide, yRange: rangeOf(logs), logX: false, height: 190, yTicks: 3, title: `Inducing inputs of ${entry.name} on ${panel.dataset} during training`, xLabel: "x; upwards: log₁₀ training seconds" });
    const count = Math.min(...column.inducing.map((item) => item.z.length));
    for (let k = 0; k < count; k += 1) chart.marks.append(svg("path", { d: path(column.inducing.map((item) => chart.fx(item.z[k])), logs.map(chart.fy)), fill: "none", stroke: entry.colour, "stroke-width": 1, opacity: 0.7 }));
    column.inducing[column.inducing.length - 1].z.forEach((z) => chart.marks.append(svg("circle", { cx: chart.fx(z), cy: chart.fy(logs[logs.length - 1]), r: 2, fill: entry.colour })));
    plot.append(chart.root);
  }
  select.addEventListener("change", draw);
  draw();
  onResize(draw);
  ready();
})();
