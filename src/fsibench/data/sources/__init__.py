"""Where tables come from: cache, mirror folder, package, OpenML, UCI; each verified against a passport."""
