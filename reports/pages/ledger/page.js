"use strict";
(() => {
prepareTables();
const show = () => {
  const wanted = find("verdict").value;
  for (const row of find("lines").tBodies[0].rows) row.hidden = wanted !== "" && row.dataset.verdict !== wanted;
};
selects("verdict", show);
show();
ready();
})();
