"""Tables for papers and programs: LaTeX (booktabs), Markdown and CSV, from the same numbers as the pages."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from fsibench.reports import markdown, references
from fsibench.reports.analysis import ranking, statistics
from fsibench.reports.analysis.calibration import table as calibration_table
from fsibench.reports.analysis.failures import failure_table
from fsibench.reports.analysis.options import option_table
from fsibench.reports.analysis.overview import Overview, failure_rule
from fsibench.reports.analysis.report import Report
from fsibench.reports.analysis.results import direction
from fsibench.reports.numbers import with_error
from fsibench.reports.texts import entry_name, score_table

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
    """A table as in the papers: data sets down, entries across, best in bold, second underlined, mean ranks last."""
    metric, blocks = overview.results.metrics[key], overview.blocks[key]
    entries, datasets = [str(entry) for entry in overview.board.index], overview.results.datasets
    lines = [r"\begin{table}", r"\centering", rf"\caption{{{_caption(overview, key)}}}", rf"\label{{tab:{key}}}"]
    lines += [rf"\begin{{tabular}}{{l{'r' * len(entries)}}}", r"\toprule"]
    names = [latex_text(entry_name(entry, overview.board.loc[entry])) for entry in entries]
    lines += [" & ".join(["data set", *names]) + r" \\", r"\midrule"]
    for dataset in datasets:
        lines.append(" & ".join([latex_text(dataset), *_latex_row(overview, dataset, entries, key)]) + r" \\")
    if not blocks.values.empty:
        ranks = ranking.mean_rank(blocks.values, metric.larger_is_better)
        order = list(ranks.sort_values(kind="stable").index)
        cells = [_marked(f"{ranks[entry]:.2f}", entry, order) if entry in ranks.index else "--" for entry in entries]
        lines += [r"\midrule", " & ".join(["mean rank", *cells]) + r" \\"]
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", r"\end{table}"]) + "\n"


def _caption(overview: Overview, key: str) -> str:
    metric = overview.results.metrics[key]
    text = (
        f"{metric.label} ({direction(metric)}): mean ± standard error over splits. Best in bold, second underlined. "
        "Mean rank: over dataset × split."
    )
    if overview.results.failed.any():
        text += f" † contains failed cells; {failure_rule(ranking.CONSTANT in overview.results.entries)}"
    return latex_text(text.replace("`", ""))


def _latex_row(overview: Overview, dataset: str, entries: Sequence[str], key: str) -> list[str]:
    means, scores = overview.means(key, dataset), overview.scores[key]
    order = sorted(means, key=lambda entry: means[entry], reverse=overview.results.metrics[key].larger_is_better)
    cells = []
    for entry in entries:
        row = scores.get((dataset, entry))
        if row is None or entry not in means:
            cells.append("failed" if row is not None and row["failed"] else "--")
            continue
        dagger = r"^\dagger" if row["failed"] else ""
        cells.append(_marked(latex_number(row["mean"], row["standard_error"], row["splits"]) + dagger, entry, order))
    return cells


def _marked(text: str, entry: str, order: Sequence[str]) -> str:
    if order and entry == order[0]:
        return rf"\textbf{{\boldmath${text}$}}"
    if len(order) > 1 and entry == order[1]:
        return rf"\underline{{${text}$}}"
    return f"${text}$"


def latex_document(keys: Sequence[str]) -> str:
    """A document that shows every table; compile it, or copy the `\\input` lines."""
    inputs = "\n".join(rf"\input{{scores-{key}.tex}}" for key in keys)
    return (
        "\\documentclass{article}\n\\usepackage[utf8]{inputenc}\n\\usepackage[T1]{fontenc}\n"
        "\\usepackage{booktabs,amsmath}\n\\usepackage[landscape,margin=1cm]{geometry}\n"
        f"\\begin{{document}}\n\\scriptsize\n{inputs}\n\\end{{document}}\n"
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
    found["ledger"] = pd.DataFrame([vars(line) for line in report.ledger])
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
