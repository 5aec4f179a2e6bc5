"""Reference pages from the registries, written before Sphinx reads its sources: they cannot go stale."""

from __future__ import annotations

import dataclasses
import inspect
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx

from fsibench import metrics, options, registry

FOLDER = "_reference"


def setup(app: Sphinx) -> dict[str, Any]:
    app.connect("builder-inited", write_pages)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def write_pages(app: Sphinx) -> None:
    folder = Path(app.srcdir) / FOLDER
    pages = {
        **method_pages(),
        **dataset_pages(),
        "metrics.md": metrics_page(),
        "protocols.md": protocols_page(),
    }
    for name, text in pages.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists() or path.read_text(encoding="utf-8") != text:  # untouched pages are not read again
            path.write_text(text, encoding="utf-8")


# Methods -------------------------------------------------------------------------------------------------------------


def method_pages() -> dict[str, str]:
    found = registry.methods()
    names = sorted(found.items)
    lines = ["# Methods", "", "| entry | what | paper | |", "|---|---|---|---|"]
    lines += [method_row(name, found.items[name]) for name in names]
    lines += ["", "```{toctree}", ":hidden:", "", *(f"methods/{name}" for name in names), "```", ""]
    return {"methods.md": "\n".join(lines), **{f"methods/{n}.md": method_page(n, found.items[n]) for n in names}}


def method_row(name: str, cls: Any) -> str:
    mark = "variant" if cls.variant else f"answers for {cls.reproduces}" if cls.reproduces else ""
    return f"| [`{name}`](methods/{name}.md) | {first_line(cls)} | {cls.paper} | {mark} |"


def method_page(name: str, cls: Any) -> str:
    """Paper, marks, the text at the top of its file, options with their defaults, presets, a command to try it."""
    module_text = inspect.cleandoc(inspect.getmodule(cls).__doc__ or "")
    lines = [f"# {name}", "", first_line(cls), ""]
    lines += [f"*{cls.paper}*", ""] if cls.paper else []
    lines += [f":::{{note}}\n{text}\n:::\n" for text in marks(cls)]
    lines += ["```console", f"$ fsibench run quick --methods constant,gp,{name} --datasets yacht,boston", "```", ""]
    lines += ["## Objective, notation, deviations", "", "```text", module_text, "```", ""]
    lines += ["## Options", "", "| option | default | type |", "|---|---|---|"]
    lines += [f"| `{f.name}` | `{options.show(f.default)}` | `{type_text(f)}` |" for f in dataclasses.fields(cls)]
    for preset, values in cls.presets.items():
        lines += ["", f"### Preset `{preset}`", "", f"`{name}[preset={preset}]` sets", ""]
        lines += [f"- `{key}={options.show(value)}`" for key, value in values.items()]
    return "\n".join(lines) + "\n"


def marks(cls: Any) -> list[str]:
    texts = []
    if cls.variant:
        texts.append(f"A variant, not the published objective: {cls.variant}")
    if cls.reproduces:
        texts.append(f"Answers for the published column {cls.reproduces} in the ledger.")
    if cls.note:
        texts.append(cls.note)
    if cls.max_rows:
        texts.append(f"Meant for at most {cls.max_rows} training rows; a plan leaves it out of larger sets and says so.")
    if cls.requires:
        texts.append(f"Needs {', '.join(cls.requires)}.")
    return texts


def first_line(cls: Any) -> str:
    return (cls.__doc__ or "").strip().partition("\n")[0]


def type_text(field: dataclasses.Field[Any]) -> str:
    return str(field.type).replace("|", "or")


# Data sets -----------------------------------------------------------------------------------------------------------


def dataset_pages() -> dict[str, str]:
    found = registry.datasets()
    described = {name: found.items[name].describe() for name in sorted(found.items)}
    lines = ["# Data sets", "", "| name | rows | inputs | target | source |", "|---|---|---|---|---|"]
    lines += [
        f"| [`{name}`](datasets/{name}.md) | {d.rows} | {d.inputs} | {d.target} | {d.source} |"
        for name, d in described.items()
    ]
    lines += ["", "```{toctree}", ":hidden:", "", *(f"datasets/{name}" for name in described), "```", ""]
    return {"datasets.md": "\n".join(lines), **{f"datasets/{n}.md": dataset_page(n, d) for n, d in described.items()}}


def dataset_page(name: str, description: Any) -> str:
    facts = {
        "rows": description.rows,
        "inputs": description.inputs,
        "target": description.target,
        "comes from": description.source,
        "licence": description.licence,
        "citation": description.citation,
        "note": description.note,
    }
    lines = [f"# {name}", "", "| | |", "|---|---|"]
    lines += [f"| {key} | {str(value).replace('|', '/')} |" for key, value in facts.items() if value]
    lines += ["", "```console", f"$ fsibench run quick --datasets {name} --methods constant,linear,gp", "```", ""]
    return "\n".join(lines)


# Metrics and protocols -----------------------------------------------------------------------------------------------


def metrics_page() -> str:
    lines = [
        "# Metrics", "",
        "Every score is computed in one place, in the target's own units, in float64. The key is the column in stores and",
        "exports. Metrics of the last look are costly and use at most the first 1,000 test rows.", "",
        "| key | label | unit | better | computed at | meaning |", "|---|---|---|---|---|---|",
    ]  # fmt: skip
    for metric in metrics.known().values():
        better = "larger" if metric.larger_is_better else "smaller"
        looks = {"every": "every look", "last": "the last look"}[metric.looks]
        lines.append(f"| `{metric.key}` | {metric.label} | {metric.unit} | {better} | {looks} | {metric.meaning} |")
    return "\n".join(lines) + "\n"


def protocols_page() -> str:
    from fsibench.harness.plan import load_protocol

    lines = ["# Built-in protocols", "", "| name | what | entries | data sets | splits | scheme | budget |"]
    lines.append("|---|---|---|---|---|---|---|")
    for name in registry.protocol_files():
        p = load_protocol(name, {})
        splits = p.splits if isinstance(p.splits, int) else len(p.splits)
        lines.append(f"| `{name}` | {p.title} | {len(p.methods)} | {len(p.datasets)} | {splits} | {p.scheme} | {p.budget} |")
    return "\n".join(lines) + "\n"
