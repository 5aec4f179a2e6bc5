"use strict";
(() => {
  const hidden = new Set(), box = find("panels"), curves = data.curves;
  const sections = data.datasets.map((name, d) => {
    const panels = html("div", { class: "panels" });
    box.append(html("section", {}, html("h2", {}, name), panels));
    return { panels, d, drawn: false };
  });
  const metrics = () => (chosen("which") === "three" ? data.metrics.filter((m) => m.key !== "calibration") : data.metrics.filter((m) => m.key === chosen("which")));

  /* Where it matters: the last medians and quartiles, the best ever seen, and as much again on the worse side to show how they came there. */
  function focus(series, larger) {
    const ends = series.map((s) => [s.y, s.low, s.high].map(lastOf)).filter((end) => end[0] !== null);
    const everything = rangeOf(series.flatMap((s) => [...s.y, ...s.low, ...s.high]));
    if (!ends.length || chosen("range") === "all") return everything;
    const worse = (a, b) => (larger ? b - a : a - b), last = ends.map((end) => end[0]).sort(worse);
    const best = series.flatMap((s) => s.y.filter((v) => v !== null)).sort(worse)[0];
    const usual = last[Math.floor((last.length - 1) * 0.75)], worst = last[last.length - 1];
    // One entry that is hopeless must not flatten the others.
    const hopeless = usual !== best && Math.abs(worst - best) > 4 * Math.abs(usual - best);
    const limit = hopeless ? best + (usual - best) * 2 : worst;
    const quartiles = ends.filter((end) => worse(end[0], limit) <= 0).flat().filter((v) => v !== null).sort(worse);
    const edge = quartiles.length ? quartiles[quartiles.length - 1] : limit, top = quartiles.length ? quartiles[0] : best;
    const start = worse(best, top) < 0 ? best : top, reach = worse(edge, limit) > 0 && !hopeless ? edge : limit;
    const [low, high] = rangeOf([start, reach + (reach - start) * (hopeless ? 0 : 0.8)]);
    return [Math.max(low, everything[0]), Math.min(high, everything[1])];
  }
  const lastOf = (values) => { for (let i = values.length - 1; i >= 0; i -= 1) if (values[i] !== null) return values[i]; return null; };

  function drawSection(section) {
    section.panels.replaceChildren();
    for (const metric of metrics()) {
      const series = data.entries.map((entry, e) => ({ entry, band: curves.bands[metric.key][section.d][e] })).filter((s) => s.band && !hidden.has(s.entry.name))
        .map((s) => ({ entry: s.entry, y: s.band[0], low: s.band[1], high: s.band[2] }));
      const plot = html("div", { class: "plot" });
      section.panels.append(html("figure", {}, html("h4", {}, `${metric.label}, ${metric.direction}`), plot));
      const ends = series.map((s) => `${s.entry.name} ${number(lastOf(s.y))}`).join(", ");
      lineChart(plot, { series, x: curves.grid[section.d], yRange: focus(series, metric.larger), larger: metric.larger, xLabel: "training seconds",
        title: `${metric.label} on ${data.datasets[section.d]} against training seconds`, description: `Medians at the end: ${ends || "none"}.` });
    }
    section.drawn = true;
  }
  // Panels far below are drawn when they come near, so that the page is ready at once; printing draws them all.
  const observer = new IntersectionObserver((items) => items.forEach((item) => {
    const section = sections.find((s) => s.panels === item.target);
    if (item.isIntersecting && !section.drawn) drawSection(section);
  }), { rootMargin: "600px" });
  sections.forEach((section) => { section.panels.style.minHeight = "260px"; observer.observe(section.panels); });
  window.addEventListener("beforeprint", () => sections.filter((s) => !s.drawn).forEach(drawSection));
  const redraw = () => sections.forEach((section) => { const rectangle = section.panels.getBoundingClientRect();
    if (rectangle.top < window.innerHeight + 600 && rectangle.bottom > -600) drawSection(section); else { section.drawn = false; section.panels.replaceChildren(); observer.unobserve(section.panels); observer.observe(section.panels); } });
  legend(hidden, redraw);
  find("which").addEventListener("change", redraw);
  find("range").addEventListener("change", redraw);
  onResize(redraw);
  ready();
})();
