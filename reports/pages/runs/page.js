"use strict";
makeTablesSortable();
ready();
