"""One file per source; each offers the data sets in its `DATASETS`."""
