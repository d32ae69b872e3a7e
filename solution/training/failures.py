"""Load experiments from users' files; report errors in the files in one line, before training."""

import dataclasses
import os
import sys
import tempfile
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from solution.domain.graph import Graph
from solution.experiments.base import Experiment, find_experiment, read_sources
from solution.models.base import Ranker, RankerSettings
from solution.models.table_ranker import NUMBERS, TableSettings
from solution.system.errors import InputError
from solution.training.plan import IS_LABELLED, Plan

REHEARSAL_GRAPHS = 2  # graphs of a trial fit: one to fit on, one to validate on
NOISE = 1e-12  # rounding error of 64-bit scores, relative to their size
PASSED_ON = (InputError, OSError, MemoryError)  # errors whose messages are clear already


def is_own(experiment: Experiment) -> bool:
    """Return whether the experiment comes from a user's file."""
    return Path(experiment.origin).suffix == ".py"


def load_experiment(name: str) -> Experiment:
    """Load an experiment as find_experiment does. For a user's file, also raise InputError for
    mistakes that would otherwise show only in training."""
    if Path(name).suffix != ".py":
        return find_experiment(name)
    with refuse_other_folder(name):
        try:
            experiment = find_experiment(name)
        except InputError as error:
            raise InputError(f"{error}{_find_place(error.__cause__, Path(name))}") from error
    _check_settings(experiment.ranker, name)
    return experiment


@contextmanager
def refuse_other_folder(source: str) -> Iterator[None]:
    """If the block changes the working folder, change back and raise InputError. `source`: the
    user's file, for the message."""
    before = Path.cwd()
    try:
        yield
    finally:
        now = Path.cwd()
        if now != before:  # change back, because paths of the data and the run may be relative
            os.chdir(before)
            raise InputError(
                f"{source}: changes the working folder to {now}, expected that it stays "
                f"{before}, where the data and the run are looked for. Take the os.chdir out."
            )


def find_own_frames(trace: TracebackType | None, path: Path) -> list[traceback.FrameSummary]:
    """Return the traceback frames in the file, and in the files of its folder that it imports."""
    path = path.absolute()
    files = {str(path.parent / name) for name in read_sources(path)}
    return [frame for frame in traceback.extract_tb(trace) if frame.filename in files]


def _find_place(error: BaseException | None, path: Path) -> str:
    """Return where the user's file failed to import, as " (FILE, line N)", or ""."""
    # the messages of InputError and SyntaxError already name the line
    if error is None or isinstance(error, (InputError, SyntaxError)):
        return ""
    frames = find_own_frames(error.__traceback__, path)
    return f" ({frames[-1].filename}, line {frames[-1].lineno})" if frames else ""


def _check_settings(settings: RankerSettings, source: str) -> None:
    kind = type(settings)
    is_annotated = "__annotations__" in vars(kind) and "__dataclass_fields__" not in vars(kind)
    if not dataclasses.is_dataclass(kind) or is_annotated:
        raise InputError(
            f"{source}: {kind.__name__} is no dataclass, expected one, whose fields are the "
            f"settings. Write @dataclass(frozen=True) above class {kind.__name__}."
        )
    hops = settings.needed_hops
    if hops is not None and (type(hops) is not int or hops < 0):
        raise InputError(
            f"{source}: needed_hops of {kind.__name__} is {hops!r}, expected a whole number from "
            "0, or None for the whole graph."
        )


@contextmanager
def name_failure(experiment: Experiment, doing: str) -> Iterator[None]:
    """If the block raises an error from the experiment's file, raise an InputError with file, line
    and function instead; likewise if a GPU is out of memory. Other errors are defects of this
    program and keep their traceback. `doing`: the activity, for the message."""
    try:
        yield
    except (Exception, SystemExit) as error:  # SystemExit: sys.exit would end the program silently
        if isinstance(error, PASSED_ON) and not isinstance(error, FileNotFoundError):
            raise
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
            f"{frames[-1].filename}, line {frames[-1].lineno}, in {frames[-1].name}: "
            f"{type(error).__name__}: {error} ({doing})."
        ) from error


def _find_frames(
    trace: TracebackType | None, experiment: Experiment
) -> list[traceback.FrameSummary]:
    """Return the traceback frames in the user's file and in the files of its folder that it
    imports; [] if the experiment is not from a user's file."""
    if not is_own(experiment):
        return []
    return find_own_frames(trace, Path(experiment.origin))


