"""Tables for papers and programs: LaTeX (booktabs), Markdown and CSV, from the same numbers as the pages."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from fsibench.reports import markdown, references
from fsibench.reports.analysis import hardest, ranking, statistics
from fsibench.reports.analysis.calibration import table as calibration_table
from fsibench.reports.analysis.failures import failure_table
from fsibench.reports.analysis.options import option_table
from fsibench.reports.analysis.overview import Overview, failure_rule
from fsibench.reports.analysis.report import Report
from fsibench.reports.analysis.results import direction
from fsibench.reports.numbers import with_error
from fsibench.reports.texts import entry_name, score_table

# Data sets side by side on a page of two columns.
MOST_COLUMNS = 7
_SPECIAL = {
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "$": r"\$", "&": r"\&", "#": r"\#", "%": r"\%", "_": r"\_",
    "^": r"\textasciicircum{}", "~": r"\textasciitilde{}", "<": r"\textless{}", ">": r"\textgreater{}",
    "−": r"\ensuremath{-}", "±": r"\ensuremath{\pm}", "\n": " ", "×": r"\ensuremath{\times}",
    "†": r"\ensuremath{\dagger}", "⚠": "(!)", "–": "--",
}  # fmt: skip


def latex_text(text: str) -> str:
    """Text that LaTeX prints as it is."""
    return "".join(_SPECIAL.get(character, character) for character in text)


def latex_number(mean: float, error: float, count: float = math.inf) -> str:
    """`2.35 \\pm 0.05`, in scientific form where the table needs it; without an error where there is one split."""
    if math.isnan(error):
        return f"{mean:.4g}"
    first, second = (part.replace("−", "-") for part in with_error(mean, error, count))
    if "e" in first:
        digits, power = first.split("e")
        return rf"({digits} \pm {second.split('e')[0]}) \cdot 10^{{{int(power)}}}"
    return rf"{first} \pm {second}"


def latex_scores(overview: Overview, key: str) -> str:
    """A table for a page of two columns: entries down, data sets across, best in bold, second underlined, mean rank last.

    More data sets than fit side by side continue in a second block below.
    """
    entries, datasets = [str(entry) for entry in overview.board.index], overview.results.datasets
    lines = [r"\begin{table*}", r"\centering", rf"\caption{{{_caption(overview, key)}}}", rf"\label{{tab:{key}}}"]
    lines += [r"\scriptsize", r"\setlength{\tabcolsep}{3pt}"]
    pieces = [datasets[start : start + MOST_COLUMNS] for start in range(0, len(datasets), MOST_COLUMNS)] or [[]]
    for number, piece in enumerate(pieces):
        lines += [] if number == 0 else [r"\par\smallskip"]
        lines += _latex_block(overview, key, entries, piece, with_rank=piece is pieces[-1])
    return "\n".join([*lines, r"\end{table*}"]) + "\n"


def _latex_block(overview: Overview, key: str, entries: list[str], datasets: list[str], with_rank: bool) -> list[str]:
    blocks, metric = overview.blocks[key], overview.results.metrics[key]
    ranks = ranking.mean_rank(blocks.values, metric.larger_is_better) if with_rank and len(blocks.values) else None
    heads = [*map(latex_text, datasets), *(["mean rank"] if ranks is not None else [])]
    columns = [_latex_column(overview, dataset, entries, key) for dataset in datasets]
    if ranks is not None:
        marks = ranking.marks(ranks.to_dict(), larger_is_better=False)
        columns.append([_marked(f"{ranks[name]:.2f}", marks.get(name)) if name in ranks.index else "--" for name in entries])
    lines = [rf"\begin{{tabular}}{{l{'r' * len(heads)}}}", r"\toprule", " & ".join(["", *heads]) + r" \\", r"\midrule"]
    for place, entry in enumerate(entries):
        name = latex_text(entry_name(entry, overview.board.loc[entry]))
        lines.append(" & ".join([name, *(column[place] for column in columns)]) + r" \\")
    return [*lines, r"\bottomrule", r"\end{tabular}"]


def _caption(overview: Overview, key: str) -> str:
    metric = overview.results.metrics[key]
    text = (
        f"{metric.label} ({direction(metric)}): mean ± standard error over splits. Best in bold, second underlined; equal means share a mark, means with failed cells or of fewer splits have none. "
        "Mean rank: over dataset × split."
    )
    if overview.results.failed.any():
        text += f" † contains failed cells; {failure_rule(ranking.CONSTANT in overview.results.entries)}"
    return latex_text(text.replace("`", ""))


def _latex_column(overview: Overview, dataset: str, entries: Sequence[str], key: str) -> list[str]:
    means, scores = overview.means(key, dataset), overview.scores[key]
    whole = {name: mean for name, mean in means.items() if _can_be_marked(overview, dataset, name, key)}
    marks = ranking.marks(whole, overview.results.metrics[key].larger_is_better)
    cells = []
    for entry in entries:
        row = scores.get((dataset, entry))
        if row is None or entry not in means:
            cells.append("failed" if row is not None and row["failed"] else "--")
            continue
        dagger = r"^\dagger" if row["failed"] else ""
        text = latex_number(row["mean"], row["standard_error"], row["splits"]) + dagger
        cells.append(_marked(text, marks.get(entry)))
    return cells


def _can_be_marked(overview: Overview, dataset: str, entry: str, key: str) -> bool:
    return entry in overview.ranked and not overview.scores[key][dataset, entry]["failed"] and (dataset, entry) not in overview.fewer_splits


def _marked(text: str, mark: str | None) -> str:
    if mark == "best":
        return rf"\textbf{{\boldmath${text}$}}"
    return rf"\underline{{${text}$}}" if mark == "second" else f"${text}$"


def latex_document(keys: Sequence[str]) -> str:
    """A document that shows every table; compile it, or copy the `\\input` lines."""
    inputs = "\n\\clearpage\n".join(rf"\input{{scores-{key}.tex}}" for key in keys)
    return (
        "\\documentclass[twocolumn]{article}\n\\usepackage[utf8]{inputenc}\n\\usepackage[T1]{fontenc}\n"
        "\\usepackage{booktabs,amsmath}\n\\usepackage[margin=1.5cm]{geometry}\n"
        f"\\begin{{document}}\n{inputs}\n\\end{{document}}\n"
    )


def frames(report: Report) -> dict[str, pd.DataFrame]:
    """Every table of the site with full precision, by file name."""
    overview = report.overview
    found = {"leaderboard": overview.board.rename_axis("entry").reset_index()}
    scores = [overview.summaries[key].reset_index().assign(metric=key) for key in overview.results.metrics]
    found["scores"] = pd.concat(scores, ignore_index=True)
    found["pairs"] = pd.concat([report.pairs[key].assign(metric=key) for key in report.pairs], ignore_index=True)
    found["calibration"] = calibration_table(report.calibrations)
    found["options"] = option_table(report.results)
    found["failures"] = failure_table(report.results)
    points = [hardest.hardest_points(report.worst_rows, name).assign(dataset=name) for name in report.results.datasets]
    found["hardest_points"] = pd.concat(points).rename_axis("point").reset_index() if points else pd.DataFrame()
    found["ledger"] = pd.DataFrame([vars(line) for line in report.ledger])
    found["other_papers"] = pd.DataFrame([vars(line) for line in report.peers])
    ranked = {key: ranking.ranks(part.values, overview.results.metrics[key].larger_is_better) for key, part in overview.blocks.items()}
    stability = [statistics.leave_one_dataset_out(part).assign(metric=key) for key, part in ranked.items() if len(part)]
    found["leave_one_out"] = pd.concat(stability).reset_index() if stability else pd.DataFrame()
    return found


def write(report: Report, folder: Path) -> None:
    """All tables as CSV, the score tables also as LaTeX and Markdown."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, frame in frames(report).items():
        frame.to_csv(folder / f"{name}.csv", index=False)
    for key in report.results.metrics:
        (folder / f"scores-{key}.tex").write_text(latex_scores(report.overview, key), encoding="utf-8")
        shown = score_table(report.overview, key)
        text = f"{shown['caption']}\n\n{markdown.table(shown['rows'], ['entry', *shown['heads']])}\n"
        (folder / f"scores-{key}.md").write_text(text, encoding="utf-8")
    (folder / "references.bib").write_text(references.bibliography(report.results), encoding="utf-8")
    (folder / "all.tex").write_text(latex_document(list(report.results.metrics)), encoding="utf-8")
