"""One way in: what continuous integration does, nox does, and nothing else.

Every session installs with `-c constraints.txt`, which pins the torch that our numbers were made with.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import nox

nox.needs_version = ">=2025.2.9"
nox.options.default_venv_backend = "venv"
nox.options.reuse_venv = "yes"
nox.options.sessions = ["lint", "types", "tests"]

CONSTRAINTS = ("-c", "constraints.txt")
PROJECT = nox.project.load_toml("pyproject.toml")
ONE_THREAD = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


def install(session: nox.Session, *what: str, groups: tuple[str, ...] = ()) -> None:
    """Install the project as given plus dependency groups, always with the constraints."""
    packages = nox.project.dependency_groups(PROJECT, *groups) if groups else ()
    session.install(*CONSTRAINTS, *what, *packages)


@nox.session
def tests(session: nox.Session) -> None:
    """All tests, slow ones included; arguments go to pytest."""
    install(session, "-e", ".[openml,gp,dask]", groups=("test",))
    session.run("pytest", "-n", "2", *session.posargs, env=ONE_THREAD)


@nox.session
def lint(session: nox.Session) -> None:
    """ruff over everything."""
    session.install(*nox.project.dependency_groups(PROJECT, "lint"))
    session.run("ruff", "check", *session.posargs, ".")


@nox.session
def types(session: nox.Session) -> None:
    """mypy, strict, on a regular install: mapped packages are invisible to it in an editable one."""
    shutil.rmtree("build", ignore_errors=True)
    install(session, ".[openml]", groups=("types",))
    session.run("mypy", *session.posargs)


@nox.session
def leaderboard(session: nox.Session) -> None:
    """Run a protocol (default: quick) and write its report; arguments go to `fsibench run`."""
    install(session, "-e", ".[gp]")
    arguments = session.posargs or ["quick"]
    # 1 means that some cells failed: the report shows which, so it is written all the same.
    session.run("fsibench", "run", *arguments, success_codes=[0, 1])
    store = [arguments[i + 1] for i, argument in enumerate(arguments[:-1]) if argument == "--store"]
    session.run("fsibench", "report", *(["--store", store[0]] if store else []))


@nox.session
def docs(session: nox.Session) -> None:
    """The documentation site with its gallery and notebooks, warnings as errors; arguments go to sphinx-build."""
    install(session, "-e", ".[gp,sklearn]", groups=("docs",))
    session.run("sphinx-build", "-W", "--keep-going", "-b", "html", "docs", "docs/_build/html", *session.posargs, env=ONE_THREAD)
    session.run("python", "scripts/open_docs.py", "docs/_build/html")


@nox.session
def examples(session: nox.Session) -> None:
    """Install every package under examples/, run their tests, and rank them beside the built-in methods."""
    folders = sorted(str(path.parent) for path in Path("examples").glob("*/pyproject.toml"))
    install(session, "-e", ".", *folders, "pytest")
    # laplace-torch asks for torchvision, which does not load beside a CPU-sized torch; nothing here uses it
    session.run("python", "-m", "pip", "uninstall", "--yes", "--quiet", "torchvision")
    for folder in folders:  # one by one: each has a configuration of its own
        session.run("pytest", "-q", folder, env=ONE_THREAD)
    store = str(Path(session.create_tmp()).resolve() / "examples.sqlite")
    entries = "constant,gp,sip,sklearn_gp,laplace_torch,ngboost,quantile_forest"
    # CPU seconds: a machine with other work takes longer and gives the same
    data = ("--datasets", "yacht,sk:diabetes", "--clock", "cpu")
    session.run("fsibench", "run", "quick", "--methods", entries, *data, "--store", store)
    session.run("fsibench", "report", "--terminal", "--metrics", "median_error", "--store", store)
    session.run("fsibench", "report", "--store", store)
    if not Path(store).with_name("examples-report").joinpath("median-error.html").is_file():
        session.error("the page of examples/median-error is not in the report")


EXPERIMENTS = (
    *("figure1", "alternatives", "inducing-snelson", "inducing-composite", "forward-kl", "adaptive-contrast", "uci", "large"),
    *("alpha-sweep", "inducing-sweep", "noise-floor"),
)
# Experiments that no protocol can be: within one fit.
STUDIES = {"gradients": "scripts/gradient_study.py", "samples": "scripts/sample_study.py"}


@nox.session
def experiments(session: nox.Session) -> None:
    """Every experiment of docs/experiments.md in its short form, end to end; names as arguments run only those."""
    install(session, "-e", ".[gp]")
    folder = Path("results") / "experiments"
    for name in session.posargs or (*EXPERIMENTS, *STUDIES):
        if name in STUDIES:
            out = ("--out", str(folder / name)) if name == "gradients" else ()
            session.run("python", STUDIES[name], "--lite", *out, env=ONE_THREAD)
            continue
        store = str(folder / f"{name}.sqlite")
        session.run("fsibench", "run", name, "--lite", "--store", store)
        session.run("fsibench", "report", "--store", store, "--figures", "svg")


@nox.session
def bench(session: nox.Session) -> None:
    """asv on the current commit; arguments go to `asv run`."""
    session.install(*nox.project.dependency_groups(PROJECT, "bench"))
    session.run("asv", "machine", "--yes")
    session.run("asv", "run", *(session.posargs or ["--show-stderr", "HEAD^!"]))


@nox.session
def gate(session: nox.Session) -> None:
    """Is the last commit slower, larger or worse than another? `-- BASE [HEAD]`; fails on a regression."""
    install(session, "-e", ".[gp]")
    session.run("fsibench", "gate", *(session.posargs or ["HEAD~1"]), env=ONE_THREAD)


@nox.session(name="bench-compare")
def bench_compare(session: nox.Session) -> None:
    """Two commits side by side, every row shown: `-- BASE HEAD`. asv's own comparison cannot judge scores."""
    install(session, "-e", ".[gp]")
    session.run("fsibench", "gate", *session.posargs, "--all", env=ONE_THREAD, success_codes=[0, 1])


