"""Replay searches in tables of known runtimes: the regret by number of measurements."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from solution.choosing.guided import Beliefs
from solution.choosing.journal import FAILED, Trial
from solution.choosing.methods import METHODS, ORDER, OURS, PROCESS, make_proposer
from solution.choosing.proposer import Proposer
from solution.collecting.space import Prior, Space, link_sites, name_config
from solution.domain.graph import Graph
from solution.domain.vocabulary import LAYOUT_TENSORS, MAX_RANK, TILE_BLOCKS
from solution.system.errors import InputError

ALONE = "ours, no prior"
LABELS = {ORDER: "ours, not online", PROCESS: "gaussian process"}


@dataclass(frozen=True, eq=False)
class Table:
    """Distinct configurations and their runtimes."""

    name: str
    collection: str
    space: Space
    runtimes: np.ndarray  # (members,) the mean of equal configurations
    first: np.ndarray  # (members,) position in the graph, the first of equal configurations


def make_table(graph: Graph) -> Table:
    """Return the table of a labelled graph.

    Raises InputError if its runtimes are not known.
    """
    if graph.runtimes is None:
        raise InputError(
            f"{graph.name}: has no runtimes to look up. Give a graph with measured ones, or leave "
            "--replay out."
        )
    first, inverse = graph.distinct.first, graph.distinct.inverse
    counts = np.bincount(inverse, minlength=len(first))
    runtimes = np.bincount(inverse, graph.runtimes, len(first)) / counts
    if graph.collection.kind == "tile":
        space = _tile_space(graph.tiles[first])
    else:
        space = _layout_space(graph, first)
    return Table(graph.name, graph.collection.name, space, runtimes, first)


def _tile_space(tiles: np.ndarray) -> Space:
    """Return a space with a site for each size that varies between tiles; values are logarithms."""
    sizes = np.concatenate([tiles[:, block][:, :MAX_RANK] for block in TILE_BLOCKS.values()], 1)
    varied = sizes[:, (sizes != sizes[0]).any(axis=0)]
    return make_space(np.log1p(varied), np.zeros((0, 2), int), ordered=True)


def _layout_space(graph: Graph, first: np.ndarray) -> Space:
    """Return a space with a site for each tensor and option that varies between configurations."""
    book = graph.layouts.select(first)
    tensors = book.expand().reshape(len(first), -1, MAX_RANK)  # (members, nodes * 3, 6)
    codes = (tensors.astype(np.int64) + 1) @ (7 ** np.arange(MAX_RANK))
    node = np.repeat(np.arange(len(graph.configurable)), len(LAYOUT_TENSORS))
    varied = np.flatnonzero((codes != codes[0]).any(axis=0))
    links = link_sites(graph.edges, graph.num_nodes, graph.configurable, node[varied])
    columns = codes[:, varied]
    if graph.options is not None:
        columns = np.column_stack([columns, graph.options[first]])
    return make_space(columns, links, ordered=False)


def make_space(columns: np.ndarray, links: np.ndarray, *, ordered: bool) -> Space:
    """Return the space whose members are the rows of (members, sites) numbers; default: row 0.

    Args:
        ordered: the numbers are sizes, not names.
    """
    if not columns.shape[1]:
        columns = np.zeros((len(columns), 1))
    found = [np.unique(column, return_inverse=True) for column in columns.T]
    members = np.column_stack([inverse for _, inverse in found]).astype(np.int32)
    return Space(
        sizes=np.array([len(values) for values, _ in found]),
        default=members[0],
        links=links,
        coordinates=tuple(values.astype(np.float64) if ordered else None for values, _ in found),
        members=members,
    )


class Lookup:
    """Measure by looking up the runtimes of a table."""

    def __init__(self, table: Table) -> None:
        self._times = dict(zip(table.space.names, table.runtimes.tolist(), strict=True))

    def measure(self, configs: np.ndarray) -> list[Trial]:
        names = [name_config(row) for row in configs]
        return [
            Trial(name, row.tolist(), self._times.get(name), "" if name in self._times else FAILED)
            for name, row in zip(names, configs, strict=True)
        ]


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
    """Look up the scores (members,) of a table's members by their configurations."""

    def __init__(self, space: Space, scores: np.ndarray) -> None:
        self._space = space
        self._scores = np.asarray(scores, np.float64)
        self._by_name = dict(zip(space.names, self._scores.tolist(), strict=True))

    def __call__(self, configs: np.ndarray) -> np.ndarray:
        if configs is self._space.members:
            return self._scores
        return np.array([self._by_name[name_config(row)] for row in configs])


def replay(table: Table, proposer: Proposer, most: int) -> np.ndarray:
    """Return the regret (most,) after each measurement: best time so far over best time, less 1.

    The search ends as soon as the best configuration is found.
    """
    lookup = Lookup(table)
    best = table.runtimes.min()
    curve = np.zeros(most)
    fastest = np.inf
    for turn in range(most):
        asked = proposer.ask(1)
        if len(asked):
            times = np.array([trial.time for trial in lookup.measure(asked)])
            proposer.tell(asked, times)
            fastest = min(fastest, float(np.nanmin(times)))
        curve[turn] = fastest / best - 1
        if fastest <= best:
            break
    return curve


def replay_seeds(
    table: Table, scores: np.ndarray, build: Build, seeds: Sequence[int], most: int
) -> np.ndarray:
    """Return the regret (seeds, most) of a method whose prior are the `scores` (members,)."""
    prior = TablePrior(table.space, scores)
    return np.stack([replay(table, build(table, prior, seed), most) for seed in seeds])
