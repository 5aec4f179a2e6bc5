"""Reference pages from the registries, written before Sphinx reads its sources: they cannot go stale."""

from __future__ import annotations

import dataclasses
import inspect
import re
import tomllib
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx

from fsibench import metrics, options, registry, scoring
from fsibench.data.card import NOT_COUNTED, card, show_twins
from fsibench.data.card import text as card_text

FOLDER = "_reference"
ADVICE = tomllib.loads((Path(__file__).parent / "advice.toml").read_text(encoding="utf-8"))


def setup(app: Sphinx) -> dict[str, Any]:
    app.connect("builder-inited", write_pages)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def write_pages(app: Sphinx) -> None:
    folder = Path(app.srcdir) / FOLDER
    pages = {
        **method_pages(),
        **dataset_pages(),
        **metric_pages(),
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
    """Paper, marks, advice, the text at the top of its file, options as they resolve, presets, a command to try it."""
    module_text = inspect.cleandoc(inspect.getmodule(cls).__doc__ or "")
    lines = [f"# {name}", "", first_line(cls), ""]
    lines += [f"*{cls.paper}*", ""] if cls.paper else []
    lines += [f":::{{note}}\n{text}\n:::\n" for text in marks(cls)]
    advice = ADVICE.get(name, {})
    lines += [f"**When to use it.** {advice['use']}\n"] if "use" in advice else []
    lines += [f"**Cost.** {advice['cost']} `fsibench bench steps --methods {name}` measures it.\n"] if "cost" in advice else []
    lines += ["```console", f"$ fsibench run quick --methods constant,gp,{name} --datasets yacht,boston", "```", ""]
    lines += ["## Objective, notation, deviations", "", "```text", module_text, "```", ""]
    lines += ["## Options", "", "| option | default | type |", "|---|---|---|"]
    resolved = registry.entry(name).method
    lines += [f"| `{f.name}` | `{options.show(getattr(resolved, f.name))}` | `{type_text(f)}` |" for f in dataclasses.fields(cls)]
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
    return {"datasets.md": "\n".join(lines), **{f"datasets/{n}.md": dataset_page(n, found.items[n]) for n in described}}


def dataset_page(name: str, dataset: Any) -> str:
    """The data card of a set that is in the package; of others what is known without their table."""
    description = dataset.describe()
    lines = [f"# {name}", ""]
    if description.source in ("bundled", "formula"):
        lines += card_text(card(dataset)).splitlines()[2:]
    else:
        counted = description.twins is not None
        facts = {
            "size": f"{description.rows:,} rows, {description.inputs} inputs",
            "target": description.target,
            "comes from": description.source,
            "licence": description.licence,
            "citation": description.citation,
            "note": description.note,
            "suite": description.suite,
            "twins": show_twins(description.twins, description.twin_share) if counted else NOT_COUNTED,
        }
        lines += [f"- {key}: {value}" for key, value in facts.items() if value]
    lines += ["", "```console", f"$ fsibench run quick --datasets {name} --methods constant,linear,gp", "```", ""]
    return "\n".join(lines)


# Metrics and protocols -----------------------------------------------------------------------------------------------


def metric_pages() -> dict[str, str]:
    found = metrics.known()
    return {"metrics.md": metrics_page(), **{f"metrics/{key}.md": metric_page(metric) for key, metric in found.items()}}


def metric_page(metric: metrics.Metric) -> str:
    unit = {"target": "the target's own", "nats": "nats", "": "none, a pure number"}[metric.unit]
    looks = {"every": "at every look", "last": "at the last look, on at most the first 1,000 test rows"}[metric.looks]
    facts = {
        "label": metric.label,
        "unit": unit,
        "better": "larger" if metric.larger_is_better else "smaller",
        "computed": looks,
        "ranked": "yes, it leads every table" if metric.headline else "on request",
    }
    lines = [f"# {metric.key}", "", f"{metric.meaning[:1].upper()}{metric.meaning[1:]}.", ""]
    lines += [f"- {name}: {text}" for name, text in facts.items()]
    code = [inspect.getsource(metric.compute).strip().rstrip(",")]
    called = dict.fromkeys(re.findall(r"scoring\.(\w+)\(", code[0]))
    code += [inspect.getsource(getattr(scoring, name)) for name in called]
    return "\n".join([*lines, "", "How it is computed:", "", "```python", "\n\n\n".join(code).rstrip(), "```", ""])


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
        row = f"[`{metric.key}`](metrics/{metric.key}.md) | {metric.label} | {metric.unit} | {better} | {looks}"
        lines.append(f"| {row} | {metric.meaning} |")
    lines += ["", "```{toctree}", ":hidden:", "", *(f"metrics/{key}" for key in metrics.known()), "```"]
    return "\n".join(lines) + "\n"


def protocols_page() -> str:
    from fsibench.harness.plan import load_protocol

    lines = ["# Built-in protocols", "", "| name | what | entries | data sets | splits | scheme | budget |"]
    lines.append("|---|---|---|---|---|---|---|")
    for name in registry.protocols().items:
        p = load_protocol(name, {})
        splits = p.splits if isinstance(p.splits, int) else len(p.splits)
        lines.append(f"| `{name}` | {p.title} | {len(p.methods)} | {len(p.datasets)} | {splits} | {p.scheme} | {p.budget} |")
    return "\n".join(lines) + "\n"
