"""Continue from runs of earlier sessions, and divide a run among sessions.

A job (a trained model and its predictions) is either complete or missing. So the jobs of sessions
with the same code, data and folds can be combined: a stopped run continues after its last job, and
parts that were trained in parallel become one run. Attached runs may come from anybody, so only
expected names are read from them, links are rejected, and nothing in them is executed.
"""

import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import polars as pl

from solution.domain import predictions
from solution.domain.collection import NAMES
from solution.experiments.base import Experiment, find_named_experiment
from solution.runs.folder import CHECKPOINTS, EXPERIMENTS, JOBS, Run
from solution.runs.job import check_job
from solution.runs.record import check_split, compare_versions, list_differences, open_run
from solution.store.store import Store
from solution.system.errors import InputError
from solution.system.files import TEMPORARY, replace_folder
from solution.system.names import match
from solution.system.sealing import replace_sealed
from solution.system.terminal import say
from solution.system.wording import join_names
from solution.training.jobs import Choice, Job, find_backlog, list_missing
from solution.training.out_of_fold import run_experiments
from solution.training.plan import Plan

MAX_SHOWN = 3


def choose(plan: Plan, collections: str = "*", folds: str = "") -> Choice:
    """Return the part of the plan that this session trains.

    Args:
        collections: patterns of the collections' names.
        folds: numbers such as "0,3"; empty: all.

    Raises InputError if no collection matches, or a fold does not exist.
    """
    names = match(NAMES, collections)
    try:
        numbers = sorted({int(part) for part in folds.split(",") if part.strip()})
    except ValueError as error:
        raise InputError(f"folds {folds!r}: expected numbers such as 0,3.") from error
    every = {fold for name in names for fold in plan.folds(name)}
    if not set(numbers) <= every:
        raise InputError(f"folds {folds!r}: there are {', '.join(map(str, sorted(every)))}.")
    return Choice(tuple(names), tuple(numbers))


def describe_missing(missing: Sequence[Job]) -> str:
    """Return a sentence about the jobs that are still to be trained; empty if there are none."""
    if not missing:
        return ""
    shown = join_names([job.describe() for job in missing], MAX_SHOWN)
    return f"{len(missing)} models are not trained yet: {shown}"


def adopt(run: Run, sources: Sequence[Run]) -> int:
    """Copy the jobs that the run lacks from earlier runs; return the number of copied jobs.

    Checkpoints of unfinished jobs are copied as well. Three things are skipped: sources with other
    code or settings (any runs may be attached), experiments that the run does not have, and damaged
    jobs.
    """
    record = run.record()
    copied = 0
    for source in sources:
        if find_differences(record, source.record()):
            continue
        for name in run.experiments():
            for folder in sorted((source.folder / name / JOBS).glob("*/fold-*")):
                copied += _adopt_one(folder, run.folder / folder.relative_to(source.folder))
    return copied


def _adopt_one(folder: Path, target: Path) -> bool:
    """Copy a job or its checkpoints unless they exist; return whether a complete job was copied. A
    damaged job is reported and skipped. Raises InputError if a folder is a link."""
    if folder.is_symlink() or folder.parent.is_symlink() or folder.parent.parent.is_symlink():
        raise InputError(f"{folder}: expected a folder, found a link. Leave this run out.")
    if folder.suffix == CHECKPOINTS:
        if not target.exists() and not target.with_suffix("").exists():
            _copy(folder, target)
        return False
    if target.exists():
        return False
    try:
        check_job(folder)
    except InputError as error:
        say(f"Left out: {error}")
        return False
    _copy(folder, target)
    return True


def _find_as_described(name: str, described: Any) -> Experiment:
    """Return the experiment `name`: its quick variant (one seed, short trainings) if that is what
    the run's record `described`, else the full one."""
    found = find_named_experiment(name)
    quick = found.quick()
    return quick if quick.describe() == described else found


@contextmanager
def join_runs(sources: Sequence[Run], folder: Path, *, replace: bool = False) -> Iterator[Run]:
    """Combine runs into one run in `folder`, collect its predictions, and yield it. Raises
    InputError if there are no runs, they differ in code or settings, or a model is missing."""
    if not sources:
        raise InputError("The inputs have no run. Attach the outputs of the training notebooks.")
    records = [source.record() for source in sources]
    for source, record in zip(sources, records, strict=True):
        different = find_differences(records[0], record)
        if different:
            raise InputError(
                f"{source.folder}: was made differently than {sources[0].folder}: {different} "
                "differ. Attach runs of one commit on the same data."
            )
        compare_versions(source.folder, record)
    described = {name: value for r in records for name, value in r["settings"][EXPERIMENTS].items()}
    experiments = [_find_as_described(name, value) for name, value in described.items()]
    settings = {**records[0]["settings"], EXPERIMENTS: described}
    with open_run(folder, settings, replace=replace) as run:
        _copy_split(sources[0], run)
        adopt(run, sources)
        plan = Plan(predictions.read(run.graphs), _NO_STORE)
        missing = describe_missing(list_missing(experiments, plan, run))
        if missing:
            raise InputError(f"{missing}. Attach the outputs of the sessions that trained them.")
        # every model exists, so this only collects predictions
        run_experiments(find_backlog(experiments, plan, run), plan, run)
        yield run


def find_differences(one: dict[str, Any], other: dict[str, Any]) -> str:
    """Return what differs between the records of two runs: "code" and the names of settings,
    separated by commas."""
    different = list_differences(one["settings"], other["settings"])
    return ", ".join([*(["code"] if one.get("code") != other.get("code") else []), *different])


# empty store for a plan: joining uses only the graphs' names, which the run's table has
_NO_STORE = Store(Path(), pl.DataFrame(), {})


def _copy_split(source: Run, run: Run) -> None:
    check_split(source)
    for path in (source.graphs, source.labels, source.sample_submission()):
        if path is not None and not (run.folder / path.name).is_file():
            with replace_sealed(run.folder / path.name) as temporary:
                _copy_file(path, temporary)


def _copy(folder: Path, target: Path) -> None:
    """Copy a folder of plain files; the copies are writable even if the originals are not."""
    with replace_folder(target) as temporary:
        for path in sorted(folder.rglob("*")):
            copy = temporary / path.relative_to(folder)
            if path.is_dir() and not path.is_symlink():
                copy.mkdir()
            elif not path.name.startswith(TEMPORARY):
                _copy_file(path, copy)


def _copy_file(path: Path, target: Path) -> None:
    # Reject links: in a stranger's folder, a link could point to any file on this machine.
    if path.is_symlink() or not path.is_file():
        raise InputError(f"{path}: expected a plain file, found a link or something else.")
    shutil.copyfile(path, target)
