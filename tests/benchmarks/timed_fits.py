"""Fits that take a given time."""

import dataclasses
import time
from collections.abc import Sequence
from typing import Any

from solution.graph import Graph


def fit_for(settings: Any, graphs: Sequence[Graph], seconds: float, seed: int) -> Any:
    """Fit a net for about `seconds`, all epochs of the learning rate's course included."""
    epochs = max(1, round(seconds / time_epoch(settings, graphs)))
    return with_epochs(settings, epochs).build(seed).fit(graphs, [])


def time_epoch(settings: Any, graphs: Sequence[Graph]) -> float:
    """The seconds of a fit of one epoch."""
    trial = with_epochs(settings, 1).build(0)
    for graph in graphs:
        getattr(trial, "ranker", trial).prepare(graph)  # is kept, so that only training is timed
    started = time.perf_counter()
    trial.fit(graphs, [])
    return time.perf_counter() - started


def with_epochs(settings: Any, epochs: int) -> Any:
    """The settings of a net with so many epochs and no early stopping."""
    if hasattr(settings, "ranker"):
        return dataclasses.replace(settings, ranker=with_epochs(settings.ranker, epochs))
    training = dataclasses.replace(settings.training, epochs=epochs, patience=None)
    return dataclasses.replace(settings, training=training)


def count_epochs(ranker: Any) -> int:
    """The epochs of a net that was fitted; 0 of anything else."""
    training = getattr(getattr(ranker, "ranker", ranker).settings, "training", None)
    return 0 if training is None else int(training.epochs)
