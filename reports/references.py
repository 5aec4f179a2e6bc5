"""BibTeX for what a report shows: fsibench, its methods and its data sets.

Methods of fsibench have entries in `data/references.bib`. What a run wrote into the store about its methods and data sets
(the key `citations` of its protocol) serves for everything else, as an entry of type `misc`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib import resources

from fsibench.reports.analysis.results import Results

# They have no paper of their own.
WITHOUT_PAPER = ("constant", "tuned")


def bibliography(results: Results) -> str:
    shipped = shipped_entries()
    found = {"fsibench": shipped["fsibench"]}
    for name, stored in _wanted(results).items():
        entry = shipped.get(name) or (misc(name, stored) if stored else None)
        if entry is not None:
            found[name] = entry
    return "\n\n".join(found.values()) + "\n"


def missing(results: Results) -> list[str]:
    """Methods and data sets of which neither we nor the store know a citation."""
    shipped = shipped_entries()
    return [name for name in _wanted(results) if name not in shipped and name not in results.citations]


def _wanted(results: Results) -> dict[str, str]:
    """Method or data set (without options) -> the citation that the store has for it, or nothing."""
    methods = sorted({*results.methods.values()} - set(WITHOUT_PAPER))
    families = [name if name in shipped_entries() else name.split("_")[0] for name in methods]
    datasets = [name.split("[")[0] for name in results.datasets]
    return {name: results.citations.get(name, "") for name in (*families, *datasets)}


def shipped_entries() -> Mapping[str, str]:
    text = (resources.files("fsibench.reports") / "data" / "references.bib").read_text(encoding="utf-8")
    entries = re.split(r"\n(?=@)", text.strip())
    return {re.match(r"@\w+\{([^,]+),", entry)[1]: entry.strip() for entry in entries}  # type: ignore[index]


def misc(name: str, citation: str) -> str:
    """`Authors: Title, where (year)` as an entry; a citation of another form goes into the note as it is."""
    key = re.sub(r"[^A-Za-z0-9-]+", "-", name).strip("-") or "unnamed"
    author, colon, rest = citation.partition(": ")
    year = re.search(r"\b(1[89]|20)\d\d\b", citation)
    fields = {"title": rest.split(",")[0], "author": author.replace(", ", " and "), "note": rest} if colon else {"note": citation}
    if year is not None:
        fields["year"] = year[0]
    lines = [f"  {field} = {{{_safe(value)}}}," for field, value in fields.items()]
    return "\n".join([f"@misc{{{key},", *lines, "}"])


def _safe(text: str) -> str:
    return re.sub(r"([&%$#_])", r"\\\1", text.replace("\\", "").replace("{", "").replace("}", ""))
