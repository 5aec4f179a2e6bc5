"use strict";
(() => {
const cards = find("cards"), names = ["all data sets, each with equal weight", ...data.datasets];
names.forEach((name, i) => find("dataset").append(html("option", { value: i }, name)));
const draw = () => {
  cards.replaceChildren();
  data.entries.forEach((entry, e) => {
    const item = data.calibration[+find("dataset").value][e];
    if (item) calibrationCard(cards, item, entry, data.levels, html("h3", {}, ...entryLabel(entry)));
  });
  if (!cards.children.length) cards.append(html("p", {}, "No finished cells."));
};
selects("dataset", draw);
prepareTables();
draw();
onResize(draw);
ready();
})();
