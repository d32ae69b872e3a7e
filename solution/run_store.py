"""A run and the store that it reads: the one it is given, or the one that is made of its data."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from solution.data.folders import find_files, find_sample_submission
from solution.data.folds import Scheme
from solution.data.plan import Plan, choose_few, make_plan
from solution.experiments.base import Experiment
from solution.out_of_fold import describe_run, save_plan, warn_about_gaps
from solution.runs.folder import Run
from solution.runs.record import open_run
from solution.store.preparation import Preparation, check_preparation
from solution.store.preparing import prepare_store
from solution.store.store import Store, is_store, read_preparation
from solution.system.errors import InputError


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
