"""The fold loop: fit on all folds but one, predict the one that was left out and the test graphs.

The folder of a unit (solution.training.jobs) appears when it is complete and is never trained
again, so a run that was killed goes on after its last unit and ends with the same predictions.
"""

from collections.abc import Sequence

import polars as pl

from solution.domain import predictions
from solution.experiments.base import Experiment, find_experiment
from solution.runs.folder import Run
from solution.store.store import Store
from solution.system.errors import InputError
from solution.system.files import remove
from solution.system.parquet import read_by_graphs, write_batches
from solution.system.progress import bars
from solution.system.report import Report
from solution.training.executors.local import count_places, run_watched
from solution.training.fit import train_unit
from solution.training.jobs import Unit, list_units, order
from solution.training.plan import Plan
from solution.training.watch import ProgressBars, Watch


def run_experiments(
    experiments: Sequence[Experiment], plan: Plan, run: Run, workers: int | None = None
) -> None:
    """Train every unit that is not there yet; then gather each experiment's predictions."""
    units = [unit for experiment in experiments for unit in list_units(experiment, plan)]
    with bars() as progress:
        train_units(units, plan, run, ProgressBars(progress, len(units), "Training"), workers)
    for experiment in experiments:
        gather(list_units(experiment, plan), plan, run)


def train_units(
    units: Sequence[Unit], plan: Plan, run: Run, watch: Watch, workers: int | None = None
) -> None:
    """Train every unit that is not there yet.

    Args:
        workers: processes, by default one a GPU or a core. An experiment that was made in this
            process, rather than found by its name or file, is trained here.
    """
    missing = []
    for unit in order(units):
        if unit.folder(run).exists():
            remove(run.checkpoints(unit.folder(run)))
            watch.advance()
        else:
            missing.append(unit)
    count = min(workers or count_places(), len(missing))
    if count > 1 and all(unit.experiment.origin for unit in missing):
        tasks = [(unit.describe(), unit.address()) for unit in missing]
        run_watched(_train_there, tasks, watch, count, _begin, plan.graphs, plan.store, run)
        return
    for unit in missing:
        with watch.unit(unit.describe()) as report:
            train_unit(unit, plan, run, report)
        watch.advance()


_place: tuple[Plan, Run]  # of a worker process


def _begin(graphs: pl.DataFrame, store: Store, run: Run) -> None:
    global _place
    _place = Plan(graphs, store), run


def _train_there(
    origin: str, source: str, collection: str, fold: int, seed: int, report: Report
) -> None:
    experiment = find_experiment(origin)
    if experiment.source != source:
        raise InputError(
            f"{origin}: was changed while its models were trained. Give the changed experiment "
            "another name, or start its run afresh with --replace."
        )
    train_unit(Unit(experiment, collection, fold, seed), *_place, report)


def gather(units: Sequence[Unit], plan: Plan, run: Run) -> None:
    """Check the predictions of an experiment's units, and join them into its two files."""
    if not units:
        return
    experiment = units[0].experiment
    labels = predictions.read(run.labels)
    for part in predictions.PARTS:
        paths = [unit.folder(run) / f"{part}.parquet" for unit in units]
        for unit, path in zip(units, paths, strict=True):
            asked = _questions(unit, plan, labels, part)
            predictions.check_predictions(predictions.read(path), asked, str(path))
        joined = (
            pl.concat(frames.values()).sort(predictions.KEYS)
            for _, frames in read_by_graphs({str(path): path for path in paths})
        )
        write_batches(joined, predictions.SCHEMA, run.predictions(experiment.name, part))


def _questions(unit: Unit, plan: Plan, labels: pl.DataFrame, part: str) -> pl.DataFrame:
    """collection, graph, config of what the unit must have predicted."""
    if part == "test":
        return plan.test_questions(unit.collection)
    held_out = plan.held_out(unit.collection, unit.fold)
    return labels.drop("runtime").join(
        held_out, on=["collection", "graph"], how="semi", maintain_order="left"
    )
