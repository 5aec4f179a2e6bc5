"""Discovery: by folder, by entry point, by file; broken and doubled plugins harm nobody."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fsibench import registry
from fsibench.cli import list as listing
from fsibench.cli import main
from fsibench.errors import UsageError
from fsibench.harness.plan import load_protocol

ODD = Path(__file__).parent / "support" / "odd_methods.py"

PLUGIN = '''
from dataclasses import dataclass
from typing import ClassVar
from fsibench import Method

@dataclass(frozen=True)
class Mine(Method):
    """A method of another package."""
    name: ClassVar[str] = "{name}"
    def fit(self, train, budget, generator):
        yield None
'''


@pytest.fixture
def fresh_registry() -> Iterator[None]:
    registry.methods.cache_clear()
    yield
    registry.methods.cache_clear()


def install_plugin(folder: Path, module: str, content: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What pip leaves behind for a package with an entry point."""
    (folder / f"{module}.py").write_text(content)
    info = folder / f"{module}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[fsibench.methods]\n{module} = {module}\n")
    monkeypatch.syspath_prepend(str(folder))


def test_the_files_in_the_methods_folder_are_methods() -> None:
    assert {"constant", "linear", "gp", "bbb"} <= set(registry.methods().items)
    assert not registry.methods().broken


@pytest.mark.usefixtures("fresh_registry")
def test_an_installed_package_adds_a_method(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install_plugin(tmp_path, "plugin_good", PLUGIN.format(name="mine"), monkeypatch)
    assert registry.entry("mine").label == "mine"


@pytest.mark.usefixtures("fresh_registry")
def test_a_broken_plugin_is_shown_with_its_error_and_breaks_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_plugin(tmp_path, "plugin_broken", "import nothing_of_this_name\n", monkeypatch)
    assert registry.entry("constant").label == "constant"
    rows = {row["name"]: row for row in listing.methods()}
    assert "No module named 'nothing_of_this_name'" in rows["plugin_broken"]["what"]
    with pytest.raises(UsageError, match=r"plugin_broken.*cannot be loaded.*nothing_of_this_name"):
        registry.entry("plugin_broken")


@pytest.mark.usefixtures("fresh_registry")
@pytest.mark.parametrize("how", ["import sys; sys.exit(3)", "raise SystemExit", "raise GeneratorExit"])
def test_a_plugin_that_ends_the_program_at_import_breaks_only_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    name = f"plugin_exit_{len(how)}"
    install_plugin(tmp_path, name, f"{how}\n", monkeypatch)
    assert registry.entry("constant").label == "constant"
    assert "BROKEN" in {row["name"]: row for row in listing.methods()}[name]["what"]
    (tmp_path / "leaves.py").write_text(f"{how}\n")
    with pytest.raises(UsageError, match=r"leaves\.py cannot be loaded"):
        registry.entry(f"{tmp_path}/leaves.py:Mine")


@pytest.mark.usefixtures("fresh_registry")
def test_a_name_offered_twice_is_an_error_that_names_both(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install_plugin(tmp_path, "plugin_double", PLUGIN.format(name="bbb"), monkeypatch)
    with pytest.raises(UsageError, match=r"offered twice: by .*bbb\.py and by the installed package plugin_double"):
        registry.entry("bbb")
    assert registry.entry("constant").label == "constant"
    assert "TWICE" in {row["name"]: row for row in listing.methods()}["bbb"]["what"]


def test_a_file_adds_a_method_with_options() -> None:
    entry = registry.entry(f"{ODD}:RandomWalk[size=2]")
    assert entry.label == "walk[size=2]"
    assert entry.file == f"{ODD}:RandomWalk"
    assert registry.method_class(entry.file).name == "walk"


def test_a_file_that_takes_a_built_in_name_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(PLUGIN.format(name="bbb"))
    with pytest.raises(UsageError, match="offered twice"):
        registry.entry(f"{path}:Mine")


@pytest.mark.parametrize(
    ("reference", "sentence"),
    [
        ("bb", "did you mean 'bbb'"),
        ("./absent.py:Class", "there is no file"),
        (f"{ODD}:NoOpp", "did you mean 'NoOp'"),
        (f"{ODD}:NotAMethod", "not a fsibench Method"),
        (f"{ODD}:RandomWalk[speed=1]", "unknown option of walk 'speed'"),
    ],
)
def test_every_mistake_is_one_sentence(reference: str, sentence: str) -> None:
    with pytest.raises(UsageError) as caught:
        registry.entry(reference)
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_file_with_a_syntax_error_is_named(tmp_path: Path) -> None:
    path = tmp_path / "broken.py"
    path.write_text("def :\n")
    with pytest.raises(UsageError, match=r"broken\.py cannot be loaded: SyntaxError: invalid syntax \(line 1\)"):
        registry.entry(f"{path}:Mine")


def test_a_file_that_fails_is_named_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "fails.py"
    path.write_text("import math\n\nimport nothing_of_this_name\n")
    with pytest.raises(UsageError, match=r"fails\.py cannot be loaded: ModuleNotFoundError.* \(line 3\)"):
        registry.entry(f"{path}:Mine")


def test_a_file_without_a_class_says_which_there_are(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(PLUGIN.format(name="mine") + "\nclass Helper:\n    pass\n")
    with pytest.raises(UsageError, match=r"mine\.py is a file; write .*mine\.py:CLASS with one of its classes: Mine\."):
        registry.entry(str(path))
    with pytest.raises(UsageError, match=r"Available: Mine\."):
        registry.entry(f"{path}:Other")
    with pytest.raises(UsageError, match=r"one of its classes: none\."):
        registry.dataset(str(path))


def test_options_without_a_dataclass_are_explained(tmp_path: Path) -> None:
    path = tmp_path / "plain.py"
    path.write_text(PLUGIN.format(name="plain").replace("@dataclass(frozen=True)", "").replace("    def", "    rate: float = 1.0\n    def"))
    with pytest.raises(UsageError, match=r"Mine has options \(rate\) and is no dataclass; write @dataclass\(frozen=True\) above it"):
        registry.entry(f"{path}:Mine")


DATASET = '''
from dataclasses import dataclass
import numpy as np
from fsibench.data import Description, Table, TableDataset

@dataclass(frozen=True)
class Wave(TableDataset):
    {option}: int = 30
    def describe(self):
        return Description(name=self.name, rows=30, inputs=1, target="y", source="formula", available=True)
    {table}
'''


@pytest.mark.parametrize(
    ("option", "table", "sentence"),
    [
        ("rows", "def table(self): ...", "the option `rows` of Wave hides `TableDataset.rows`; give it another name"),
        ("count", "", "Wave is no complete data set: it has no `table`"),
    ],
)
def test_a_data_set_that_cannot_work_is_one_sentence(option: str, table: str, sentence: str, tmp_path: Path) -> None:
    path = tmp_path / f"wave_{option}.py"
    path.write_text(DATASET.format(option=option, table=table))
    with pytest.raises(UsageError) as caught:
        registry.dataset(f"{path}:Wave")
    assert sentence in str(caught.value)


def test_a_data_set_that_changes_is_refused_with_the_cure(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "wave_random.py"
    table = "def table(self): return Table(np.random.rand(30, 1), np.random.rand(30), ('x',), 'y')"
    path.write_text(DATASET.format(option="count", table=table))
    words = ["run", "smoke", "--methods", "constant", "--datasets", f"{path}:Wave", "--executor", "inline"]
    assert main([*words, "--store", str(tmp_path / "s.sqlite")]) == 1
    assert "has other values each time that it is loaded; draw its random numbers from a generator with a fixed seed" in capfd.readouterr().err


def test_data_sets_take_options_like_methods() -> None:
    small = registry.dataset("bimodal[num_train=30,num_test=20]").split("paper", 0)
    assert (len(small.train_y), len(small.test_y)) == (30, 20)
    with pytest.raises(UsageError, match="did you mean 'num_train'"):
        registry.dataset("bimodal[num_trian=30]")
    with pytest.raises(UsageError, match="did you mean 'boston'"):
        registry.dataset("bostn")


def install_group(folder: Path, group: str, module: str, content: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package of its own folder with an entry point of a group."""
    home = folder / module
    home.mkdir()
    (home / "__init__.py").write_text(content)
    info = folder / f"{module}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[{group}]\n{module} = {module}\n")
    monkeypatch.syspath_prepend(str(folder))


def test_broken_protocols_of_a_plugin_break_only_themselves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for module, content in (("cut_off", "methods = ["), ("doubled", 'title = "mine"')):
        install_group(tmp_path, "fsibench.protocols", module, "", monkeypatch)
        (tmp_path / module / ("quick.toml" if module == "doubled" else f"{module}.toml")).write_text(content)
    install_group(tmp_path, "fsibench.protocols", "not_imported", "1 / 0", monkeypatch)
    install_group(tmp_path, "fsibench.protocols", "bare", "", monkeypatch)
    rows = {row["name"]: row for row in listing.protocols()}
    assert "is not valid TOML" in rows["cut_off"]["title"]
    assert "is offered twice" in rows["quick"]["title"]
    assert "ZeroDivisionError" in rows["not_imported"]["title"]
    assert "no TOML file lies beside it" in rows["bare"]["title"]
    assert rows["smoke"]["scheme"] == "paper"
    assert load_protocol("smoke", {}).name == "smoke"
    with pytest.raises(UsageError, match=r"protocol 'quick' is offered twice: by .*quick\.toml and by the installed package doubled"):
        load_protocol("quick", {})
    assert main(["list"]) == 0
    assert "cut_off (BROKEN)" in capsys.readouterr().out


@pytest.mark.usefixtures("fresh_registry")
def test_an_entry_point_that_gives_nothing_is_listed_with_the_cure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install_group(tmp_path, "fsibench.methods", "hollow", "from fsibench import Method", monkeypatch)
    assert "it defines no Method; name the module that does" in {row["name"]: row for row in listing.methods()}["hollow"]["what"]


@pytest.mark.usefixtures("fresh_registry")
def test_a_broken_plugin_with_the_name_of_a_method_does_not_take_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_group(tmp_path, "fsibench.methods", "linear", "1 / 0", monkeypatch)
    assert "ZeroDivisionError" in registry.methods().broken["linear"]
    assert registry.entry("linear").label == "linear"


FAILS_IN_DESCRIBE = '''
from dataclasses import dataclass
from fsibench.data import TableDataset

@dataclass(frozen=True)
class Wave(TableDataset):
    def describe(self):
        return self.nothing
    def table(self): ...

DATASETS = (Wave("silent_wave"),)
'''


def test_a_data_set_that_cannot_describe_itself_is_listed_with_its_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    registry.datasets.cache_clear()
    install_group(tmp_path, "fsibench.datasets", "silent", FAILS_IN_DESCRIBE, monkeypatch)
    rows = {row["name"]: row for row in listing.datasets()}
    registry.datasets.cache_clear()
    assert "BROKEN: AttributeError: 'Wave' object has no attribute 'nothing' (describe, line 8 of __init__.py)" in rows["silent_wave"]["note"]
    assert rows["yacht"]["rows"] == 308


def test_a_source_that_fails_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    registry.sources.cache_clear()
    content = "PREFIX = 'pre:'\ndef resolve(text):\n    raise KeyError(text)\n"
    install_group(tmp_path, "fsibench.datasets", "pre_source", content, monkeypatch)
    with pytest.raises(UsageError, match=r"the plugin pre_source cannot read 'pre:x': KeyError: 'pre:x' \(resolve, line 3"):
        registry.dataset("pre:x")
    registry.sources.cache_clear()


def test_a_broken_prior_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install_group(tmp_path, "fsibench.priors", "broken_prior", "1 / 0", monkeypatch)
    with pytest.raises(UsageError, match=r"'broken_prior' of fsibench.priors cannot be loaded: ZeroDivisionError: division by zero"):
        registry.entry("sip[prior=broken_prior]")


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("1 / 0", "ZeroDivisionError: division by zero"),
        ("def add_parser(commands):\n    raise ValueError('half done')", "ValueError: half done (add_parser, line 2"),
        ("def add_parser(commands):\n    commands.add_parser('list')", "conflicting subparser: list"),
        ("", "has no attribute 'add_parser'"),
    ],
)
def test_a_broken_command_breaks_only_itself(
    content: str, sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    name = f"command_{len(content)}"
    install_group(tmp_path, "fsibench.commands", name, content, monkeypatch)
    assert main(["list", "metrics"]) == 0
    printed = capsys.readouterr()
    assert "root mean squared error" in printed.out
    assert f"the command {name!r} of a plugin cannot be loaded" in printed.err
    assert sentence in printed.err


def test_a_command_without_a_handler_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    install_group(tmp_path, "fsibench.commands", "idle", "def add_parser(commands):\n    commands.add_parser('idle')", monkeypatch)
    assert main(["idle"]) == 2
    assert "its parser sets no `handler`" in capsys.readouterr().err


GROUPS = {
    "fsibench.methods": "method", "fsibench.datasets": "dataset", "fsibench.metrics": "metric", "fsibench.protocols": "protocol",
    "fsibench.pages": "page", "fsibench.priors": "prior", "fsibench.commands": "command",
}  # fmt: skip


def listed(*words: str) -> str:
    """What `fsibench list` prints in a new process, with the plugins of the path."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-m", "fsibench", "list", *words]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout


def test_the_list_of_all_names_ends_with_the_broken_plugins_of_every_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for group, kind in GROUPS.items():
        install_group(tmp_path, group, f"broken_{kind}", f"raise ValueError('no {kind}\\nhere')", monkeypatch)
    lines = listed().partition("\nbroken\n")[2].splitlines()
    assert [line.split(":")[0].split() for line in lines] == [[kind, f"broken_{kind}"] for kind in GROUPS.values()]
    assert all(f"ValueError: no {kind} here" in line for line, kind in zip(lines, GROUPS.values(), strict=True))
    assert json.loads(listed("--json"))["broken"] == [line.strip() for line in lines]


def test_a_sound_prior_of_a_plugin_costs_the_list_no_import_of_torch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = "from fsibench.blocks.priors import ReferencePrior as Prior"
    install_group(tmp_path, "fsibench.priors", "sound_prior", content, monkeypatch)
    (tmp_path / "sound_prior-1.0.dist-info" / "entry_points.txt").write_text("[fsibench.priors]\nsound_prior = sound_prior:Prior\n")
    assert "broken" not in listed()  # and makes the index
    program = "import sys; from fsibench.cli import main; main(['list']); assert 'torch' not in sys.modules"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run([sys.executable, "-c", program], env=environment, check=True)


def test_a_data_set_whose_code_fails_is_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "wave_fails.py"
    table = "def table(self): return Table(np.zeros((self.count, 1)), np.zeros(self.count), ('x',), 'y')"
    path.write_text(DATASET.format(option="count", table=table))
    words = ["run", "smoke", "--methods", "constant", "--datasets"]
    assert main([*words, f"{path}:Wave[count=-5]"]) == 2
    assert "`table` of" in (told := capsys.readouterr().err)
    assert "failed: ValueError: negative dimensions are not allowed (table, line 11 of wave_fails.py)" in told
    assert main([*words, f"{path}:Wave[count=few]"]) == 2
    assert "wave_fails.py:Wave[count=...] must be a whole number; got 'few'" in capsys.readouterr().err
