"""Search without compiling: in a table of known runtimes, or by the model's scores alone."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from solution.choosing.guided import DOUBT, FAR_DOUBT, Beliefs
from solution.choosing.journal import FAILED, Trial
from solution.choosing.live_prior import UNLED
from solution.choosing.methods import OURS, describe_unled, is_led, make_proposer
from solution.choosing.proposer import Proposer
from solution.choosing.search import Budget, search
from solution.collecting.space import Space, link_sites, name_config
from solution.domain.graph import Graph
from solution.domain.vocabulary import LAYOUT_TENSORS, MAX_RANK, TILE_BLOCKS
from solution.serving.bundle import Bundle
from solution.serving.ranking import KNOWN, Ranking
from solution.serving.reading import read_graph, read_question
from solution.serving.words import describe_configs
from solution.system.errors import InputError

# numbers of measurements after which `replay_file` reports the fastest configuration so far
SHOWN = (1, 2, 4, 8, 16, 32, 64, 128)


@dataclass(frozen=True, eq=False)
class Table:
    """The distinct configurations (members) of a graph, and their known runtimes."""

    name: str
    collection: str
    space: Space
    # (members,) runtimes; the mean if a configuration occurs several times
    runtimes: np.ndarray
    # (members,) index of each configuration in the graph; the first index if it occurs repeatedly
    first: np.ndarray


def make_table(graph: Graph) -> Table:
    """Return the table of a labelled graph. Raises InputError if its runtimes are not known."""
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
    """Return the space of tiles (members, features): a site (parameter) for each size that varies,
    with the coordinates log(1 + size)."""
    sizes = np.concatenate([tiles[:, block][:, :MAX_RANK] for block in TILE_BLOCKS.values()], 1)
    varied = sizes[:, (sizes != sizes[0]).any(axis=0)]
    return make_space(np.log1p(varied), np.zeros((0, 2), int), ordered=True)


def _layout_space(graph: Graph, first: np.ndarray) -> Space:
    """Return the space of the graph's configurations with the indices `first` (members,): a site
    for each tensor whose layout varies, and for each compile option."""
    book = graph.layouts.select(first)
    # (members, nodes * 3, 6): layouts of all tensors of the configurable nodes
    tensors = book.expand().reshape(len(first), -1, MAX_RANK)
    # one number per layout: its axes, -1 to 5, are the digits 0 to 6 in base 7
    codes = (tensors.astype(np.int64) + 1) @ (7 ** np.arange(MAX_RANK))
    node = np.repeat(np.arange(len(graph.configurable)), len(LAYOUT_TENSORS))
    varied = np.flatnonzero((codes != codes[0]).any(axis=0))
    links = link_sites(graph.edges, graph.num_nodes, graph.configurable, node[varied])
    columns = codes[:, varied]
    if graph.options is not None:
        columns = np.column_stack([columns, graph.options[first]])
    return make_space(columns, links, ordered=False)


def make_space(columns: np.ndarray, links: np.ndarray, *, ordered: bool) -> Space:
    """Return a space whose members are the rows of `columns` (members, sites); the first row is the
    default. `links` (links, 2): pairs of neighbouring sites. `ordered`: the numbers in `columns`
    are sizes; otherwise they are codes without an order."""
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
    """A measurer for `search` that looks the runtimes up in a table."""

    def __init__(self, table: Table) -> None:
        self._times = dict(zip(table.space.names, table.runtimes.tolist(), strict=True))

    def measure(self, configs: np.ndarray) -> list[Trial]:
        names = [name_config(row) for row in configs]
        return [
            Trial(name, row.tolist(), self._times.get(name), "" if name in self._times else FAILED)
            for name, row in zip(names, configs, strict=True)
        ]


class TablePrior:
    """A prior for a table of configurations: it looks up their known scores (members,)."""

    def __init__(self, space: Space, scores: np.ndarray) -> None:
        self._space = space
        self._scores = np.asarray(scores, np.float64)
        self._by_name = dict(zip(space.names, self._scores.tolist(), strict=True))

    def __call__(self, configs: np.ndarray) -> np.ndarray:
        if configs is self._space.members:
            return self._scores
        return np.array([self._by_name[name_config(row)] for row in configs])


def replay_file(
    path: Path,
    bundle: Bundle | None,
    collection: str | None,
    measurements: int,
    seed: int,
    search_by: str = OURS,
) -> str:
    """Search in the known runtimes of a graph file, and describe the result. `search_by`: the
    optimizer's name in METHODS. `bundle`: models that guide the optimizer, if any (unused for
    compile options). Raises InputError if the file has no runtimes or only one configuration, or
    the bundle has no model for the graph."""
    question = read_question(path, collection)
    graph = question.graph
    if question.made:  # generated configurations have no runtimes
        raise InputError(
            f"{path}: has one configuration, and there is nothing else to look up. Give a graph "
            "with several measured ones, or leave --replay out."
        )
    table = make_table(graph)
    ranking = None if bundle is None or graph.options is not None else bundle.rank(graph)
    proposer = _make_proposer(search_by, table, ranking, seed)
    trials = search(proposer, Lookup(table), Budget(measurements))
    fastest = min(trials, key=lambda trial: trial.time)
    config = table.first[table.space.names.index(fastest.name)]
    # best[n - 1]: slowdown of the fastest of n trials against the table's fastest configuration
    best = np.minimum.accumulate([trial.time for trial in trials]) / table.runtimes.min() - 1
    counts = sorted({*(k for k in SHOWN if k < len(best)), len(best)})
    shown = ", ".join(f"{k}: {best[k - 1]:.2%}" for k in counts)
    return (
        f"{graph.name}: looked {len(trials)} of {len(table.runtimes):,} configurations up; "
        f"nothing was compiled.{_describe_lead(search_by, ranking)}\n"
        f"Best found: {config}, {describe_configs(graph, np.array([config]))[0]}.\n"
        f"Slower than the best of the table, after n measurements: {shown}."
    )


def _describe_lead(name: str, ranking: Ranking | None) -> str:
    if not is_led(name):
        return f" {describe_unled(name)}"
    if ranking is None:
        return f" {UNLED}"
    return f" {KNOWN}" if ranking.known else ""


def _make_proposer(name: str, table: Table, ranking: Ranking | None, seed: int) -> Proposer:
    """Return an optimizer that is guided by the ranking's scores, if `ranking` is not None."""
    if ranking is None:
        return make_proposer(name, table.space, None, Beliefs(), seed)
    prior = TablePrior(table.space, ranking.scores[table.first])
    doubt = FAR_DOUBT if ranking.abstained else DOUBT
    beliefs = Beliefs(ranking.graph.collection.kind, doubt)
    return make_proposer(name, table.space, prior, beliefs, seed)


def follow_model(path: Path, bundle: Bundle, collection: str | None, seed: int) -> str:
    """Say which configuration of a graph file the model ranks first; nothing is measured."""
    graph = read_graph(path, collection)
    ranking = bundle.rank(graph)
    best = int(ranking.order[0])
    return (
        f"{graph.name}: of {graph.num_configs:,} configurations the model ranks {best} first: "
        f"{describe_configs(graph, np.array([best]))[0]}.\nNothing was measured, so it may be "
        f"slower than the compiler's own choice. {ranking.sentence()}"
    )
