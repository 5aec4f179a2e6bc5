"use strict";
makeTablesSortable();
find("verdict").addEventListener("change", () => {
  const wanted = find("verdict").value;
  for (const row of find("lines").tBodies[0].rows) row.hidden = wanted !== "" && row.dataset.verdict !== wanted;
});
ready();