@nox.session(name="bench-history")
def bench_history(session: nox.Session) -> None:
    """Measure commits that have no kept result, then print where series changed: `-- RANGE [--every N]`."""
    install(session, "-e", ".[gp]")
    session.run("fsibench", "history", "--run", *(session.posargs or ["HEAD~20..HEAD", "--every", "5"]), env=ONE_THREAD)


@nox.session(name="bench-site")
def bench_site(session: nox.Session) -> None:
    """The page of the history, and asv's pages of the same commits, below `results/bench-site`."""
    install(session, "-e", ".", groups=("bench",))
    session.run("python", "scripts/asv_site.py", "results/bench-site/asv")
    session.run("fsibench", "history", "--out", "results/bench-site", "--asv", "../asv/index.html")


@nox.session
def peers(session: nox.Session) -> None:
    """A training step of ours beside those of public packages, in one run: torchbnn, bayesian-torch, blitz, gpytorch, scikit-learn."""
    install(session, "-e", ".[gp,sklearn]", "torchbnn", "bayesian-torch")
    # blitz asks for torchvision, which does not load beside a CPU-sized torch; its layers need torch alone
    session.install(*CONSTRAINTS, "--no-deps", "blitz-bayesian-pytorch")
    session.run("python", "scripts/peers.py", *session.posargs, env=ONE_THREAD)


@nox.session
def wheel(session: nox.Session) -> None:
    """Build the wheel, install it in a clean environment, run the smoke protocol from another folder."""
    shutil.rmtree("build", ignore_errors=True)
    folder = Path(session.create_tmp()).resolve()
    session.install("build")
    session.run("python", "-m", "build", "--outdir", str(folder / "dist"))
    built = max((folder / "dist").glob("*.whl"), key=lambda path: path.stat().st_mtime)
    session.install(*CONSTRAINTS, "--force-reinstall", "--no-deps", str(built))
    session.install(*CONSTRAINTS, str(built), *nox.project.dependency_groups(PROJECT, "test"))
    root = Path.cwd()
    with session.chdir(folder):
        session.run("fsibench", "run", "smoke", "--store", str(folder / "smoke.sqlite"))
        session.run("fsibench", "report", "--store", str(folder / "smoke.sqlite"), "--out", str(folder / "report"))
        session.run("pytest", "-p", "no:cacheprovider", str(root / "tests" / "test_packaging.py"))


@nox.session
def chaos(session: nox.Session) -> None:
    """300 random kills of cells, supervisors, servers, drivers, Dask workers and schedulers: half an hour, then the losses."""
    install(session, "-e", ".[dask]")
    session.run("python", "scripts/chaos.py", *session.posargs, env=ONE_THREAD)


@nox.session
def oracle(session: nox.Session) -> None:
    """HMC against blackjax and numpyro, references against numpyro, Laplace against laplace-torch: large installs, a session of its own."""
    install(session, "-e", ".", "blackjax", "jax", "numpyro", "laplace-torch", groups=("test",))
    # laplace-torch asks for torchvision, which does not load beside a CPU-sized torch; nothing here uses it
    session.run("python", "-m", "pip", "uninstall", "--yes", "torchvision")
    session.run("pytest", "tests/oracle", *session.posargs, env=ONE_THREAD)
