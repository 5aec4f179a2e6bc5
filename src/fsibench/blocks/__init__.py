"""Shared mathematics. Knows torch, never the harness."""
