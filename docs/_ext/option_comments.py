"""What the options of a method mean: the comments in its source, beside an option or directly above it."""

from __future__ import annotations

import ast
import inspect
import io
import re
import tokenize
from typing import Any

ORDERS = re.compile(r"(fmt|type|noqa|ruff)\b")  # comments for tools
RULER = re.compile(r"-{5,}$")  # headings between parts of a class


def meanings(cls: type[Any]) -> dict[str, str]:
    """Option -> meaning, for every option of a class or of those it derives from that has a comment."""
    found: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        if base.__module__ not in ("builtins", "abc"):
            found.update(commented_fields(inspect.getsource(base)))
    return found


def commented_fields(source: str) -> dict[str, str]:
    """Field -> comment in the source of one class."""
    text = inspect.cleandoc("\n" + source)
    comments = comments_by_line(text)
    definition = ast.parse(text).body[0]
    assert isinstance(definition, ast.ClassDef)
    fields = [node for node in definition.body if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)]
    texts = {ast.unparse(node.target): comment_of(node, comments) for node in fields}
    return {name: comment for name, comment in texts.items() if comment}


def comments_by_line(text: str) -> dict[int, tuple[str, bool]]:
    """Line -> its comment, and whether there is nothing else on it."""
    found = {}
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        comment = token.string.lstrip("# ").rstrip()
        if token.type == tokenize.COMMENT and not ORDERS.match(comment) and not RULER.search(comment):
            found[token.start[0]] = comment, not token.line[: token.start[1]].strip()
    return found


def comment_of(node: ast.AnnAssign, comments: dict[int, tuple[str, bool]]) -> str:
    """The lines of comment directly above, then those beside the option."""
    above = []
    line = node.lineno - 1
    while line in comments and comments[line][1]:
        above.insert(0, comments[line][0])
        line -= 1
    beside = [comments[n][0] for n in range(node.lineno, (node.end_lineno or node.lineno) + 1) if n in comments]
    return " ".join(above + beside)
