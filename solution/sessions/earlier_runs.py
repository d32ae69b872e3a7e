"""Go on from the runs that earlier sessions left, and divide a run among sessions.

A unit (a trained model and what it predicts) is complete or not there, so units of any sessions
that ran the same code on the same data with the same folds can be put together: a run that was
stopped goes on after its last unit, and parts that were trained side by side become one run.
"""

import dataclasses
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import polars as pl

from solution.domain import predictions
from solution.domain.collection import NAMES
from solution.experiments.base import Experiment, find_experiment
from solution.runs.folder import EXPERIMENTS, Run
from solution.runs.record import list_differences, open_run
from solution.store.store import Store
from solution.system.errors import InputError
from solution.system.files import TEMPORARY, replace_file, replace_folder
from solution.training.jobs import Unit, list_missing
from solution.training.out_of_fold import run_experiments
from solution.training.plan import Plan

MAX_SHOWN = 3


@dataclass(frozen=True)
class Selection(Plan):
    """A plan of which only some collections and folds are trained."""

    collections: tuple[str, ...] = NAMES
    only_folds: frozenset[int] = frozenset()  # empty: all

    def rows(self, collection: str, *conditions: pl.Expr) -> pl.DataFrame:
        chosen = super().rows(collection, *conditions)
        return chosen if collection in self.collections else chosen.clear()

    def training(self, collection: str, fold: int) -> pl.DataFrame:
        """Of all collections: one that is not trained here may teach one that is."""
        return Plan(self.graphs, self.store).training(collection, fold)

    def folds(self, collection: str) -> list[int]:
        every = super().folds(collection)
        return [fold for fold in every if not self.only_folds or fold in self.only_folds]


def match(names: Sequence[str], patterns: str) -> list[str]:
    """The names that patterns such as "layout_*,!*lightgbm*" choose; the last that fits decides.

    Raises InputError where none is chosen.
    """
    chosen: set[str] = set()
    for pattern in filter(None, (part.strip() for part in patterns.split(","))):
        fitting = {name for name in names if fnmatchcase(name, pattern.removeprefix("!"))}
        chosen = chosen - fitting if pattern.startswith("!") else chosen | fitting
    if not chosen:
        raise InputError(f"{patterns!r} chooses nothing. There are {', '.join(names)}.")
    return [name for name in names if name in chosen]


def select(plan: Plan, collections: str = "*", folds: str = "") -> Selection:
    """Choose what this session trains.

    Args:
        collections: patterns, as of `match`.
        folds: numbers such as "0,3"; empty: all.

    Raises:
        InputError: nothing is chosen, or there is no such fold.
    """
    names = match(NAMES, collections)
    try:
        numbers = frozenset(int(part) for part in folds.split(",") if part.strip())
    except ValueError as error:
        raise InputError(f"folds {folds!r}: expected numbers such as 0,3.") from error
    every = {fold for name in names for fold in plan.folds(name)}
    if not numbers <= every:
        raise InputError(f"folds {folds!r}: there are {', '.join(map(str, sorted(every)))}.")
    # A collection that none of the folds divides has one model for all its graphs.
    kept = [name for name in names if not numbers or numbers & {*(plan.folds(name) or numbers)}]
    fields = {field.name: getattr(plan, field.name) for field in dataclasses.fields(Plan)}
    return Selection(**fields, collections=tuple(kept), only_folds=numbers)


def gather_complete(experiments: Sequence[Experiment], plan: Plan, run: Run) -> None:
    """Gather the predictions of every experiment that has all models of the plan."""
    complete = [item for item in experiments if not list_missing([item], plan, run)]
    run_experiments(complete, plan, run)


def describe_missing(missing: Sequence[Unit]) -> str:
    """What is left to train, in words; empty where nothing is."""
    if not missing:
        return ""
    shown = [f"{u.experiment.name} {u.collection} fold {u.fold}" for u in missing[:MAX_SHOWN]]
    more = f" and {len(missing) - MAX_SHOWN} more" if len(missing) > MAX_SHOWN else ""
    return f"{len(missing)} models are not trained yet: {', '.join(shown)}{more}"


def adopt(run: Run, sources: Sequence[Run]) -> int:
    """Copy the units that the run lacks out of runs that were made alike; returns how many.

    What an unfinished unit left beside its folder, such as a checkpoint, is copied as well. Other
    experiments of the sources are left aside; so are sources that were made differently, for many
    things may be attached.
    """
    own = _read(run)
    names = set(own["settings"][EXPERIMENTS])
    copied = 0
    for source in sources:
        if find_differences(own, _read(source)):
            continue
        for folder in sorted(source.folder.glob("*/units/*/fold-*")):
            place = folder.relative_to(source.folder)
            unit = place.with_name(place.name.partition(".")[0])
            there = any((run.folder / path).exists() for path in (unit, place))
            if place.parts[0] in names and not there:
                _copy(folder, run.folder / place)
                copied += place == unit
    return copied


@contextmanager
def join_runs(sources: Sequence[Run], folder: Path, *, replace: bool = False) -> Iterator[Run]:
    """Put runs that were made alike together into one run in `folder`, and gather its predictions.

    Raises InputError where there is none, they were made differently, or a model is missing.
    """
    if not sources:
        raise InputError(
            "No run is among the inputs. Attach the outputs of the training notebooks."
        )
    records = [_read(source) for source in sources]
    for source, record in zip(sources, records, strict=True):
        different = find_differences(records[0], record)
        if different:
            raise InputError(
                f"{source.folder}: was made differently than {sources[0].folder}: its {different} "
                "are others. Attach runs of one commit on the same data."
            )
    described = {name: value for r in records for name, value in r["settings"][EXPERIMENTS].items()}
    settings = {**records[0]["settings"], EXPERIMENTS: described}
    with open_run(folder, settings, replace=replace) as run:
        _copy_plan(sources[0], run)
        adopt(run, sources)
        plan = Plan(predictions.read(run.graphs), _NO_STORE)
        experiments = [find_experiment(name) for name in described]
        missing = describe_missing(list_missing(experiments, plan, run))
        if missing:
            raise InputError(f"{missing}. Attach the outputs of the sessions that trained them.")
        run_experiments(experiments, plan, run)  # nothing is left to train
        yield run


def find_differences(one: dict[str, Any], other: dict[str, Any]) -> str:
    """What keeps units of two runs apart, in words: the code or a setting; empty where nothing."""
    different = list_differences(one["settings"], other["settings"])
    return ", ".join([*(["code"] if one.get("code") != other.get("code") else []), *different])


# Joining needs the keys of the graphs alone, which the run itself has.
_NO_STORE = Store(Path(), pl.DataFrame(), {})


def _read(run: Run) -> dict[str, Any]:
    record = run.record()
    record["settings"].setdefault(EXPERIMENTS, {})
    return record


def _copy_plan(source: Run, run: Run) -> None:
    for path in (source.graphs, source.labels, source.sample_submission()):
        if path is not None and not (run.folder / path.name).is_file():
            with replace_file(run.folder / path.name) as temporary:
                shutil.copyfile(path, temporary)


def _copy(folder: Path, target: Path) -> None:
    """Copy a folder of plain files; what is read-only there need not be so here."""
    with replace_folder(target) as temporary:
        for path in sorted(folder.rglob("*")):
            copy = temporary / path.relative_to(folder)
            if path.is_dir():
                copy.mkdir()
            elif not path.name.startswith(TEMPORARY):
                shutil.copyfile(path, copy)
