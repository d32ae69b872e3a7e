"""Locate the files of a run; each is written so that a kill at any moment loses no finished work.

    runs/NAME/                                     runs/ is $FASTSLOW_RUNS if that is set
        run.json                                   settings, code hash, commit, versions, whether a
                                                   quick look
        graphs.parquet                             every graph: split, fold, architecture, sizes
        labels.parquet                             runtimes of configurations predicted out of fold
        origin.json                                data, store and command of the latest training
        recipe.json                                the recipe of submission.csv and scores.csv
        teacher.json                               the recipe that students learned from (distilled)
        EXPERIMENT/
            out_of_fold/predictions.parquet
            test/predictions.parquet
            jobs/COLLECTIONS/fold-F-seed-S/        model/, predictions, job.json (solution.runs.job)
            jobs/COLLECTIONS/*.checkpoints/        the state of an unfinished fit
        RECIPE/{out_of_fold,test}/ranking.parquet
        sample_submission.csv                      a copy, if the data contained one
        scores.csv, submission.csv, progress.log
        *.seal                                     beside each Parquet file and the sample: its
                                                   checksum (solution.system.sealing)

A job trains one model: of one experiment, on one group of collections, without one fold, with one
seed. Its folder is written under a temporary name and renamed when it is complete. So every job
folder is complete, and a run that is started again continues after its last job.

origin.json records the last training's data, store, command, date and machine. No result depends on
it, so it may change. Of its paths, only the store is opened: a stranger's run could name any path,
but the folder is only read, as a store with checksums and the graphs of this run
(solution.training.opening). Nothing is written to these paths or executed from them.
"""

import os
import platform
import shlex
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from solution.domain.collection import SAMPLE_SUBMISSION
from solution.domain.graph import TIMED
from solution.runs.job import read_trained
from solution.system.errors import InputError
from solution.system.files import write_sealed
from solution.system.names import check_name, check_text, folder_of_variable
from solution.system.processes import count_cores
from solution.system.sealing import check_any_seal, read_record

RECORD, EXPERIMENTS, QUICK = "run.json", "experiments", "quick"
QUICK_LOOK = "few graphs, one seed, short trainings"  # description of a quick look
JOBS, CHECKPOINTS = "jobs", ".checkpoints"
# experiments of `fastslow pack --distill`: small models that learn from the ensemble's scores
STUDENTS = ("distilled_layout", "distilled_tile")
ORIGIN = "origin.json"
# folders at the end of the bundled sample's path, wherever the package is installed
BUNDLED = ("solution", "data", "sample")


def find_runs() -> Path:
    """Return the folder that contains all runs."""
    return folder_of_variable("FASTSLOW_RUNS", Path("runs"))


def find_stores() -> Path:
    """Return the folder that contains the stores (prepared data sets) of runs."""
    return folder_of_variable("FASTSLOW_STORES", Path("stores"))


@dataclass(frozen=True)
class Run:
    """A run: trained models and their predictions, in one folder."""

    folder: Path

    @classmethod
    def existing(cls, folder: Path) -> "Run":
        """Return the run in `folder`; raise InputError if there is none."""
        check_text(folder)
        if not (folder / RECORD).is_file():
            raise InputError(f"{folder}: there is no run here. Make one with `fastslow run`.")
        read_run_record(folder)
        return cls(folder)

    def record(self) -> dict[str, Any]:
        """Return the contents of run.json: settings, code hash, commit, versions."""
        return read_run_record(self.folder)

    @property
    def is_quick(self) -> bool:
        """Whether the run is a quick look (a smoke run), whose scores mean little."""
        return self.record().get(QUICK) is True

    def job(self, experiment: str, group: Sequence[str], fold: int, seed: int) -> Path:
        """Return the folder of the model trained on the collections `group` without `fold`."""
        name = "+".join(collection.replace(":", "-") for collection in group)
        return self.folder / experiment / JOBS / name / f"fold-{fold}-seed-{seed}"

    def jobs(self, experiment: str, collection: str | None = None) -> list[Path]:
        """Return the folders of an experiment's models; only models that rank `collection`, if it
        is given."""
        found = (self.folder / experiment / JOBS).glob("*/fold-*-seed-*")
        folders = sorted(path for path in found if path.suffix != CHECKPOINTS)
        # Leave out empty folders. Keep a file in place of a folder: reading it raises an error.
        folders = [path for path in folders if path.is_file() or any(path.iterdir())]
        if collection is None:
            return folders
        return [folder for folder in folders if collection in read_trained(folder).collections]

    def label_sources(self) -> list[str]:
        """Return the distinct sources of the labels: TIMED, or as name_estimate returns them."""
        import polars as pl

        if not self.graphs.is_file():
            return []
        graphs = pl.read_parquet(self.graphs, glob=False)
        # runs from before labels could be estimates lack the column
        if "label_source" not in graphs.columns:
            return [TIMED]
        return sorted(graphs.filter("labelled")["label_source"].unique())

    def count_models(self) -> int:
        """Return the number of trained models of all experiments."""
        return sum(len(self.jobs(name)) for name in self.experiments())

    def checkpoints(self, job: Path) -> Path:
        """Return the folder of a job's checkpoints, which exists until the job is complete."""
        return job.with_name(f"{job.name}{CHECKPOINTS}")

    def predictions(self, experiment: str, part: str) -> Path:
        """Return the path of an experiment's predictions; `part` is out_of_fold or test."""
        return self.folder / experiment / part / "predictions.parquet"

    def ranking(self, recipe: str, part: str) -> Path:
        """Return the path of a recipe's merged ranking; `part` is out_of_fold or test."""
        return self.folder / recipe / part / "ranking.parquet"

    def experiments(self) -> list[str]:
        """Return the names of the run's experiments, in the order in which they were added."""
        return list(self.record()["settings"].get(EXPERIMENTS, {}))

    def rankers(self) -> list[str]:
        """Return the names of all experiments except STUDENTS, which learn from the ensemble."""
        return [name for name in self.experiments() if name not in STUDENTS]

    def sample_submission(self) -> Path | None:
        """Return the run's copy of sample_submission.csv, if any; InputError if it is damaged."""
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
        return self.folder / "progress.log"

    @property
    def submission(self) -> Path:
        return self.folder / "submission.csv"

    @property
    def scores(self) -> Path:
        return self.folder / "scores.csv"


