"use strict";
(() => {
prepareTables();
ready();
})();
