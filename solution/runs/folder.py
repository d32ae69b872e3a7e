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

A unit (solution.training.jobs) is written to a temporary folder and renamed when it is complete, so
a unit that is there is whole, and a run that is started again goes on after the last one.
"""

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from solution.domain.collection import SAMPLE_SUBMISSION
from solution.system.errors import InputError

RUNS = Path(os.environ.get("FASTSLOW_RUNS", "runs"))
STORES = Path(os.environ.get("FASTSLOW_STORES", "stores"))
RECORD, EXPERIMENTS = "run.json", "experiments"
CHECKPOINTS = ".checkpoints"


@dataclass(frozen=True)
class Run:
    """The folder of one run."""

    folder: Path

    @classmethod
    def existing(cls, folder: Path) -> "Run":
        """The run in `folder`; InputError where there is none."""
        if not (folder / RECORD).is_file():
            raise InputError(f"{folder}: there is no run here. Make one with `fastslow run`.")
        read_record(folder)
        return cls(folder)

    def record(self) -> dict[str, Any]:
        """What run.json holds: settings, code, commit, versions."""
        return read_record(self.folder)

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


def read_record(folder: Path) -> dict[str, Any]:
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