def read_run_record(folder: Path) -> dict[str, Any]:
    """Return the record of a run; raise InputError if it is damaged or not of a run."""
    path = folder / RECORD
    found = read_record(path, "a run")
    settings = found.get("settings")
    if not isinstance(settings, dict) or not isinstance(settings.get(EXPERIMENTS, {}), dict):
        raise InputError(
            f"{path}: expected the record of a run, found something else. Choose another folder "
            "with --run."
        )
    for name in settings.get(EXPERIMENTS, {}):
        try:
            check_name(name)
        except ValueError as error:  # an experiment's name must be valid as a folder's name
            raise InputError(f"{path}: an experiment: {error}. Choose another run.") from error
    return found


@dataclass(frozen=True)
class Origin:
    """The latest training of a run, as origin.json stores it; every field is text."""

    data: str  # the folder that the user gave
    store: str  # the folder of the prepared data
    command: str
    date: str  # the day, in UTC
    machine: str

    @property
    def is_sample(self) -> bool:
        """Whether the run learned from the bundled sample, or from a folder in it."""
        parts, size = Path(self.data).parts, len(BUNDLED)
        return any(parts[i : i + size] == BUNDLED for i in range(len(parts)))


def list_stores(run: Run) -> list[Path]:
    """Return the possible paths of the run's store, the most likely first: the recorded path, if it
    is absolute, and the folder of that name in find_stores(). If no origin is recorded, return the
    store with the run's name."""
    origin = recall_origin(run)
    if origin is None:
        return [find_stores() / run.folder.resolve().name]
    recorded = Path(origin.store)
    ours = find_stores() / recorded.name
    return list(dict.fromkeys([recorded, ours] if recorded.is_absolute() else [ours]))


def remember_origin(run: Run, data: Path, store: Path) -> None:
    """Record `data`, the store and the command of this process as the run's latest training."""
    origin = Origin(
        data=_as_text(str(data.resolve())),
        store=_as_text(str(store.resolve())),
        command=_as_text(shlex.join(["fastslow", *sys.argv[1:]])),
        date=datetime.now(UTC).date().isoformat(),
        machine=f"{count_cores()} cores, {platform.system()} {platform.machine()}",
    )
    write_sealed(asdict(origin), run.folder / ORIGIN)


def _as_text(name: str) -> str:
    """Escape bytes that are not valid UTF-8, because a record must be valid text."""
    return name.encode(errors="backslashreplace").decode()


def recall_command(run: Run, experiment: str | None = None) -> str:
    """Return the command that continues the run, for messages; with `experiment`, a command that
    trains it in the run. The command never has --replace. It names the run's current folder,
    because the run may have been copied; `fastslow demo` always uses one folder."""
    origin = recall_origin(run)
    command = origin.command if origin else "fastslow run DATA"
    words = [word for word in shlex.split(command) if word != "--replace"]
    added = ["--experiment", experiment] if experiment and experiment not in words else []
    if added and origin is not None and words[1:2] != ["run"]:
        # `train` accepts only one experiment and `demo` accepts none: the command becomes `run`
        settings = run.record()["settings"]
        words = ["fastslow", "run", origin.data]
        added += ["--scheme", str(settings["scheme"]), "--folds", str(settings["folds"])]
        added += ["--limit"] if run.is_quick else []
    if words[1:2] in (["run"], ["train"]):
        given = _find_option(words, "--run")
        words = [word for place, word in enumerate(words) if place not in given]
        words += ["--run", str(run.folder)]
    return shlex.join([*words, *added])


def _find_option(words: Sequence[str], name: str) -> set[int]:
    """Return the positions of an option and its value among the words of a command."""
    found = {place for place, word in enumerate(words) if word.startswith(f"{name}=")}
    at = {place for place, word in enumerate(words) if word == name}
    return found | at | {place + 1 for place in at}


def recall_origin(run: Run) -> Origin | None:
    """Return the record of the run's last training, if any; raise InputError if it is damaged."""
    path = run.folder / ORIGIN
    if not os.path.lexists(path):
        return None
    try:
        found = read_record(path, "the origin of a run")
    except InputError as error:
        raise InputError(f"{error} Delete the file: no result depends on it.") from error
    names = [field.name for field in fields(Origin)]
    if any(not isinstance(found.get(name), str) for name in names):
        raise InputError(f"{path}: expected {', '.join(names)} as text. Delete the file.")
    return Origin(**{name: found[name] for name in names})
