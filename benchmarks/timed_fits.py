"""Fits that take a given time.

Seconds are those of the processor, not of the clock: a fit has one thread, and on a machine that
others use, too, it gets as many epochs as on one that it has for itself.
"""

import dataclasses
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from solution.domain.graph import Graph


def fit_for(settings: Any, graphs: Sequence[Graph], seconds: float, seed: int) -> Any:
    """Fit a net for about `seconds`, or for the epochs it asks for where these are done before.

    The learning rate takes its whole course in either.
    """
    epochs = min(settings.training.epochs, time_fits(settings, graphs).epochs_in(seconds))
    return with_epochs(settings, epochs).build(seed).fit(graphs, [])


@dataclass(frozen=True)
class FitTimes:
    """What a fit takes, in seconds."""

    epoch: float
    beside: float  # what is done once, such as tuning a head in the end

    def epochs_in(self, seconds: float) -> int:
        """The epochs of a fit of so many seconds; at least one."""
        return max(1, round((seconds - self.beside) / self.epoch))


def time_fits(settings: Any, graphs: Sequence[Graph]) -> FitTimes:
    """Fit one epoch, and then three."""
    first = with_epochs(settings, 1).build(0)
    for graph in graphs:
        unwrap(first).prepare(graph)  # is kept, so that only training is timed
    taken = []
    for ranker in (first, with_epochs(settings, 3).build(0)):
        started = time.process_time()
        ranker.fit(graphs, [])
        taken.append(time.process_time() - started)
    epoch = max((taken[1] - taken[0]) / 2, 1e-4)
    return FitTimes(epoch, max(0.0, taken[0] - epoch))


def with_epochs(settings: Any, epochs: int) -> Any:
    """The settings of a net with so many epochs and no early stopping."""
    if hasattr(settings, "ranker"):
        return dataclasses.replace(settings, ranker=with_epochs(settings.ranker, epochs))
    training = dataclasses.replace(settings.training, epochs=epochs, patience=None)
    return dataclasses.replace(settings, training=training)


def count_epochs(ranker: Any) -> int:
    """The epochs of a net that was fitted; 0 of anything else."""
    training = getattr(unwrap(ranker).settings, "training", None)
    return 0 if training is None else int(training.epochs)


def unwrap(ranker: Any) -> Any:
    """The ranker inside one that averages over lists, or itself; the same of settings."""
    return getattr(ranker, "ranker", ranker)
