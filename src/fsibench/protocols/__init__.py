"""Protocols: TOML files that say what is compared with what, on which data, for how long."""
