"""Train one experiment and show its progress in a table: `fastslow train`.

The models are the same as those of `fastslow run` and stored in the same folders, so either command
continues the work of the other.
"""

from collections.abc import Sequence

import polars as pl
from rich.table import Table

from ensembles.merge import TABLE_SCHEMA, name_scores, read_draws
from ensembles.statistics import means_by_member, show_interval
from solution.domain import predictions
from solution.domain.metrics import score_predictions
from solution.experiments.base import Experiment
from solution.runs.folder import Run
from solution.system.errors import InputError
from solution.system.terminal import make_table
from solution.training.executors.base import Executor
from solution.training.executors.local import HERE
from solution.training.failures import rehearse
from solution.training.jobs import Choice, list_jobs
from solution.training.out_of_fold import count_missing, gather, train_jobs
from solution.training.plan import Plan
from solution.training.watch import watch_jobs


def check_collections(experiment: Experiment, asked: Sequence[str]) -> tuple[str, ...]:
    """Return the names in `asked` in the experiment's order; all of its collections if empty.

    Raises InputError if the experiment does not rank one of them.
    """
    unknown = [name for name in asked if name not in experiment.collections]
    if unknown:
        raise InputError(
            f"{experiment.name} is not for {', '.join(unknown)}, but for "
            f"{', '.join(experiment.collections)}. Choose among these."
        )
    return tuple(name for name in experiment.collections if not asked or name in asked)


def train_experiment(
    experiment: Experiment,
    collections: Sequence[str],
    plan: Plan,
    run: Run,
    executor: Executor = HERE,
) -> Table:
    """Train the experiment on `collections`, and return a table of its out-of-fold scores."""
    jobs = list_jobs(experiment, plan, Choice(tuple(collections)))
    if not jobs:
        raise InputError(
            f"{experiment.name}: the data has no labelled graphs of {', '.join(collections)}. "
            "Choose other collections or other data."
        )
    rehearse(experiment, plan)
    missing = count_missing(jobs, run)
    with watch_jobs(len(jobs), missing, run.log, title=experiment.name) as watch:
        train_jobs(jobs, plan, run, watch, executor)
    gather(experiment, plan, run)
    return _tabulate(experiment, run)


def _tabulate(experiment: Experiment, run: Run) -> Table:
    own = predictions.read(run.predictions(experiment.name, "out_of_fold"))
    labels, groups = predictions.read(run.labels), read_draws(run)
    table = make_table(f"{experiment.name}, out of fold: the mean over graphs")
    for name in ("Collection", "Seed", "Graphs", "Score", "95% interval"):
        table.add_column(name, justify="left" if name == "Collection" else "right", no_wrap=True)
    scores = [pl.DataFrame(schema=TABLE_SCHEMA)]
    for (collection, seed), part in own.group_by("collection", "seed", maintain_order=True):
        asked = labels.filter(pl.col("collection") == collection)
        scores.append(name_scores(score_predictions(part, asked), str(seed), groups))
    for (collection, seed), mean in means_by_member(pl.concat(scores)).items():
        cells = (str(mean.graphs), f"{mean.value:.3f}", show_interval(mean))
        table.add_row(collection, seed, *cells)
    return table
