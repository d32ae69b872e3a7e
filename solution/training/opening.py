"""Open a run: prepare or find its store, check its data and experiments, draw its folds.

A store is a folder of prepared graphs. A quick look is a short run on a few graphs.
"""

import dataclasses
import math
import shutil
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ensembles import DEFAULT_RECIPE, SAMPLE_RECIPE
from ensembles.recipe import Recipe, find_recipe
from solution.data.folders import (
    SAMPLE,
    GraphFile,
    choose_sample,
    describe_other_samples,
    find_files,
    find_left_out,
)
from solution.data.summaries import join_defects
from solution.domain import predictions
from solution.domain.collection import NAMES, SAMPLE_SUBMISSION, collection
from solution.domain.graph import show_source
from solution.experiments.base import Experiment
from solution.features.preparation import Preparation
from solution.runs.folder import EXPERIMENTS, Run, list_stores, recall_origin
from solution.runs.record import check_split, open_run
from solution.store.preparing import count_prepared, prepare_store
from solution.store.store import (
    Store,
    check_preparation,
    find_mixed_in_store,
    is_store,
    read_store_record,
)
from solution.system.errors import InputError
from solution.system.files import locked, remove
from solution.system.progress import warn
from solution.system.sealing import find_seal, replace_sealed
from solution.system.wording import count, join_names
from solution.training.failures import rehearse
from solution.training.folds import Scheme
from solution.training.jobs import list_jobs
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
    collections: Sequence[str] = (),
    mixes: bool = False,
) -> Iterator[tuple[Plan, Run]]:
    """Begin or resume (or `replace`) the run in `folder`; yield its plan and the run, ready for
    training.

    `limit`: a quick look at few graphs. `collections`: only these; empty: all. `mixes`: see
    check_mixture. Raises InputError as open_run and check_mixture do, and if no graph has labels.
    """
    plan = make_plan(store, scheme, folds, limit=limit, collections=collections)
    check_labels(plan)
    check_mixture(plan, mixes=mixes)
    settings = describe_run(experiments, plan, scheme, folds)
    with open_planned(
        experiments, plan, folder, settings, quick=limit, replace=replace, collections=collections
    ) as run:
        yield plan, run


@contextmanager
def open_planned(
    experiments: Sequence[Experiment],
    plan: Plan,
    folder: Path,
    settings: dict[str, Any],
    *,
    quick: bool = False,
    replace: bool = False,
    collections: Sequence[str] = (),
) -> Iterator[Run]:
    """Begin or resume (or `replace`) the run of an existing plan in `folder`, and yield it.

    `settings`: the result of describe_run, which is recorded. `quick`: record a quick look.
    `collections`: the collections that the user named; empty: all.
    """
    for experiment in experiments:
        rehearse(experiment, plan)
    with open_run(folder, settings, replace=replace, quick=quick) as run:
        warn_about_gaps(plan, collections or NAMES, experiments)
        save_split(plan, run)
        yield run


@contextmanager
def open_store(
    data: Path,
    target: Path,
    experiments: Sequence[Experiment],
    *,
    collections: Sequence[str] = (),
    limit: bool = False,
    named: bool = False,
    workers: int | None = None,
) -> Iterator[Store]:
    """Yield a store of prepared graphs, locked against changes. It is `data` itself if that is a
    store. Otherwise `data` is prepared into `target` if the user `named` it, else into the folder
    that choose_place returns for it.

    `collections`: must be in the data. `limit`: a quick look at few graphs. Raises InputError if
    the store does not fit or is damaged, or the data cannot be prepared.
    """
    if is_store(data):
        folder = data
        if named and target.resolve() != data.resolve():
            raise InputError(
                f"{data}: is a prepared store, and --store names another folder, {target}. Leave "
                "--store out, or give the data that the store is to be prepared from."
            )
    else:
        files = find_files(data)
        there = [file.collection.name for file in files]
        _check_collections(data, there, collections)
        hops, _ = find_hops(there, experiments, collections)
        folder = target if named else choose_place(target, hops)
        _prepare(data, files, folder, hops, limit=limit, named=named, workers=workers)
    with locked(folder, "Wait until the data is prepared.", shared=True):
        store = Store.open(folder)
        there = store.graphs["collection"].to_list()
        _check_collections(data, there, collections)
        hops, asker = find_hops(there, experiments, collections)
        check_preparation(store.preparation, hops, folder, asker)
        # check a given store; a store that was prepared just now is checked already
        if folder == data and (defects := store.find_defects()):
            raise InputError(join_defects(defects))
        yield dataclasses.replace(store, is_checked=True)


