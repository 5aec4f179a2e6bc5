"""`fsibench new`: what it writes works as it is."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from fsibench import registry, scaffold
from fsibench.cli import main
from fsibench.errors import UsageError
from fsibench.harness.plan import load_protocol
from fsibench.testing import check_method, check_names

# The slow checks of the generated method run once, in its own project below.
QUICK = [name for name in check_names() if name in ("shapes_are_right", "same_seed_same_result", "odd_data_are_survived")]


def install(project: Path, site: Path) -> None:
    """What `pip install -e` leaves behind: entry points, and the sources on the path."""
    content = tomllib.loads((project / "pyproject.toml").read_text())["project"]
    information = site / f"{content['name'].replace('-', '_')}-{content['version']}.dist-info"
    information.mkdir(parents=True)
    (information / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {content['name']}\nVersion: {content['version']}\n")
    lines = [f"[{group}]\n{name} = {value}\n" for group, points in content["entry-points"].items() for name, value in points.items()]
    (information / "entry_points.txt").write_text("".join(lines))


def test_a_new_method_keeps_the_contract_as_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["new", "method", "my_features", "--folder", str(tmp_path)]) == 0
    reference = f"{tmp_path}/my_features.py:MyFeatures"
    assert f"fsibench check {reference}" in capsys.readouterr().out
    for name in QUICK:
        check_method(reference, name)


def test_a_new_data_set_and_a_new_protocol_run_as_written(tmp_path: Path) -> None:
    data = scaffold.write_file("dataset", "ring_down", tmp_path)
    assert len(registry.dataset(f"{data}:RingDown[num_rows=40]").split("standard", 0).test_y) == 4
    fingerprints = {registry.dataset(f"{data}:RingDown[{option}]").fingerprint() for option in ("num_rows=40", "dedupe=true", "train_rows=9")}
    assert len(fingerprints) == 3, "options are part of the identity"
    protocol = load_protocol(str(scaffold.write_file("protocol", "mine", tmp_path)), {})
    assert (len(protocol.splits), protocol.seconds) == (5, 10.0)


@pytest.mark.slow
def test_projects_of_every_kind_pass_their_own_tests_once_installed(tmp_path: Path) -> None:
    projects = [scaffold.write_package(kind, f"new_{kind}", tmp_path) for kind in scaffold.KINDS]
    site = tmp_path / "site"
    for project in projects:
        install(project, site)
    path = os.pathsep.join([str(site), *(str(project / "src") for project in projects)])
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *map(str, projects)]
    environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, check=False, capture_output=True, text=True, cwd=tmp_path, env=environment)
    assert f"{len(check_names()) + 4} passed" in done.stdout, done.stdout[-3000:]


@pytest.mark.parametrize("kind", scaffold.KINDS)
def test_nothing_of_a_template_is_left_over(kind: str, tmp_path: Path) -> None:
    project = scaffold.write_package(kind, "a_b", tmp_path)
    files = [path for path in project.rglob("*") if path.is_file()]
    assert {"pyproject.toml", "README.md", "noxfile.py", "test_a_b.py", "__init__.py"} <= {path.name for path in files}
    for path in files:
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"\$[A-Za-z{]", text), path
        if path.suffix == ".py":
            ast.parse(text)


def test_nothing_is_overwritten_and_names_are_checked(tmp_path: Path) -> None:
    scaffold.write_file("method", "mine", tmp_path)
    scaffold.write_package("method", "mine", tmp_path)
    for write in (scaffold.write_file, scaffold.write_package):
        with pytest.raises(UsageError, match="exists already"):
            write("method", "mine", tmp_path)
        with pytest.raises(UsageError, match=r"begins with a letter; got '\.\./evil'"):
            write("method", "../evil", tmp_path)


@pytest.mark.parametrize(
    ("kind", "name", "sentence"),
    [
        ("method", "gp", "there is a method 'gp' already"),
        ("dataset", "yacht", "there is a dataset 'yacht' already"),
        ("metric", "rmse", "there is a metric 'rmse' already"),
        ("metric", "train_seconds", "is taken by a column of the store"),
        ("protocol", "quick", "there is a protocol 'quick' already"),
        ("method", "none", "'none' is a word of Python"),
        ("method", "torch", "torch.py would hide the module 'torch'"),
    ],
)
def test_a_name_that_would_not_work_is_refused(kind: str, name: str, sentence: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=re.escape(sentence)):
        scaffold.write_file(kind, name, tmp_path)
    assert not list(tmp_path.iterdir())