def rehearse(experiment: Experiment, plan: Plan) -> None:
    """Fit a user's model on one graph, predict and save it, so that an error in its file shows
    before a long training."""
    if not is_own(experiment) or not experiment.ranker.learns:
        return
    for collection in experiment.collections:
        rows = plan.rows(collection, IS_LABELLED).sort("nodes", "configs").head(REHEARSAL_GRAPHS)
        if len(rows) == REHEARSAL_GRAPHS:
            break
    else:
        return
    settings = experiment.ranker.quick()
    doing = f"tried on {rows['graph'][0]} before the training"
    with refuse_other_folder(experiment.origin), name_failure(experiment, doing):
        graphs, validation = plan.load(rows[:1], settings), plan.load(rows[1:], settings)
        graph, ranker = graphs[0], _build(settings, experiment)
        try:
            ranker.fit(graphs, validation)
            scores = ranker.predict(graph)
            _check_scores(scores, experiment, graph)
            unlabelled = ranker.predict(dataclasses.replace(graph, runtimes=None))
        except InputError as error:
            raise InputError(f"{experiment.origin}: {error}") from error
        _check_equal(scores, unlabelled, experiment, graph)
        _try_saving(ranker, experiment)


def _build(settings: RankerSettings, experiment: Experiment) -> Ranker:
    ranker = settings.build(seed=0)
    if not isinstance(ranker, Ranker):
        raise InputError(
            f"{experiment.origin}: build of {type(settings).__name__} returned "
            f"{type(ranker).__name__}, expected a ranker that inherits from "
            "solution.models.base.Ranker."
        )
    return ranker


def _try_saving(ranker: Ranker, experiment: Experiment) -> None:
    with tempfile.TemporaryDirectory() as folder:
        try:
            ranker.save(Path(folder))
        except ValueError as error:  # from numpy, if a learned value is no array of numbers
            if _find_frames(error.__traceback__, experiment):
                raise
            raise InputError(
                f"{experiment.origin}: what it learned cannot be saved: {error}. Expected arrays "
                "of numbers from what fits it."
            ) from error


def _check_scores(scores: np.ndarray, experiment: Experiment, graph: Graph) -> None:
    """Raise InputError if scores are not finite as 32-bit floats, or if rounding to 32 bits makes
    different scores all equal."""
    check_shape(scores, experiment, graph)
    is_table = isinstance(experiment.ranker, TableSettings)
    who = f"{'score_rows' if is_table else 'predict'} of {type(experiment.ranker).__name__}"
    with np.errstate(over="ignore"):
        narrow = scores.astype(np.float32)
    if wrong := int((~np.isfinite(narrow)).sum()):
        raise InputError(
            f"{who} gave {wrong} of the {len(scores)} configurations of {graph.name} scores that "
            "are NaN, infinite or too large for 32 bits."
        )
    spread, size = float(np.ptp(scores.astype(np.float64))), float(np.abs(narrow).max())
    if np.ptp(narrow) == 0 and spread > NOISE * size:
        raise InputError(
            f"{who} gave the configurations of {graph.name} scores that are all the same in 32 "
            f"bits: they lie within {spread:.3g} around {narrow[0]:.6g}. Subtract their mean from "
            "them."
        )


def _check_equal(
    scores: np.ndarray, unlabelled: np.ndarray, experiment: Experiment, graph: Graph
) -> None:
    """Raise InputError if the scores change when the graph's runtimes are removed."""
    if not np.allclose(scores, unlabelled, rtol=1e-3, atol=1e-6):
        raise InputError(
            f"{experiment.origin}: {type(experiment.ranker).__name__} predicts other scores for "
            f"{graph.name} where that has no runtimes: it reads them, or draws at random. Predict "
            "from the program and its configurations alone, the same each time."
        )


def check_shape(scores: Any, experiment: Experiment, graph: Graph) -> None:
    """Raise InputError unless a ranker predicted an array with one number per configuration."""
    if not isinstance(scores, np.ndarray) or np.ma.isMaskedArray(scores):
        found = f"a {type(scores).__qualname__}"
    elif scores.dtype.kind not in NUMBERS:
        found = f"an array of {scores.dtype}"
    elif scores.shape != (graph.num_configs,):
        found = f"scores of shape {scores.shape}"
    else:
        return
    raise InputError(
        f"{experiment.name}: predict returned {found} for {graph.name}, expected an array of "
        f"numbers of shape ({graph.num_configs},): one a configuration."
    )
