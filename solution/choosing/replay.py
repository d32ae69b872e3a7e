"""Replay searches in a table of known runtimes: how good a result, after how many measurements."""

from collections.abc import Callable, Sequence

import numpy as np

from solution.choosing.guided import Beliefs
from solution.choosing.methods import METHODS, ORDER, OURS, PROCESS, make_proposer
from solution.choosing.proposer import Prior, Proposer
from solution.choosing.search import Lookup
from solution.choosing.space import Space, name_choices
from solution.choosing.table import Table

ALONE = "ours, no prior"
LABELS = {ORDER: "ours, not online", PROCESS: "gaussian process"}

Build = Callable[[Table, Prior, int], Proposer]


def list_methods() -> dict[str, Build]:
    """Return by name functions that make an optimizer from a table, its prior and a seed.

    This project's optimizer is in the list with and without the prior.
    """

    def build(name: str, *, is_led: bool = True) -> Build:
        def make(table: Table, prior: Prior, seed: int) -> Proposer:
            beliefs = Beliefs(table.collection.split(":")[0])
            return make_proposer(name, table.space, prior if is_led else None, beliefs, seed)

        return make

    named = {LABELS.get(name, name): build(name) for name in METHODS}
    return {OURS: named.pop(OURS), ALONE: build(OURS, is_led=False), **named}


class TablePrior:
    """Look up the scores of a table's members by their choices."""

    def __init__(self, space: Space, scores: np.ndarray) -> None:
        """Store scores (members,)."""
        self._space = space
        self._scores = np.asarray(scores, np.float64)
        self._by_name = dict(zip(space.names, self._scores.tolist(), strict=True))

    def __call__(self, choices: np.ndarray) -> np.ndarray:
        if choices is self._space.members:
            return self._scores
        return np.array([self._by_name[name_choices(row)] for row in choices])


def replay(table: Table, proposer: Proposer, most: int) -> np.ndarray:
    """Return the regret (most,) after each measurement: best time so far over best time, less 1.

    The search ends as soon as the best configuration is found.
    """
    lookup = Lookup(table)
    best = table.runtimes.min()
    curve = np.zeros(most)
    found = np.inf
    for place in range(most):
        asked = proposer.ask(1)
        if len(asked):
            times = np.array([trial.time for trial in lookup.measure(asked)])
            proposer.tell(asked, times)
            found = min(found, float(np.nanmin(times)))
        curve[place] = found / best - 1
        if found <= best:
            break
    return curve


def replay_seeds(
    table: Table, scores: np.ndarray, build: Build, seeds: Sequence[int], most: int
) -> np.ndarray:
    """Return the regret (seeds, most) of a method; `scores` (members,) are its prior in the
    table."""
    prior = TablePrior(table.space, scores)
    return np.stack([replay(table, build(table, prior, seed), most) for seed in seeds])
