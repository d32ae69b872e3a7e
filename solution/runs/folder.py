"""Where artefacts live, and how they are written so that a kill at any moment loses nothing.

    runs/NAME/                                     runs/ is $FASTSLOW_RUNS where that is set
        run.json                                   settings, commit, versions, if it is a quick look
        graphs.parquet                             every graph: split, fold, architecture, sizes
        labels.parquet                             the configurations predicted out of fold
        origin.json                                data, store and command of last time
        recipe.json                                what submission.csv and scores.csv were made by
        teacher.json                               what its students learned from (pack --distill)
        EXPERIMENT/
            out_of_fold/predictions.parquet
            test/predictions.parquet
            jobs/COLLECTIONS/fold-F-seed-S/        model/, predictions, job.json (solution.runs.job)
            jobs/COLLECTIONS/*.checkpoints/        the state of a fit that is not complete yet
        RECIPE/{out_of_fold,test}/ranking.parquet
        sample_submission.csv                      a copy, where one lay with the data
        scores.csv, submission.csv
        *.seal                                     beside each Parquet file and the sample, its
                                                   checksum (solution.system.sealing)

A job is a trained model: of one experiment, one group of collections that it learns from, without
one fold, with one seed. It is written to a temporary folder and renamed when it is complete, so a
job that is there is whole, and a run that is started again goes on after the last one.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from solution.domain.collection import SAMPLE_SUBMISSION
from solution.domain.labels import TIMED
from solution.runs.job import read_trained
from solution.system.addresses import refuse_address_variable
from solution.system.errors import InputError
from solution.system.names import check_name, check_text
from solution.system.sealing import check_any_seal
from solution.system.sealing import read_record as read_sealed_record

RECORD, EXPERIMENTS, QUICK = "run.json", "experiments", "quick"
QUICK_LOOK = "few graphs, one seed, short trainings"  # what it is, in words
JOBS, CHECKPOINTS = "jobs", ".checkpoints"
# Of `fastslow pack --distill`: they learned from the ensemble and are no members of it.
STUDENTS = ("distilled_layout", "distilled_tile")


def find_runs() -> Path:
    """The folder of all runs."""
    return refuse_address_variable("FASTSLOW_RUNS", Path(os.environ.get("FASTSLOW_RUNS") or "runs"))


def find_stores() -> Path:
    """The folder of the stores that runs make."""
    given = Path(os.environ.get("FASTSLOW_STORES") or "stores")
    return refuse_address_variable("FASTSLOW_STORES", given)


@dataclass(frozen=True)
class Run:
    """The folder of one run."""

    folder: Path

    @classmethod
    def existing(cls, folder: Path) -> "Run":
        """The run in `folder`; InputError where there is none, or nobody could read its tables."""
        check_text(folder)
        if not (folder / RECORD).is_file():
            raise InputError(f"{folder}: there is no run here. Make one with `fastslow run`.")
        read_record(folder)
        return cls(folder)

    def record(self) -> dict[str, Any]:
        """What run.json holds: settings, code, commit, versions."""
        return read_record(self.folder)

    @property
    def is_quick(self) -> bool:
        """Whether it was begun as a quick look, of which the scores mean little."""
        return self.record().get(QUICK) is True

    def job(self, experiment: str, group: Sequence[str], fold: int, seed: int) -> Path:
        """The folder of the model that learned from the collections of `group`, without `fold`."""
        name = "+".join(collection.replace(":", "-") for collection in group)
        return self.folder / experiment / JOBS / name / f"fold-{fold}-seed-{seed}"

    def jobs(self, experiment: str, collection: str | None = None) -> list[Path]:
        """The folders of the models that are there: all, or those that rank one collection."""
        found = (self.folder / experiment / JOBS).glob("*/fold-*-seed-*")
        folders = sorted(path for path in found if path.suffix != CHECKPOINTS)
        # An empty folder is of no model; a file in a folder's place is named when it is read.
        folders = [path for path in folders if path.is_file() or any(path.iterdir())]
        if collection is None:
            return folders
        return [folder for folder in folders if collection in read_trained(folder).collections]

    def label_sources(self) -> list[str]:
        """Return who says how long the labelled graphs take: solution.domain.labels."""
        import polars as pl

        if not self.graphs.is_file():
            return []
        graphs = pl.read_parquet(self.graphs, glob=False)
        if "label_source" not in graphs.columns:  # written before there were estimates
            return [TIMED]
        return sorted(graphs.filter("labelled")["label_source"].unique())

    def count_models(self) -> int:
        """The trained models that are there, of all experiments."""
        return sum(len(self.jobs(name)) for name in self.experiments())

    def checkpoints(self, job: Path) -> Path:
        """Where the fit of the model in the folder `job` keeps its state while it lasts."""
        return job.with_name(f"{job.name}{CHECKPOINTS}")

    def predictions(self, experiment: str, part: str) -> Path:
        """The predictions of an experiment; `part` is out_of_fold or test."""
        return self.folder / experiment / part / "predictions.parquet"

    def ranking(self, recipe: str, part: str) -> Path:
        """The merged ranking of a recipe; `part` is out_of_fold or test."""
        return self.folder / recipe / part / "ranking.parquet"

    def experiments(self) -> list[str]:
        """The experiments of the run, in the order in which they came to it."""
        return list(self.record()["settings"].get(EXPERIMENTS, {}))

    def rankers(self) -> list[str]:
        """Those of the experiments that learned from runtimes, and not from the run's ensemble."""
        return [name for name in self.experiments() if name not in STUDENTS]

    def sample_submission(self) -> Path | None:
        """The sample_submission.csv that lay with the data; InputError where it is damaged."""
        path = self.folder / SAMPLE_SUBMISSION
        check_any_seal(path)
        return path if path.is_file() else None

    @property
    def graphs(self) -> Path:
        return self.folder / "graphs.parquet"

    @property
    def labels(self) -> Path:
        return self.folder / "labels.parquet"

    @property
    def log(self) -> Path:
        """Lines that say how far the training is."""
        return self.folder / "progress.log"

    @property
    def submission(self) -> Path:
        return self.folder / "submission.csv"

    @property
    def scores(self) -> Path:
        return self.folder / "scores.csv"


def read_record(folder: Path) -> dict[str, Any]:
    """The record of a run; InputError where it is not one, for then the folder is not ours."""
    path = folder / RECORD
    found = read_sealed_record(path, "a run")
    settings = found.get("settings")
    if not isinstance(settings, dict) or not isinstance(settings.get(EXPERIMENTS, {}), dict):
        raise InputError(
            f"{path}: expected the record of a run, found something else. Choose another folder "
            "with --run."
        )
    for name in settings.get(EXPERIMENTS, {}):
        try:
            check_name(name)
        except ValueError as error:  # it becomes a folder of the run
            raise InputError(f"{path}: of an experiment {error}. Choose another run.") from error
    return found
