"""An error in somebody's own model: one line that leads to the place, before hours are spent."""

import tempfile
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType

import numpy as np

from solution.domain.collection import collection as find_collection
from solution.domain.graph import Graph
from solution.experiments.base import Experiment, find_experiment
from solution.features.table import distinct_rows
from solution.models.base import Ranker
from solution.models.table_ranker import TableRanker
from solution.system.errors import InputError
from solution.training.plan import IS_LABELLED, Plan

NUMBERS = "buif"  # kinds of numpy's types
REHEARSAL_GRAPHS = 2  # one to fit on, one to stop early on


def load_experiment(name: str) -> Experiment:
    """The experiment of that name or file, to be trained.

    Raises InputError as find_experiment does, and where it could never be trained: what it ranks
    are no collections, or it has no seeds.
    """
    found = find_experiment(name)
    given: object = found.collections
    if not isinstance(given, tuple | list) or not given:
        raise InputError(
            f"{found.origin}: collections is {given!r}, expected names with a comma behind each, "
            'such as ("tile:xla",).'
        )
    try:
        for one in given:
            find_collection(one)
    except InputError as error:
        raise InputError(f"{found.origin}: {error}") from error
    seeds: object = found.seeds
    if not isinstance(seeds, tuple | list) or not seeds or any(type(s) is not int for s in seeds):
        raise InputError(
            f"{found.origin}: seeds is {seeds!r}, expected numbers with a comma behind each, such "
            "as (0,)."
        )
    for what, values in (("collections", given), ("seeds", seeds)):
        if len(set(values)) < len(values):
            raise InputError(f"{found.origin}: {what} is {values!r}: expected none of them twice.")
    return found


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
        frames = _find_frames(error.__traceback__, experiment)
        if not frames:
            raise
        raise InputError(
            f"{experiment.origin}, line {frames[-1].lineno}, in {frames[-1].name}: "
            f"{type(error).__name__}: {error} ({doing})."
        ) from error


def _find_frames(
    trace: TracebackType | None, experiment: Experiment
) -> list[traceback.FrameSummary]:
    """Those of the experiment's own file."""
    own = Path(experiment.origin)
    return [frame for frame in traceback.extract_tb(trace) if Path(frame.filename) == own]


def rehearse(experiment: Experiment, plan: Plan) -> None:
    """Fit a model of one's own on a graph, predict it and save it, before workers start.

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
        if isinstance(ranker, TableRanker):
            _check_rows(ranker, experiment, graph)
        scores = ranker.predict(graph)
        _try_saving(ranker, experiment)
    check_shape(scores, experiment, graph)


def _check_rows(ranker: TableRanker, experiment: Experiment, graph: Graph) -> None:
    """Raise InputError where rows are not scored one by one: scores would be other rows'."""
    assert ranker.scaler_ is not None  # it is fitted
    rows = ranker.scaler_(distinct_rows(graph)).astype(np.float64)
    scores = np.asarray(ranker.settings.score_rows(rows - rows.mean(axis=0), ranker.weights_))
    if scores.shape != (len(rows),) or scores.dtype.kind not in NUMBERS:
        raise InputError(
            f"{experiment.origin}: score_rows returned an array {scores.shape} of {scores.dtype} "
            f"for the {len(rows)} rows of {graph.name}, expected one number a row."
        )


def _try_saving(ranker: Ranker, experiment: Experiment) -> None:
    with tempfile.TemporaryDirectory() as folder:
        try:
            ranker.save(Path(folder))
        except ValueError as error:  # of numpy, where what was learned is no array of numbers
            if _find_frames(error.__traceback__, experiment):
                raise
            raise InputError(
                f"{experiment.origin}: what it learned cannot be saved: {error}. Expected arrays "
                "of numbers from what fits it."
            ) from error


def check_shape(scores: np.ndarray, experiment: Experiment, graph: Graph) -> None:
    """Raise InputError where a ranker did not predict one score a configuration."""
    if np.shape(scores) != (graph.num_configs,):
        raise InputError(
            f"{experiment.name}: predict returned scores of shape {np.shape(scores)} for "
            f"{graph.name}, expected ({graph.num_configs},): one a configuration."
        )
