"""asv's own pages of the kept results: `asv publish`, with the scripts that it takes from the network beside it.

    python scripts/asv_site.py DIR

The results of `benchmarks/history/` become result files of asv in a scratch folder, so that both kinds of pages show the
same numbers. The scripts come from npm by name and version; without npm the pages ask the network for them.
"""

from __future__ import annotations

import argparse
import itertools
import json
import re
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory

from fsibench.history import record
from fsibench.history.checkouts import Repository
from fsibench.history.trends import middle

MACHINE = "kept"
# address in asv's page -> package of npm, file in it
VENDORED = {
    "jquery-3.3.1.min.js": ("jquery@3.3.1", "dist/jquery.min.js"),
    "jquery.flot.min.js": ("flot@0.8.3", "jquery.flot.js"),
    "jquery.flot.time.min.js": ("flot@0.8.3", "jquery.flot.time.js"),
    "jquery.flot.selection.min.js": ("flot@0.8.3", "jquery.flot.selection.js"),
    "jquery.flot.categories.min.js": ("flot@0.8.3", "jquery.flot.categories.js"),
    "jquery.flot.orderBars.js": ("flot-orderbars@1.0.0", "js/jquery.flot.orderBars.js"),
    "stupidtable.min.js": ("stupid-table-plugin@1.1.3", "stupidtable.min.js"),
    "md5.min.js": ("blueimp-md5@2.19.0", "js/md5.min.js"),
    "bootstrap.min.js": ("bootstrap@3.1.1", "dist/js/bootstrap.min.js"),
    "bootstrap.min.css": ("bootstrap@3.1.1", "dist/css/bootstrap.min.css"),
}
Parameters = tuple[str, ...]


def split_name(series: str) -> tuple[str, Parameters]:
    """`steps.Step.time_step(bbb)` as asv has it: the benchmark, and its parameters one by one."""
    name, _, inside = series.partition("(")
    # commas inside brackets belong to an entry's options
    return name, tuple(re.split(r", (?![^\[]*\])", inside.removesuffix(")"))) if inside else ()


def axes(names: Iterable[str]) -> dict[str, list[list[str]]]:
    """For each benchmark the values of each of its parameters."""
    found: dict[str, list[dict[str, None]]] = {}
    for series in names:
        name, parameters = split_name(series)
        columns = found.setdefault(name, [{} for _ in parameters])
        for column, value in zip(columns, parameters, strict=True):
            column[value] = None
    return {name: [list(column) for column in columns] for name, columns in found.items()}


def write_results(records: Iterable[record.CommitRecord], folder: Path) -> None:
    """Files in asv's format, version 2."""
    records = list(records)
    benchmarks = axes(sorted({name for kept in records for name in kept.series}))
    units = {split_name(name)[0]: found.unit for kept in records for name, found in kept.series.items()}
    machine = folder / MACHINE
    machine.mkdir(parents=True)
    (machine / "machine.json").write_text(json.dumps({"machine": MACHINE, "version": 1}))
    described = {
        name: {
            "name": name, "type": "track", "unit": units[name], "params": [[repr(value) for value in axis] for axis in columns],
            "param_names": ["entry", "of", "with"][: len(columns)], "version": "1", "code": "", "timeout": 60.0,
        }
        for name, columns in benchmarks.items()
    }  # fmt: skip
    (folder / "benchmarks.json").write_text(json.dumps({**described, "version": 2}))
    for kept in records:
        values = {name: middle(found.values, found.unit) for name, found in kept.series.items()}
        results = {}
        for name, columns in benchmarks.items():
            products = list(itertools.product(*columns))
            full = [values.get(f"{name}({', '.join(one)})" if one else name) for one in products]
            if any(value is not None for value in full):
                results[name] = [full, [[repr(value) for value in axis] for axis in columns], "1"]
        content = {
            "commit_hash": kept.sha, "env_name": "shared", "date": int(datetime.fromisoformat(kept.date).timestamp() * 1000),
            "params": {"machine": MACHINE}, "python": "", "requirements": {}, "env_vars": {},
            "result_columns": ["result", "params", "version"], "results": results, "durations": {}, "version": 2,
        }  # fmt: skip
        (machine / f"{kept.sha[:8]}-shared.json").write_text(json.dumps(content))


def publish(repository: Repository, results: Path, out: Path) -> None:
    configuration = {
        "version": 1, "project": "fsibench", "project_url": ".", "repo": str(repository.root), "dvcs": "git",
        "branches": ["HEAD"], "environment_type": "existing", "show_commit_url": "#",
        "benchmark_dir": str(repository.root / "benchmarks"), "results_dir": str(results), "html_dir": str(out),
        # asv takes every larger value for a worse one, so that it may not judge scores
        "regressions_first_commits": {".*track_.*": None},
    }  # fmt: skip
    file = results.parent / "asv.conf.json"
    file.write_text(json.dumps(configuration))
    shutil.rmtree(out, ignore_errors=True)
    subprocess.run([sys.executable, "-m", "asv", "publish", "--config", str(file)], check=True, cwd=results.parent)


def vendor(out: Path) -> bool:
    """Put asv's scripts beside its page; False where npm cannot bring them."""
    npm = shutil.which("npm")
    if npm is None:
        return False
    page = out / "index.html"
    text = page.read_text(encoding="utf-8")
    with TemporaryDirectory() as scratch:
        for name, (package, file) in VENDORED.items():
            if subprocess.run([npm, "pack", "--silent", package], check=False, cwd=scratch, capture_output=True).returncode != 0:
                return False
            (packed,) = Path(scratch).glob("*.tgz")
            with tarfile.open(packed) as archive:
                found = archive.extractfile(f"package/{file}")
                assert found is not None
                (out / "vendor").mkdir(exist_ok=True)
                (out / "vendor" / name).write_bytes(found.read())
            packed.unlink()
            text = re.sub(rf'(src|href)="https://[^"]*/{re.escape(name)}"[^>]*?(?=/?>)', rf'\1="vendor/{name}" ' + ('rel="stylesheet"' if name.endswith(".css") else ""), text)
    text = re.sub(r'<link rel="stylesheet" (href="vendor/bootstrap.min.css") rel="stylesheet"', r'<link rel="stylesheet" \1', text)
    page.write_text(text, encoding="utf-8")
    return True


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, metavar="DIR")
    arguments = parser.parse_args()
    repository = Repository(Path.cwd())
    shas = [commit.sha for commit in repository.commits("HEAD")]
    records = record.in_order(record.read_all(repository.root / record.FOLDER), shas)
    with TemporaryDirectory() as scratch:
        write_results(records, Path(scratch) / "results")
        publish(repository, Path(scratch) / "results", arguments.out.resolve())
    if not vendor(arguments.out):
        print("npm is missing or offline: asv's pages will ask the network for their scripts", file=sys.stderr)
    print(f"{arguments.out / 'index.html'}: {len(records)} commits; serve the folder, asv's pages do not open from disk")
    return 0


if __name__ == "__main__":
    sys.exit(main())
