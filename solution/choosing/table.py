"""Represent a program with known runtimes of all configurations as a searchable table."""

from dataclasses import dataclass

import numpy as np

from solution.choosing.space import Space
from solution.domain.graph import Graph
from solution.domain.vocabulary import LAYOUT_TENSORS, MAX_RANK, TILE_BLOCKS
from solution.system.errors import InputError

HOPS = 8  # largest distance to assign a node to a configurable node


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
    found = [np.unique(column, return_inverse=True) for column in columns.T]
    members = np.zeros((len(columns), max(1, len(found))), np.int32)
    for site, (_, inverse) in enumerate(found):
        members[:, site] = inverse
    values = [own.astype(np.float64) for own, _ in found] or [np.zeros(1)]
    return Space(
        sizes=np.array([len(own) for own in values]),
        default=members[0],
        links=links,
        coordinates=tuple(own if ordered else None for own in values),
        members=members,
    )


def link_sites(
    edges: np.ndarray, nodes: int, configurable: np.ndarray, node: np.ndarray
) -> np.ndarray:
    """Return pairs (links, 2) of sites at one node, or at neighbouring configurable nodes.

    Every node of the program belongs to the configurable node from which it is reached first. Two
    configurable nodes are neighbours if an edge leads from a node of one to a node of the other.

    Args:
        edges: (edges, 2).
        configurable: (configurable,) nodes.
        node: (sites,) position of each site's node among the configurable nodes.
    """
    owner = np.full(nodes, -1)
    owner[configurable] = np.arange(len(configurable))
    both = np.concatenate([edges, edges[:, ::-1]])
    for _ in range(HOPS):
        spread = both[(owner[both[:, 0]] >= 0) & (owner[both[:, 1]] < 0)]
        owner[spread[:, 1]] = owner[spread[:, 0]]
    touching = owner[edges]
    pairs = np.unique(touching[(touching[:, 0] != touching[:, 1]) & (touching >= 0).all(1)], axis=0)
    first = {number: site for site, number in reversed(list(enumerate(node.tolist())))}
    chained = [(site, site + 1) for site in range(len(node) - 1) if node[site] == node[site + 1]]
    across = [(first[a], first[b]) for a, b in pairs.tolist() if a in first and b in first]
    return np.array([*chained, *across], int).reshape(-1, 2)
