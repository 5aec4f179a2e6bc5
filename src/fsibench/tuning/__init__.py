"""How defaults are chosen: one search for every method, over tables that no report contains."""