def find_default_recipe(data: Path, *, limit: bool) -> Recipe:
    """Return the recipe whose members are trained on the data if none is named: the quick one for
    the sample and for a quick look (`limit`)."""
    is_quick = limit or data.resolve() == SAMPLE.resolve()
    return find_recipe(SAMPLE_RECIPE if is_quick else DEFAULT_RECIPE)


def find_hops(
    there: Collection[str], experiments: Sequence[Experiment], collections: Sequence[str] = ()
) -> tuple[int | None, str]:
    """Return the largest `needed_hops` of the experiments, and the experiment with it. Nodes are
    needed within this number of edges of the configurable nodes; None: all nodes.

    Experiments that rank none of the collections do not count, unless all do.

    Args:
        there: names of the data's collections.
        collections: names of the collections to rank; empty: all.
    """
    asked = {*there} & {*collections} if collections else {*there}
    ranking = [e for e in experiments if asked & {*e.collections}] or experiments
    most = max(
        ranking, key=lambda e: math.inf if e.ranker.needed_hops is None else e.ranker.needed_hops
    )
    return most.ranker.needed_hops, most.name


def choose_place(target: Path, hops: int | None) -> Path:
    """Return the folder for a store that keeps all nodes within `hops` edges of configurable nodes
    (None: all nodes). This is `target` if the store there keeps them, or if there is no store yet
    and `hops` is None or the default; otherwise `target` with "-whole" or "-hops-N" appended."""
    usual = hops in (None, Preparation().hops)
    if _serves(target, hops) or (usual and not is_store(target)):
        return target
    return target.with_name(f"{target.name}-{'whole' if hops is None else f'hops-{hops}'}")


def _serves(folder: Path, hops: int | None) -> bool:
    if not is_store(folder):
        return False
    kept = read_store_record(folder)["preparation"].get("hops")
    return kept is None or (hops is not None and kept >= hops)


def _check_collections(data: Path, there: Sequence[str], asked: Sequence[str]) -> None:
    """Raise InputError if a collection in `asked` is unknown, or not in the data (`there`)."""
    for name in asked:
        collection(name)  # raises InputError if the name is unknown
        if name not in there:
            known = ", ".join(dict.fromkeys(there))
            raise InputError(f"{data}: has no graph of {name}, but of {known}.")


def _prepare(
    data: Path,
    files: Sequence[GraphFile],
    folder: Path,
    hops: int | None,
    *,
    limit: bool,
    named: bool,
    workers: int | None,
) -> None:
    for words in [*find_left_out(data), *describe_other_samples(data)]:
        warn(words)
    if limit:
        chosen = choose_few([f.collection.name for f in files], [f.split for f in files])
        # A store of all files serves a quick look, too.
        if count_prepared(folder) <= len(chosen):
            files = [files[position] for position in chosen]
    kept = read_store_record(folder)["preparation"]["hops"] if _serves(folder, hops) else hops
    prepare_store(
        files,
        folder,
        Preparation(kept),
        choose_sample(data),
        workers=workers,
        rebuild=not named,  # prepare a store of another format or preparation again
    )


def describe_run(
    experiments: Sequence[Experiment], plan: Plan, scheme: Scheme, folds: int
) -> dict[str, Any]:
    """Return the settings of a run for its record."""
    described = {item.name: item.describe() for item in experiments}
    return {EXPERIMENTS: described, "scheme": scheme, "folds": folds, **plan.settings()}


def save_split(plan: Plan, run: Run) -> None:
    """Write the graphs with their folds, the labels and the sample submission into the run."""
    if plan.sample_submission is not None:
        with replace_sealed(run.folder / SAMPLE_SUBMISSION) as temporary:
            shutil.copyfile(plan.sample_submission, temporary)
    else:  # remove the copy, if any: the data has no such file (any more)
        remove(run.folder / SAMPLE_SUBMISSION)
        remove(find_seal(run.folder / SAMPLE_SUBMISSION))
    try:
        check_split(run)
    # The files are missing or damaged. Write them again; the contents are the same.
    except InputError:
        predictions.write(plan.graphs, run.graphs)
        predictions.write(plan.labels(), run.labels)


def check_labels(plan: Plan) -> None:
    """Raise InputError if no graph has labels, or there are no graphs of the chosen collections."""
    if plan.graphs.is_empty():
        there = ", ".join(plan.store.graphs["collection"].unique(maintain_order=True))
        raise InputError(
            f"{plan.store.folder}: has no graph of the collections that are asked for, but of "
            f"{there}. Choose among these with --collection, or other data."
        )
    if plan.graphs.filter(IS_LABELLED).is_empty():
        raise InputError(
            f"{plan.store.folder}: none of its {count(len(plan.graphs), 'graph')} has runtimes, so "
            "nothing can be trained. Rank them with what was trained before: `fastslow rank FILE` "
            "(--run RUN, --with BUNDLE), or add graphs that were measured."
        )


