"""The report as one Markdown file, and Markdown tables."""

from __future__ import annotations

from collections.abc import Sequence

from tabulate import tabulate

from fsibench.reports.analysis.failures import failure_table
from fsibench.reports.analysis.options import option_table
from fsibench.reports.analysis.report import Report
from fsibench.reports.texts import board_heads, board_rows, conditions_sentence, run_texts, score_table

MOST_FAILURES = 500


def document(report: Report, drawn: Sequence[tuple[str, str]]) -> str:
    """Ranking, scores, figures, failures, how to reproduce."""
    overview, results = report.overview, report.results
    parts = [f"# {report.title}", conditions_sentence(results.cells)]
    parts += [_text(report.verdict), *(f"- {_text(sentence)}" for sentence in overview.caveats)]
    parts += ["## Ranking", "Mean rank: over dataset × split. Rank of means: over data sets. Lower is better."]
    parts.append(table(board_rows(overview), ["entry", *board_heads(overview)]))
    for shown in (score_table(overview, key) for key in results.metrics):
        parts += [f"## {shown['title']}", shown["caption"], table(shown["rows"], ["entry", *shown["heads"]])]
    if drawn:
        parts += ["## Figures", *(f"![{title}](figures/{file})" for file, title in drawn)]
    options = option_table(results)[["entry", "option", "value", "whose"]]
    if len(options):
        parts += ["## Options", table(options.to_numpy().tolist(), list(options.columns))]
    heads = ["entry", "dataset", "split", "status", "message"]
    rows = failure_table(results)[heads].head(MOST_FAILURES).to_numpy().tolist()
    parts += ["## Failures", table(rows, heads) if rows else "None."]
    runs = [run_texts(run) for run in results.runs]
    parts += ["## Reproduce", *(f"```\n{run['command']}\n```\n\n```json\n{run['environment']}\n```" for run in runs)]
    return "\n\n".join(part for part in parts if part) + "\n"


def table(rows: Sequence[Sequence[str]], heads: Sequence[str]) -> str:
    """A Markdown table; pipes and line ends in names cannot break it."""
    safe = [[_text(cell) for cell in row] for row in rows]
    return tabulate(safe, [_text(head) for head in heads], "github", disable_numparse=True)


def _text(text: object) -> str:
    shown = str(text).replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;").replace("\r", "")
    return shown.replace("\n", " ")
