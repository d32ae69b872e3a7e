"""An error in somebody's own model: one line that leads to the place, before hours are spent."""

import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from solution.domain.graph import Graph
from solution.experiments.base import Experiment
from solution.system.errors import InputError
from solution.training.plan import IS_LABELLED, Plan

REHEARSAL_GRAPHS = 2  # one to fit on, one to stop early on


@contextmanager
def name_failure(experiment: Experiment, doing: str) -> Iterator[None]:
    """Turn an error that was raised by the file of the experiment into one line.

    An error from anywhere else is a defect of this program and keeps its traceback.

    Raises:
        InputError: with the file, line, function and what was being done.
    """
    try:
        yield
    except (InputError, OSError, MemoryError):
        raise
    except Exception as error:
        own = Path(experiment.origin)
        frames = [
            frame
            for frame in traceback.extract_tb(error.__traceback__)
            if Path(frame.filename) == own
        ]
        if not frames:
            raise
        raise InputError(
            f"{own}, line {frames[-1].lineno}, in {frames[-1].name}: "
            f"{type(error).__name__}: {error} ({doing})."
        ) from error


def rehearse(experiment: Experiment, plan: Plan) -> None:
    """Fit a model of one's own on a graph and predict it, before workers start.

    Experiments of the package are tested; a file of the user's may fail at its first line.
    """
    if Path(experiment.origin).suffix != ".py" or not experiment.ranker.learns:
        return
    for collection in experiment.collections:
        rows = plan.rows(collection, IS_LABELLED).sort("nodes", "configs").head(REHEARSAL_GRAPHS)
        if len(rows) == REHEARSAL_GRAPHS:
            break
    else:
        return
    settings = experiment.ranker.quick()
    with name_failure(experiment, f"tried on {rows['graph'][0]} before the training"):
        graph = plan.load(rows[:1], settings)[0]
        ranker = settings.build(seed=0)
        ranker.fit(plan.load(rows[:1], settings), plan.load(rows[1:], settings))
        scores = ranker.predict(graph)
    check_shape(scores, experiment, graph)


def check_shape(scores: np.ndarray, experiment: Experiment, graph: Graph) -> None:
    """Raise InputError where a ranker did not predict one score a configuration."""
    if np.shape(scores) != (graph.num_configs,):
        raise InputError(
            f"{experiment.name}: predict returned scores of shape {np.shape(scores)} for "
            f"{graph.name}, expected ({graph.num_configs},): one a configuration."
        )
