"""An error in somebody's own model: one line that leads to the place, before hours are spent."""

import sys
import tempfile
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType

import numpy as np

from solution.domain.graph import Graph
from solution.experiments.base import Experiment
from solution.models.base import Ranker
from solution.models.table_ranker import TableSettings
from solution.system.errors import InputError
from solution.training.plan import IS_LABELLED, Plan

REHEARSAL_GRAPHS = 2  # one to fit on, one to stop early on


@contextmanager
def name_failure(experiment: Experiment, doing: str) -> Iterator[None]:
    """Turn an error that was raised by the file of the experiment into one line.

    An error from anywhere else is a defect of this program and keeps its traceback.

    Raises:
        InputError: with the file, line, function and what was being done; or no GPU has the memory.
    """
    try:
        yield
    except (InputError, OSError, MemoryError):
        raise
    except (Exception, SystemExit) as error:  # of sys.exit, which would end this without a word
        torch = sys.modules.get("torch")
        if torch is not None and isinstance(error, torch.cuda.OutOfMemoryError):
            raise InputError(
                f"The GPU has no memory left ({doing}). What is finished is kept: start again with "
                "fewer --workers."
            ) from error
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
        graphs, validation = plan.load(rows[:1], settings), plan.load(rows[1:], settings)
        graph, ranker = graphs[0], settings.build(seed=0)
        try:
            ranker.fit(graphs, validation)
            scores = ranker.predict(graph)
        except InputError as error:
            raise InputError(f"{experiment.origin}: {error}") from error
        _try_saving(ranker, experiment)
    check_shape(scores, experiment, graph)
    _check_finite(scores, experiment, graph)


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


def _check_finite(scores: np.ndarray, experiment: Experiment, graph: Graph) -> None:
    """Raise InputError where scores are no finite numbers as they are kept, in 32 bits."""
    with np.errstate(over="ignore"):
        wrong = int((~np.isfinite(scores.astype(np.float32))).sum())
    if wrong:
        is_table = isinstance(experiment.ranker, TableSettings)
        raise InputError(
            f"{experiment.origin}: {'score_rows' if is_table else 'predict'} of "
            f"{type(experiment.ranker).__name__} gave {wrong} of the {len(scores)} configurations "
            f"of {graph.name} scores that are NaN, infinite or too large for 32 bits."
        )


def check_shape(scores: np.ndarray, experiment: Experiment, graph: Graph) -> None:
    """Raise InputError where a ranker did not predict one score a configuration."""
    if np.shape(scores) != (graph.num_configs,):
        raise InputError(
            f"{experiment.name}: predict returned scores of shape {np.shape(scores)} for "
            f"{graph.name}, expected ({graph.num_configs},): one a configuration."
        )
