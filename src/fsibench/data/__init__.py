"""Tables, data sets, splits and standardisation; `sources` is where tables come from."""

from __future__ import annotations

from fsibench.data.arrays import BLOCK_ROWS, Floats, Rows, Singles, blocks_of
from fsibench.data.splits import NUM_SPLITS, SPLIT_SCHEMES, SPLIT_SHARES, parse_splits, show_splits, split_rows
from fsibench.data.standardise import Prepared, Standardiser, prepare
from fsibench.data.tables import Dataset, Description, Split, Table, TableDataset

__all__ = [
    "BLOCK_ROWS",
    "NUM_SPLITS",
    "SPLIT_SCHEMES",
    "SPLIT_SHARES",
    "Dataset",
    "Description",
    "Floats",
    "Prepared",
    "Rows",
    "Singles",
    "Split",
    "Standardiser",
    "Table",
    "TableDataset",
    "blocks_of",
    "parse_splits",
    "prepare",
    "show_splits",
    "split_rows",
]
