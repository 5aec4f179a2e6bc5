"""Where cells run: this process, processes on this machine, a Dask cluster."""
