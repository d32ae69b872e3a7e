"""What a first look at the data measures, one function a question; each is of one graph."""

import numpy as np

from solution.domain import vocabulary
from solution.domain.graph import Graph
from solution.domain.vocabulary import LAYOUT_TENSORS, LAYOUT_UNSET, MAX_RANK, NUM_LAYOUT_TOKENS
from solution.features.layout import copies, layout_table
from solution.features.layout.tensors import find_tensors
from solution.features.layout.violations import violation_ratios
from solution.features.pruning import neighbourhood

FOLDS = 5  # of configurations, to measure separability


def slowdowns(graph: Graph) -> np.ndarray:
    """The runtime of each configuration (configs,) over the fastest, of a labelled graph."""
    assert graph.runtimes is not None
    return graph.runtimes / graph.runtimes.min()


def fastest(graph: Graph) -> float:
    """The runtime of the fastest configuration: ns for layout, over its normaliser for tile."""
    assert graph.runtimes is not None
    return float(graph.runtimes.min())


def relative_range(graph: Graph) -> float:
    """How far the runtimes of a labelled graph reach, slowest less fastest, over their mean."""
    assert graph.runtimes is not None
    return float(np.ptp(graph.runtimes) / graph.runtimes.mean())


def own_runtime(graph: Graph) -> float | None:
    """The runtime of what the compiler does by itself, of a labelled graph; None: not measured.

    Layout: of the configurations that lay out nothing, their mean. Tile: 1, for runtimes are over
    that of the default tile.
    """
    assert graph.runtimes is not None
    if graph.collection.kind == "tile":
        return 1.0
    layouts = graph.layouts
    is_unset = (layouts.layouts == LAYOUT_UNSET).all(axis=1)
    own = np.ones(len(layouts.codes), bool)
    for pairs in layouts.pairs(slice(None)).T:  # a node at a time, so that memory stays small
        own &= is_unset[pairs]
    runtimes = graph.runtimes[own[layouts.rows]]
    return float(runtimes.mean()) if len(runtimes) else None


def gain_over_compiler(graph: Graph) -> float | None:
    """How much faster the fastest configuration is than the compiler's own; None: not measured."""
    own = own_runtime(graph)
    return None if own is None else own / fastest(graph) - 1


def swaps_to_best(graph: Graph) -> np.ndarray:
    """How many pairs of dimensions (configs,) a layout orders otherwise than the fastest does.

    Of output, input and kernel of all configurable nodes: as many swaps of neighbours lead from one
    to the other. What is left to the compiler has the program's order. Padding must be repaired.
    """
    assert graph.runtimes is not None
    layouts = graph.layouts
    best = layouts.pairs(layouts.rows[[int(graph.runtimes.argmin())]])[0]  # a pair for each node
    swaps = np.zeros(len(layouts.layouts), np.int64)
    first, second = np.triu_indices(MAX_RANK, 1)
    for number, tensor in enumerate(LAYOUT_TENSORS):
        tensors = find_tensors(graph, tensor)
        given = layouts.layouts[:, number * MAX_RANK : (number + 1) * MAX_RANK].astype(np.int64)
        places = MAX_RANK + np.argsort(_complete(tensors.layouts, tensors.ranks), axis=1)
        places = places[layouts.node]  # (pairs, dimensions); those that are given come first
        for slot in range(MAX_RANK):
            rows = np.flatnonzero(given[:, slot] >= 0)
            places[rows, given[rows, slot]] = slot
        before = places[:, first] < places[:, second]
        is_there = second < tensors.ranks[layouts.node][:, None]
        swaps += ((before != before[best[layouts.node]]) & is_there).sum(axis=1)
    total = np.zeros(len(layouts.codes), np.int64)
    for pairs in layouts.pairs(slice(None)).T:  # a node at a time, so that memory stays small
        total += swaps[pairs]
    return total[layouts.rows]


def _complete(orders: np.ndarray, ranks: np.ndarray) -> np.ndarray:
    """Orders (nodes, 6) of all six dimensions: those past the rank come last, as they are."""
    past = np.arange(MAX_RANK) >= ranks[:, None]
    return np.where(past, np.arange(MAX_RANK), orders)


def copied_bytes(graph: Graph) -> np.ndarray:
    """The share (configs,) of the bytes between configurable nodes that have to be copied.

    Those of tensors that a configuration orders differently where they are made and read.
    """
    column = [feature.name for feature in copies.FEATURES].index("copies_order_bytes")
    return copies.count_copies(graph)[graph.layouts.rows, column]


