"""Search in a table of known runtimes: what a proposer would have found, and how soon."""

from collections.abc import Callable, Sequence

import numpy as np

from solution.choosing.evolution import Annealing, Beam, CrossEntropy, Genetic
from solution.choosing.guided import Beliefs, ByOrder, Guided
from solution.choosing.proposer import Prior, Proposer, RandomSearch
from solution.choosing.search import Lookup
from solution.choosing.space import Space, name_choices
from solution.choosing.table import Table

OURS, ALONE, ORDER = "ours", "ours, no prior", "ours, not online"
TPE, PROCESS = "tpe", "gaussian process"

Build = Callable[[Table, Prior, int], Proposer]


def list_methods() -> dict[str, Build]:
    """Every proposer by name, made of a table, its prior and a seed."""
    return {
        OURS: lambda table, prior, seed: Guided(table.space, seed, prior, Beliefs(_kind(table))),
        ALONE: lambda table, prior, seed: Guided(table.space, seed, None, Beliefs(_kind(table))),
        ORDER: lambda table, prior, seed: ByOrder(table.space, seed, prior),
        "random": lambda table, prior, seed: RandomSearch(table.space, seed),
        "genetic": lambda table, prior, seed: Genetic(table.space, seed),
        "annealing": lambda table, prior, seed: Annealing(table.space, seed),
        "beam": lambda table, prior, seed: Beam(table.space, seed),
        "cross-entropy": lambda table, prior, seed: CrossEntropy(table.space, seed),
        TPE: _build_tpe,
        PROCESS: _build_process,
    }


class TablePrior:
    """Scores of a table's members, by what the members are."""

    def __init__(self, space: Space, scores: np.ndarray) -> None:
        """Keep (members,) scores."""
        self._space = space
        self._scores = np.asarray(scores, np.float64)
        self._by_name = dict(zip(space.names, self._scores.tolist(), strict=True))

    def __call__(self, choices: np.ndarray) -> np.ndarray:
        if choices is self._space.members:
            return self._scores
        return np.array([self._by_name[name_choices(row)] for row in choices])


def replay(table: Table, proposer: Proposer, most: int) -> np.ndarray:
    """The regret (most,) after each measurement: how far the best so far is from the best.

    The search ends where the best is found.
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
    """The regret (seeds, most) of a method on a table whose members have scores (members,)."""
    prior = TablePrior(table.space, scores)
    return np.stack([replay(table, build(table, prior, seed), most) for seed in seeds])


def _kind(table: Table) -> str:
    return table.collection.split(":")[0]


def _build_tpe(table: Table, prior: Prior, seed: int) -> Proposer:
    from solution.choosing.libraries import Tpe  # optuna takes long to import

    return Tpe(table.space, seed)


def _build_process(table: Table, prior: Prior, seed: int) -> Proposer:
    from solution.choosing.libraries import Process

    return Process(table.space, seed)
