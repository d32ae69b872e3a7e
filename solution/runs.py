"""Where artefacts live, and how they are written so that a kill at any moment loses nothing.

    runs/NAME/                                     runs/ is $FASTSLOW_RUNS where that is set
        run.json                                   settings, commit, versions
        graphs.parquet                             every graph: split, fold, architecture, sizes
        labels.parquet                             the configurations predicted out of fold
        EXPERIMENT/
            out_of_fold/predictions.parquet
            test/predictions.parquet
            units/COLLECTION/fold-F-seed-S/        model/, predictions, unit.json
            units/COLLECTION/*.checkpoints/        the state of a fit that is not complete yet
        RECIPE/{out_of_fold,test}/ranking.parquet
        sample_submission.csv                      a copy, where one lay with the data
        scores.csv, submission.csv

A unit (solution.units) is written to a temporary folder and renamed when it is complete, so a unit
that is there is whole, and a run that is started again goes on after the last one.
"""

import hashlib
import json
import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from solution.domain.collection import SAMPLE_SUBMISSION
from solution.system.commit import read_commit
from solution.system.errors import InputError
from solution.system.files import TEMPORARY, locked, remove, remove_leftovers, write_json

RUNS = Path(os.environ.get("FASTSLOW_RUNS", "runs"))
STORES = Path(os.environ.get("FASTSLOW_STORES", "stores"))
RECORD, EXPERIMENTS = "run.json", "experiments"
CHECKPOINTS = ".checkpoints"
LIBRARIES = ("torch", "torch-geometric", "lightgbm", "polars", "numpy", "scipy")


@dataclass(frozen=True)
class Run:
    """The folder of one run."""

    folder: Path

    @classmethod
    def existing(cls, folder: Path) -> "Run":
        """The run in `folder`; InputError where there is none."""
        if not (folder / RECORD).is_file():
            raise InputError(f"{folder}: there is no run here. Make one with `fastslow run`.")
        _read_record(folder)
        return cls(folder)

    def record(self) -> dict[str, Any]:
        """What run.json holds: settings, code, commit, versions."""
        return _read_record(self.folder)

    def unit(self, experiment: str, collection: str, fold: int, seed: int) -> Path:
        """The folder of a unit."""
        return self._units(experiment, collection) / f"fold-{fold}-seed-{seed}"

    def units(self, experiment: str, collection: str) -> list[Path]:
        """The folders of the units that are complete."""
        found = self._units(experiment, collection).glob("fold-*-seed-*")
        return sorted(path for path in found if path.suffix != CHECKPOINTS)

    def checkpoints(self, unit: Path) -> Path:
        """Where the fit of the model in the folder `unit` keeps its state while it lasts."""
        return unit.with_name(f"{unit.name}{CHECKPOINTS}")

    def _units(self, experiment: str, collection: str) -> Path:
        return self.folder / experiment / "units" / collection.replace(":", "-")

    def predictions(self, experiment: str, part: str) -> Path:
        """The predictions of an experiment; `part` is out_of_fold or test."""
        return self.folder / experiment / part / "predictions.parquet"

    def ranking(self, recipe: str, part: str) -> Path:
        """The merged ranking of a recipe; `part` is out_of_fold or test."""
        return self.folder / recipe / part / "ranking.parquet"

    def experiments(self) -> list[str]:
        """The experiments of the run, in the order in which they came to it."""
        return list(self.record()["settings"].get(EXPERIMENTS, {}))

    def sample_submission(self) -> Path | None:
        """The sample_submission.csv that lay with the data."""
        path = self.folder / SAMPLE_SUBMISSION
        return path if path.is_file() else None

    @property
    def graphs(self) -> Path:
        return self.folder / "graphs.parquet"

    @property
    def labels(self) -> Path:
        return self.folder / "labels.parquet"

    @property
    def submission(self) -> Path:
        return self.folder / "submission.csv"


