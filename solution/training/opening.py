"""A run is opened: its store, which may have to be made, its folds, what cannot be scored."""

import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from solution.data.folders import find_files, find_sample_submission
from solution.domain import predictions
from solution.domain.collection import NAMES, SAMPLE_SUBMISSION
from solution.experiments.base import Experiment
from solution.runs.folder import EXPERIMENTS, Run
from solution.runs.record import open_run
from solution.store.preparation import Preparation, check_preparation
from solution.store.preparing import prepare_store
from solution.store.store import Store, is_store, read_preparation
from solution.system.errors import InputError
from solution.system.files import replace_file
from solution.system.progress import console
from solution.training.folds import Scheme
from solution.training.plan import IS_LABELLED, Plan, choose_few, make_plan


@contextmanager
def open_experiments(
    experiments: Sequence[Experiment],
    store: Store,
    folder: Path,
    *,
    scheme: Scheme,
    folds: int,
    limit: bool = False,
    replace: bool = False,
) -> Iterator[tuple[Plan, Run]]:
    """Begin or go on with the run in `folder`, in which the experiments can then be trained.

    Raises InputError as open_run does.
    """
    plan = make_plan(store, scheme, folds, limit=limit)
    settings = describe_run(experiments, plan, scheme, folds)
    with open_run(folder, settings, replace=replace) as run:
        warn_about_gaps(plan)
        save_plan(plan, run)
        yield plan, run


def open_store(
    data: Path,
    place: Path,
    experiments: Sequence[Experiment],
    *,
    limit: bool,
    rebuild: bool,
    workers: int | None,
) -> Store:
    """The store that `data` is, or the one that is made of it in `place`.

    Args:
        limit: a quick look: only a few graphs of other data are prepared.
        rebuild: make a store in `place` again where it does not serve the experiments.
        workers: processes that prepare; by default one per core.

    Raises:
        InputError: the store does not serve the experiments, or the data cannot be prepared.
    """
    needed = {experiment.ranker.build(0).hops for experiment in experiments}
    hops = None if None in needed else max(number for number in needed if number is not None)
    if is_store(data):
        store = Store.open(data)
        check_preparation(store.preparation, hops, data)
        return store
    files = find_files(data)
    if limit:
        chosen = choose_few([f.collection.name for f in files], [f.split for f in files])
        files = [files[position] for position in chosen]
    return prepare_store(
        files,
        place,
        _choose_preparation(place, hops),
        find_sample_submission(data),
        workers=workers,
        rebuild=rebuild,
    )


def _choose_preparation(store: Path, hops: int | None) -> Preparation:
    """As the store there was prepared, if that serves; otherwise what is needed, and no more."""
    with suppress(InputError):
        kept = read_preparation(store)
        check_preparation(kept, hops, store)
        return Preparation(kept["hops"])
    return Preparation(hops)


def describe_run(
    experiments: Sequence[Experiment], plan: Plan, scheme: Scheme, folds: int
) -> dict[str, Any]:
    """The settings of a run, as its record has them."""
    described = {item.name: item.describe() for item in experiments}
    return {EXPERIMENTS: described, "scheme": scheme, "folds": folds, **plan.settings()}


def save_plan(plan: Plan, run: Run) -> None:
    """Write the graphs with their folds, the labels and the sample submission into the run."""
    if plan.sample_submission is not None:
        with replace_file(run.folder / SAMPLE_SUBMISSION) as temporary:
            shutil.copyfile(plan.sample_submission, temporary)
    if run.labels.is_file():  # written last, so the graphs are there too
        return
    predictions.write(plan.graphs, run.graphs)
    predictions.write(plan.labels(), run.labels)


def warn_about_gaps(plan: Plan) -> None:
    """Say which collections cannot be trained on, or not be held out."""
    for name in NAMES:
        labelled = plan.rows(name, IS_LABELLED)
        if plan.rows(name).is_empty():
            console.print(f"[yellow]{name}: no graphs here; it is left out.")
        elif labelled.is_empty():
            console.print(f"[yellow]{name}: no graph has labels; nothing can be trained on it.")
        elif not plan.folds(name):
            console.print(
                f"[yellow]{name}: {len(labelled)} labelled graph(s) of one architecture cannot be "
                "divided; one model learns from all and there is no out-of-fold score."
            )
        elif len(labelled) < 2 * len(plan.folds(name)):
            console.print(
                f"[yellow]{name}: only {len(labelled)} labelled graphs; scores mean little."
            )
