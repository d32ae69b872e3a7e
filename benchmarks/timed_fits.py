"""Fit nets for a given time.

Seconds are processor time, not wall-clock time: a fit has one thread, and so it runs as many epochs
on a shared machine as on an idle one.
"""

import dataclasses
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from solution.domain.graph import Graph


def fit_for(settings: Any, graphs: Sequence[Graph], seconds: float, seed: int) -> Any:
    """Fit a net for about `seconds`, or for the epochs of its settings if they take less.

    In both cases the learning-rate schedule is completed.
    """
    epochs = min(settings.training.epochs, time_fits(settings, graphs).epochs_in(seconds))
    return with_epochs(settings, epochs).build(seed).fit(graphs, [])


@dataclass(frozen=True)
class FitTimes:
    """The cost of a fit, in seconds."""

    epoch: float
    beside: float  # fixed cost, such as fine-tuning a head at the end

    def epochs_in(self, seconds: float) -> int:
        """Return the number of epochs that take `seconds`; at least one."""
        return max(1, round((seconds - self.beside) / self.epoch))


def time_fits(settings: Any, graphs: Sequence[Graph]) -> FitTimes:
    """Time fits of one epoch and of three."""
    first = with_epochs(settings, 1).build(0)
    for graph in graphs:
        unwrap(first).prepare(graph)  # cached, so that only training is timed
    taken = []
    for ranker in (first, with_epochs(settings, 3).build(0)):
        started = time.process_time()
        ranker.fit(graphs, [])
        taken.append(time.process_time() - started)
    epoch = max((taken[1] - taken[0]) / 2, 1e-4)
    return FitTimes(epoch, max(0.0, taken[0] - epoch))


def with_epochs(settings: Any, epochs: int) -> Any:
    """Return the settings of a net with `epochs` epochs and no early stopping."""
    if hasattr(settings, "ranker"):
        return dataclasses.replace(settings, ranker=with_epochs(settings.ranker, epochs))
    training = dataclasses.replace(settings.training, epochs=epochs, patience=None)
    return dataclasses.replace(settings, training=training)


def count_epochs(ranker: Any) -> int:
    """Return the number of epochs of a fitted net; 0 for other rankers."""
    training = getattr(unwrap(ranker).settings, "training", None)
    return 0 if training is None else int(training.epochs)


def unwrap(ranker: Any) -> Any:
    """Return the ranker inside one that averages over lists, or itself; the same for settings."""
    return getattr(ranker, "ranker", ranker)