def padded_bytes(graph: Graph) -> np.ndarray:
    """How much padding (configs,) the layouts of configurable nodes need, over the real bytes."""
    column = [feature.name for feature in layout_table.FEATURES].index("moved_bytes")
    return np.expm1(layout_table.layout_rows(graph)[:, column].astype(np.float64))


def violation_ratio(graph: Graph) -> np.ndarray:
    """The share (configs,) of violating nodes in each configuration of a layout graph."""
    return violation_ratios(graph)[graph.layouts.rows]


def own_vectors(graph: Graph) -> np.ndarray:
    """Configurations as vectors (configs, columns) that are comparable inside this graph only.

    Layout: one column for each configurable node, slot and value. Tile: see shared_vectors.
    """
    if graph.collection.kind == "tile":
        return shared_vectors(graph)
    slots = graph.layouts.expand().reshape(graph.num_configs, -1)
    varying = slots[:, (slots != slots[0]).any(axis=0)]
    values = np.arange(LAYOUT_UNSET, MAX_RANK)
    hot = (varying[:, :, None] == values).reshape(graph.num_configs, -1)
    return hot[:, hot.any(axis=0)].astype(np.float32)


def shared_vectors(graph: Graph) -> np.ndarray:
    """Configurations as vectors (configs, columns) with the same columns for every graph.

    Layout (21 columns): for each tensor, the share of nodes that have each dimension, or none
    given, minor-most. Tile (24): the logarithm of one more than each size.
    """
    if graph.collection.kind == "tile":
        return np.log1p(np.maximum(graph.tiles, 0)).astype(np.float32)
    layouts = graph.layouts
    minor = layouts.layouts[:, ::MAX_RANK][:, : len(LAYOUT_TENSORS)]  # (pairs, tensors)
    hot = minor[:, :, None] == np.arange(LAYOUT_UNSET, MAX_RANK)
    flat = hot.reshape(len(minor), len(LAYOUT_TENSORS) * NUM_LAYOUT_TOKENS).astype(np.float32)
    sums = np.zeros((len(layouts.codes), flat.shape[1]), np.float32)
    for pairs in layouts.pairs(slice(None)).T:  # a node at a time, so that memory stays small
        sums += flat[pairs]
    return (sums / max(1, layouts.shape[1]))[layouts.rows]


def principal_components(vectors: np.ndarray, count: int = 2) -> tuple[np.ndarray, np.ndarray]:
    """The `count` directions in which the vectors (n, columns) differ most.

    Returns:
        The coordinates (n, count), and the share (count,) of the variance that each has.
    """
    centred = vectors - vectors.mean(axis=0, dtype=np.float64)
    left, strengths, _ = np.linalg.svd(centred, full_matrices=False)
    found = min(count, len(strengths))
    coordinates, shares = np.zeros((len(vectors), count)), np.zeros(count)
    coordinates[:, :found] = (left * strengths)[:, :found]
    shares[:found] = strengths[:found] ** 2 / max(1e-12, float((strengths**2).sum()))
    return coordinates, shares


def separability(points: np.ndarray, runtimes: np.ndarray) -> float:
    """How well a plane parts the faster half of configurations from the slower: 0.5 is chance.

    The balanced accuracy of a logistic regression on points (n, components), on fifths that it was
    not fitted on. A document that finds "strong linear separability" in three components shows
    pictures and no number; this one asks what a ranking needs of such a separation, and cannot be
    reached by fitting noise. NaN where one half has fewer than five.
    """
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import StratifiedKFold, cross_val_score
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    is_slow = runtimes > np.median(runtimes)
    if min(is_slow.sum(), (~is_slow).sum()) < FOLDS:
        return float("nan")
    folds = StratifiedKFold(FOLDS, shuffle=True, random_state=0)
    plane = make_pipeline(StandardScaler(), LogisticRegression())
    scores = cross_val_score(plane, points, is_slow, cv=folds, scoring="balanced_accuracy")
    return float(scores.mean())


def opcode_shares(graph: Graph) -> np.ndarray:
    """The share of nodes (opcodes,) that have each opcode."""
    counts = np.bincount(graph.node_opcodes, minlength=vocabulary.NUM_OPCODES)
    return counts / graph.num_nodes


def kept_shares(graph: Graph, hops: range) -> list[float]:
    """The share of nodes that pruning keeps, for each number of hops; 1 for a tile graph."""
    if len(graph.configurable) == 0:
        return [1.0 for _ in hops]
    return [float(neighbourhood(graph, count).mean()) for count in hops]
