"""asv suites. They import only public names; parameters are literal, so that results compare across commits."""
