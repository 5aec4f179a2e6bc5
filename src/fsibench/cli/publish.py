"""`fsibench publish`: committed results into the site, tables, pictures and the sentences of README and documentation."""

from __future__ import annotations

import argparse
import hashlib
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fsibench.cli.exits import FAILED, OK
from fsibench.errors import UsageError

if TYPE_CHECKING:
    import pandas as pd

    from fsibench.reports.publication import Publication

MAIN = "uci"
STAMP = "site/made-from.txt"
MOST_SITE_BYTES = 10_000_000


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "publish",
        help="committed results into site, tables, pictures, README and docs; --check says whether they are up to date",
    )
    parser.add_argument("--folder", type=Path, default=Path("leaderboard"), metavar="DIR", help="with the packed store (default: %(default)s)")
    parser.add_argument("--from", dest="source", type=Path, metavar="STORE", help="first take over the cells of this store")
    parser.add_argument("--name", default=MAIN, help="into which packed store: NAME.parquet (default: %(default)s, the board itself)")
    parser.add_argument("--check", action="store_true", help="write nothing; exit code 1 and a list where something is out of date")
    parser.set_defaults(handler=_publish)


def _publish(arguments: argparse.Namespace) -> int:
    from fsibench.reports.publication import Publication, drawn

    folder, packed = arguments.folder, arguments.folder / f"{MAIN}.parquet"
    if arguments.source is not None and not arguments.check:
        _take_over(arguments.source, folder / f"{arguments.name}.parquet")
    if not packed.is_file():
        raise UsageError(f"there are no committed results at {packed}; --from STORE makes them from a run's store.")
    board = Publication.read(packed, folder / "board.toml")
    texts = list(_texts(board, folder))
    stale = [path for path, text in texts if not path.is_file() or path.read_text(encoding="utf-8") != text]
    stamp = folder / STAMP
    if awaited := sorted(set().union(*(board.awaited(text) for _, text in texts))):
        print(f"no results of {', '.join(awaited)} yet: their places stay empty (`fsibench publish --name NAME --from STORE`)", file=sys.stderr)
    old_site = not stamp.is_file() or stamp.read_text(encoding="utf-8") != _stamp(packed)
    if arguments.check:
        for path in [*stale, *([stamp.parent] if old_site else [])]:
            print(f"{path} is out of date: run `fsibench publish`", file=sys.stderr)
        return FAILED if stale or old_site else OK
    for path, text in texts:
        path.write_text(text, encoding="utf-8")
    for name, picture in drawn(board).items():
        (folder / name).write_bytes(picture)
    _site(packed, folder)
    print(f"{len(board.report.results.cells)} cells -> {folder / 'site' / 'index.html'}, README and docs")
    return OK


def _take_over(source: Path, packed: Path) -> None:
    """The packed store with the cells of another one; replaced cells of older code are dropped."""
    from fsibench.harness.store import Store

    with tempfile.TemporaryDirectory() as temporary, Store.create(Path(temporary) / "merged.sqlite") as store:
        taken = store.merge(source)
        if packed.is_file():
            taken += store.merge(packed)
        store.collect_garbage()
        kept = store.pack(packed)
    print(f"{kept} cells in {packed} ({taken - kept} replaced ones dropped), {packed.stat().st_size / 1e6:.2f} MB")


def _texts(board: Publication, folder: Path) -> Iterator[tuple[Path, str]]:
    """Every text file that is made from the packed store, with its content."""
    from fsibench.reports.publication import MARKER, filled
    from fsibench.reports.published_tables import ledger_table, rows_table

    stem = board.store.stem
    yield folder / f"{stem}-rows.csv", _csv(rows_table(board))
    yield folder / "ledger.csv", _csv(ledger_table(board))
    root = folder.parent
    for page in [root / "README.md", folder / "README.md", *sorted((root / "docs").glob("*.md"))]:
        text = page.read_text(encoding="utf-8") if page.is_file() else ""
        if MARKER.search(text):
            yield page, filled(text, page, board)


def _csv(table: pd.DataFrame) -> str:
    """Ten digits: the last ones of a mean depend on the processor, and --check compares texts."""
    text: str = table.to_csv(index=False, lineterminator="\n", float_format="%.10g")
    return text


def _stamp(packed: Path) -> str:
    return f"{packed.name} sha256 {hashlib.sha256(packed.read_bytes()).hexdigest()}\n"


def _site(packed: Path, folder: Path) -> None:
    """The site in a fresh folder, then in place of the old one."""
    from fsibench.reports import site
    fresh = folder / "site.new"
    shutil.rmtree(fresh, ignore_errors=True)
    site.build(packed, fresh)
    (fresh / Path(STAMP).name).write_text(_stamp(packed), encoding="utf-8")
    total = sum(path.stat().st_size for path in fresh.rglob("*") if path.is_file())
    if total > MOST_SITE_BYTES:
        print(f"the site has {total / 1e6:.1f} MB, more than {MOST_SITE_BYTES / 1e6:.0f} MB: leave entries or splits out", file=sys.stderr)
    shutil.rmtree(folder / "site", ignore_errors=True)
    fresh.replace(folder / "site")
