"use strict";
prepareTables();
ready();
