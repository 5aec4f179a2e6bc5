"""One file per report. Reports read the store, never the methods."""