def check_mixture(plan: Plan, *, mixes: bool) -> None:
    """Raise InputError if the plan mixes graphs that no model should learn from together. These are
    graphs with layouts and graphs with compile options, because their feature tables differ; and
    measured graphs and graphs with a compiler's estimates, unless the user allows it (`mixes`)."""
    if mixed := find_mixed_in_store(plan.store, plan.graphs):
        raise InputError("\n".join(f"{plan.store.folder}: {words}" for words in mixed))
    labelled = plan.graphs.filter(IS_LABELLED)
    sources = labelled.group_by("label_source").len().sort("label_source")
    if mixes or len(sources) < 2:
        return
    found = ", ".join(f"{number:,} {show_source(source)}" for source, number in sources.iter_rows())
    raise InputError(
        f"{plan.store.folder}: expected labels of one kind, found graphs with several ({found}). "
        "Keep a folder for each, or learn from all of them together with --mix-labels."
    )


def check_experiments(experiments: Sequence[Experiment], plan: Plan) -> None:
    """Raise InputError if none of the experiments has a model to train on the plan's graphs."""
    if not any(list_jobs(experiment, plan) for experiment in experiments):
        labelled = plan.graphs.filter(IS_LABELLED)["collection"]
        there = ", ".join(labelled.unique(maintain_order=True))
        raise InputError(
            f"{join_names([experiment.name for experiment in experiments])}: nothing to train, for "
            f"the labelled graphs are of {there}. Choose others with --experiment or "
            "--recipe, or other data."
        )


def warn_about_gaps(
    plan: Plan, collections: Sequence[str] = NAMES, experiments: Sequence[Experiment] = ()
) -> None:
    """Warn about `collections` that no model can learn from or that cannot be divided into folds,
    and about `experiments` that rank none of the collections."""
    for item in experiments:
        if not any(name in collections for name in item.collections):
            ranked = ", ".join(item.collections)
            warn(f"{item.name}: ranks {ranked}, which is not asked for: nothing is trained.")
    for name in collections:
        labelled = plan.rows(name, IS_LABELLED)
        if plan.rows(name).is_empty():
            warn(f"{name}: no graphs here; it is left out.")
        elif labelled.is_empty():
            warn(f"{name}: no graph has labels; nothing can be trained on it.")
        elif not plan.folds(name):
            warn(
                f"{name}: {count(len(labelled), 'labelled graph')} of one architecture "
                "cannot be divided; one model learns from all and there is no out-of-fold score."
            )
        elif len(labelled) < 2 * len(plan.folds(name)):
            warn(f"{name}: only {len(labelled)} labelled graphs; scores mean little.")


# Columns that identify a graph and the contents of its npz file (a hash).
SAME = ("collection", "split", "graph", "source")


def open_run_store(run: Run, given: Path | None = None) -> Store:
    """Return the run's store: the store at `given` or, without it, a store at the recorded path or
    among this machine's stores. Raises InputError if none of these is an intact store with all
    graphs of the run."""
    folders = list_stores(run) if given is None else [given]
    there = [folder for folder in folders if given or _is_there(folder)]
    refused: list[str] = []
    for folder in there:
        try:
            store = Store.open(folder)
        except InputError as error:  # try the next folder, which may hold an intact store
            refused.append(str(error))
            continue
        defect = find_other_graphs(run, store)
        if defect is None:
            for words in refused:
                warn(f"{words} {folder} is used instead.")
            return store
        refused.append(defect)
    if refused:
        raise InputError("\n".join(refused))
    origin = recall_origin(run)
    was = f" It was {origin.store}, made of {origin.data}." if origin else ""
    raise InputError(
        f"{folders[-1]}: the store of the run is not there.{was} Give it with --data, or what "
        "`fastslow prepare` makes of the data."
    )


def find_other_graphs(run: Run, store: Store) -> str | None:
    """Return in words which of the run's graphs the store lacks; None if it has all."""
    graphs = predictions.read(run.graphs, SAME)
    lacking = graphs.join(store.graphs, on=SAME, how="anti")
    if lacking.is_empty():
        return None
    collection, name = lacking.select("collection", "graph").row(0)
    return (
        f"{store.folder}: is another store than that of {run.folder}: of the run's "
        f"{len(graphs)} graphs it lacks {len(lacking)}, such as {collection}:{name} as it was. "
        "Give the store of the run with --data."
    )


def _is_there(folder: Path) -> bool:
    """Return whether the folder is a store; False if its path is invalid or inaccessible."""
    try:
        return is_store(folder)
    except (OSError, ValueError):
        return False
