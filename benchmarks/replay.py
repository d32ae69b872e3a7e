"""Replay searches in tables of known runtimes: the regret by number of measurements."""

from collections.abc import Callable, Sequence

import numpy as np

from solution.choosing.guided import Beliefs
from solution.choosing.methods import METHODS, ORDER, OURS, PROCESS, make_proposer
from solution.choosing.offline import Lookup, Table, TablePrior
from solution.choosing.proposer import Proposer
from solution.collecting.space import Prior

ALONE = "ours, no prior"
LABELS = {ORDER: "ours, not online", PROCESS: "gaussian process"}
Build = Callable[[Table, Prior, int], Proposer]


def list_methods(beliefs: Beliefs | None = None) -> dict[str, Build]:
    """Return by name functions that make an optimizer from a table, its prior and a seed.

    This project's optimizer is in the list with and without the prior. `beliefs`: how much it
    trusts the prior; by default that of a bundle's scores.
    """

    def build(name: str, *, is_led: bool = True) -> Build:
        def make(table: Table, prior: Prior, seed: int) -> Proposer:
            trust = beliefs or Beliefs(table.collection.split(":")[0])
            return make_proposer(name, table.space, prior if is_led else None, trust, seed)

        return make

    named = {LABELS.get(name, name): build(name) for name in METHODS}
    return {OURS: named.pop(OURS), ALONE: build(OURS, is_led=False), **named}


def replay(
    table: Table, proposer: Proposer, most: int, *, knows_default: bool = False
) -> np.ndarray:
    """Return the regret (most,) after each measurement: best time so far over best time, less 1.

    The search ends as soon as the best configuration is found.

    Args:
        knows_default: True if the search begins with the default's time, which counts as no
            measurement.
    """
    lookup = Lookup(table)
    best = table.runtimes.min()
    curve = np.zeros(most)
    fastest = np.inf
    if knows_default:
        default = table.space.default[None]
        fastest = lookup.measure(default)[0].time
        proposer.tell(default, np.array([fastest]))
    for turn in range(most):
        if fastest <= best:
            break
        asked = proposer.ask(1)
        if len(asked):
            times = np.array([trial.time for trial in lookup.measure(asked)])
            proposer.tell(asked, times)
            fastest = min(fastest, float(np.nanmin(times)))
        curve[turn] = fastest / best - 1
    return curve


def replay_seeds(
    table: Table,
    scores: np.ndarray,
    build: Build,
    seeds: Sequence[int],
    most: int,
    *,
    knows_default: bool = False,
) -> np.ndarray:
    """Return the regret (seeds, most) of a method whose prior are the `scores` (members,)."""
    prior = TablePrior(table.space, scores)
    return np.stack(
        [
            replay(table, build(table, prior, seed), most, knows_default=knows_default)
            for seed in seeds
        ]
    )
