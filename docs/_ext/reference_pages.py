"""Reference pages from the registries, written before Sphinx reads its sources: they cannot go stale."""

from __future__ import annotations

import dataclasses
import inspect
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from option_comments import meanings

from fsibench import metrics, options, registry, scoring
from fsibench.data.card import NOT_COUNTED, card, show_twins
from fsibench.data.card import text as card_text
from fsibench.reports.companions import advice

if TYPE_CHECKING:
    from sphinx.application import Sphinx

HERE = Path(__file__).parent
FOLDER = "_reference"
ADVICE = advice()
OPTIONS = tomllib.loads((HERE / "options.toml").read_text(encoding="utf-8"))
DEVIATIONS_HEAD = ["| topic | here | paper or released code |", "|---|---|---|"]


def setup(app: Sphinx) -> dict[str, Any]:
    app.connect("builder-inited", write_pages)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def write_pages(app: Sphinx) -> None:
    folder = Path(app.srcdir) / FOLDER
    for name, text in all_pages().items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists() or path.read_text(encoding="utf-8") != text:  # untouched pages are not read again
            path.write_text(text, encoding="utf-8")


def all_pages() -> dict[str, str]:
    return {**method_pages(), **dataset_pages(), **metric_pages(), "protocols.md": protocols_page()}


# Methods -------------------------------------------------------------------------------------------------------------


def method_pages() -> dict[str, str]:
    found = registry.methods()
    names = sorted(found.items)
    lines = ["# Methods", "", "| entry | what | paper | |", "|---|---|---|---|"]
    lines += [method_row(name, found.items[name]) for name in names]
    lines += deviations_section("## Deviations that several methods share", [row for row in deviations() if not named_in(row)])
    lines += ["", "```{toctree}", ":hidden:", "", *(f"methods/{name}" for name in names), "```", ""]
    return {"methods.md": "\n".join(lines), **{f"methods/{n}.md": method_page(n, found.items[n]) for n in names}}


def method_row(name: str, cls: Any) -> str:
    mark = "variant" if cls.variant else f"answers for {cls.reproduces}" if cls.reproduces else ""
    return f"| [`{name}`](methods/{name}.md) | {first_line(cls)} | {cls.paper} | {mark} |"


def method_page(name: str, cls: Any) -> str:
    """Paper, marks, advice, the text at the top of its file, deviations, options as they resolve, presets, a command."""
    module_text = inspect.cleandoc(inspect.getmodule(cls).__doc__ or "")
    resolved = registry.entry(name).method
    lines = [f"# {name}", "", first_line(cls), ""]
    lines += [f"*{cls.paper}*", ""] if cls.paper else []
    lines += [f":::{{note}}\n{text}\n:::\n" for text in marks(resolved)]
    told = ADVICE.get(name, {})
    lines += [f"**When to use it.** {told['use']}\n"] if "use" in told else []
    lines += [f"**Cost.** {told['cost']} `fsibench bench steps --methods {name}` measures it.\n"] if "cost" in told else []
    lines += ["```console", f"$ fsibench run quick --methods constant,gp,{name} --datasets yacht,boston", "```", ""]
    lines += ["## Objective, notation, deviations", "", "```text", module_text, "```"]
    lines += deviations_section("### Deviations, side by side", [row for row in deviations() if concerns(row, name, cls)])
    lines += option_lines(name, resolved)
    for preset, values in cls.presets.items():
        lines += ["", f"### Preset `{preset}`", "", f"`{name}[preset={preset}]` sets", ""]
        lines += [f"- `{key}={options.show(value)}`" for key, value in values.items()]
    return "\n".join(lines) + "\n"


def option_lines(name: str, method: Any) -> list[str]:
    """A table of the options as they resolve, with what they mean."""
    fields = dataclasses.fields(method)
    if not fields:
        return ["", "## Options", "", "None."]
    comments = meanings(type(method))
    rows = [
        f"| `{f.name}` | `{options.show(getattr(method, f.name))}` | `{type_text(f)}` | {meaning(name, f.name, comments)} |"
        for f in fields
    ]
    return ["", "## Options", "", "| option | default | type | meaning |", "|---|---|---|---|", *rows]


def meaning(name: str, option: str, comments: Mapping[str, str]) -> str:
    """What `options.toml` says, then the comment in the source; empty where there is neither."""
    general = OPTIONS.get(name, {}).get(option) or OPTIONS["shared"].get(option, "")
    return "; ".join(filter(None, [general, comments.get(option, "").rstrip(".")])).replace("|", "\\|")


def deviations() -> list[str]:
    """The rows of the table of deviations in `methods/README.md`."""
    text = (HERE.parents[1] / "methods" / "README.md").read_text(encoding="utf-8").partition("## Deviations")[2]
    return [line for line in text.splitlines() if line.startswith("|")][2:]


def named_in(row: str) -> set[str]:
    """The methods that the topic of a row names: `weights in AADM and AVB`."""
    words = {word.lower() for word in re.findall(r"\w+", row.split("|")[1])}
    return words & set(registry.methods().items)


def concerns(row: str, name: str, cls: Any) -> bool:
    """Whether a row names the method; or, naming none, an option that the method has."""
    if named := named_in(row):
        return name in named
    return bool(set(re.findall(r"`(\w+)=", row)) & {field.name for field in dataclasses.fields(cls)})


def deviations_section(heading: str, rows: list[str]) -> list[str]:
    return ["", heading, "", *DEVIATIONS_HEAD, *rows] if rows else []


def marks(method: Any) -> list[str]:
    texts = []
    if method.variant:
        texts.append(f"A variant, not the published objective: {method.variant}")
    if method.reproduces:
        texts.append(f"Answers for the published column {method.reproduces} in the ledger.")
    if method.note:
        texts.append(method.note)
    if method.max_rows:
        texts.append(f"Meant for at most {method.max_rows} training rows; a plan leaves it out of larger sets and says so.")
    if method.requires:
        texts.append(f"Needs {', '.join(method.requires)}.")
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
