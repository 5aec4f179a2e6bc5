"""Tables from Python: a data frame or arrays become a file in the cache folder, and a text that names it anywhere."""

from __future__ import annotations

import hashlib
import io
import re
from typing import Any
from urllib.parse import quote

from fsibench.data.sources import cache
from fsibench.data.sources.raw import first_line
from fsibench.errors import UsageError


def add_table(data: Any, target: str = "y", *, name: str = "table", **words: Any) -> str:
    """Keep a pandas data frame, or a pair of arrays x [N, D] and y [N]; returns the text for `--datasets`.

    Further words are those after the question mark of a reference: `categories="onehot"`, `drop=["id"]`, `time="day"`.
    The text names the content: the same data give the same text, changed data another.
    """
    import pandas

    frame = data if isinstance(data, pandas.DataFrame) else _frame(data, target)
    if not re.fullmatch(r"[\w.-]+", name):
        raise UsageError(f"the name {name!r} should consist of letters, digits, dots, dashes and underscores.")
    content = _parquet(frame)
    full_name = f"{name}-{hashlib.sha256(content).hexdigest()[:12]}"
    path = cache.kept_file(full_name)
    with cache.lock(full_name):
        if not path.is_file():
            with cache.replacing(path.parent) as staging:
                (staging / path.name).write_bytes(content)
    pairs = [("target", target), *((word, one) for word, value in words.items() for one in _each(value))]
    return f"table:{full_name}?" + "&".join(f"{word}={quote(_text(value), safe=' ')}" for word, value in pairs)


def _parquet(frame: Any) -> bytes:
    """A column of objects is stored as their texts, which are read as numbers, dates or labels."""
    import pandas
    import pyarrow

    if not frame.columns.is_unique:
        raise UsageError("the data frame has more than one column of the same name; rename or drop one of them.")
    frame = frame.copy(deep=False)
    for name in [name for name, kind in frame.dtypes.items() if kind == object]:
        frame[name] = frame[name].map(str).where(frame[name].notna(), None)
    buffer = io.BytesIO()
    try:
        frame.to_parquet(buffer, index=False)
    except (pyarrow.ArrowException, TypeError, ValueError) as error:
        kinds = ", ".join(f"{name} ({kind})" for name, kind in frame.dtypes.items() if not _is_plain(pandas, kind))
        raise UsageError(f"the data frame cannot be stored ({first_line(error)}); convert {kinds or 'its columns'} first.") from None
    return buffer.getvalue()


def _is_plain(pandas: Any, kind: Any) -> bool:
    return bool(pandas.api.types.is_numeric_dtype(kind) or kind == object) and not isinstance(kind, pandas.SparseDtype)


def _frame(data: Any, target: str) -> Any:
    import numpy as np
    import pandas

    try:
        x, y = (np.asarray(part, dtype=np.float64) for part in data)
    except (TypeError, ValueError):
        raise UsageError("a table is a pandas data frame, or a pair of arrays x [N, D] and y [N].") from None
    if x.ndim != 2 or y.shape != (len(x),):
        raise UsageError(f"x should be [N, D] and y [N]; got {list(x.shape)} and {list(y.shape)}.")
    names = [f"x{place + 1}" for place in range(x.shape[1])]
    if target in names:
        raise UsageError(f"the target cannot be called {target!r}: the inputs are called {', '.join(names[:3])}, ...")
    return pandas.DataFrame(x, columns=names).assign(**{target: y})


def _each(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else [value]


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