@contextmanager
def open_run(folder: Path, settings: dict[str, Any], *, replace: bool = False) -> Iterator[Run]:
    """Begin or resume a run, and keep other processes out of its folder meanwhile.

    Experiments that the run does not have yet are added to it.

    Raises InputError where the folder holds something else: another run's settings, other code,
    or files that are no run at all; and where another process is at work in it.
    """
    record = folder / RECORD
    if not record.is_file() and _holds_something(folder):
        raise InputError(
            f"{folder}: expected an empty folder or a run, found files that no run made. "
            "Choose another folder with --run."
        )
    # Through JSON and back, so that tuples compare equal to what is read from the file.
    wanted = json.loads(json.dumps({"settings": settings, "code": fingerprint_code()}))
    if record.is_file():
        found = _read_record(folder)
        if not replace:
            _check_same(folder, wanted, found)
    folder.mkdir(parents=True, exist_ok=True)
    with locked(folder, "Wait for it, or choose another folder with --run."):
        if replace:
            _empty(folder)
        remove_leftovers(folder)
        if not record.is_file():
            write_json({**wanted, "commit": read_commit(), "versions": _versions()}, record)
        _add_experiments(record, wanted["settings"])
        yield Run(folder)


def _add_experiments(record: Path, settings: dict[str, Any]) -> None:
    found = _read_record(record.parent)
    own = found["settings"].get(EXPERIMENTS, {})
    if settings.get(EXPERIMENTS, {}).keys() - own.keys():
        found["settings"][EXPERIMENTS] = {**own, **settings[EXPERIMENTS]}
        write_json(found, record)


def _holds_something(folder: Path) -> bool:
    """Whether `folder` is a file, or a folder with more in it than leftovers."""
    if not folder.is_dir():
        return folder.exists()
    return any(not path.name.startswith(TEMPORARY) for path in folder.iterdir())


def _read_record(folder: Path) -> dict[str, Any]:
    """The record of a run; InputError where it is not one, for then the folder is not ours."""
    path = folder / RECORD
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise InputError(f"{path}: expected the record of a run, but: {error}.") from error
    if not isinstance(found, dict) or not isinstance(found.get("settings"), dict):
        raise InputError(
            f"{path}: expected the record of a run, found something else. Choose another folder "
            "with --run."
        )
    return found


def _check_same(folder: Path, wanted: dict[str, Any], found: dict[str, Any]) -> None:
    different = _differences(wanted, found)
    if different:
        raise InputError(
            f"{folder}: holds a run that was made differently ({different}). "
            "Choose another folder with --run, give a changed experiment another name, or start "
            "the folder afresh with `fastslow run --replace` (make: REPLACE=1)."
        )


def _empty(folder: Path) -> None:
    # The record last: as long as it is there, the folder is known as a run.
    for path in sorted(folder.iterdir(), key=lambda path: path.name == RECORD):
        remove(path)


def fingerprint_code() -> str:
    """A hash of the source files that decide what a run predicts."""
    root = Path(__file__).parent
    digest = hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        digest.update(path.relative_to(root).as_posix().encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def _differences(wanted: dict[str, Any], found: dict[str, Any]) -> str:
    if wanted["code"] != found.get("code"):
        return "by other code"
    different = list_differences(found["settings"], wanted["settings"])
    return ", ".join(
        f"{name}: {_shorten(old)}, now {_shorten(new)}"
        for name, (old, new) in sorted(different.items())
    )


def list_differences(one: dict[str, Any], other: dict[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Which settings of two runs are not the same, with both values.

    An experiment that only one of them has is no difference.
    """
    mine, theirs = dict(one), dict(other)
    my_experiments, their_experiments = (s.pop(EXPERIMENTS, {}) for s in (mine, theirs))
    pairs = {name: (mine.get(name), theirs.get(name)) for name in {**mine, **theirs}}
    for name in sorted(my_experiments.keys() & their_experiments.keys()):
        pairs[name] = (my_experiments[name], their_experiments[name])
    return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}


def _shorten(value: object, width: int = 60) -> str:
    text = str(value)
    return text if len(text) <= width else text[: width - 3] + "..."


def _versions() -> dict[str, str]:
    installed = {name: metadata.version(name) for name in LIBRARIES}
    return {"python": platform.python_version(), **installed}
