"""Configurations that are made for a program: all differ, and the compiler could take each."""

import numpy as np
import pytest

from solution.domain.graph import Graph
from solution.domain.vocabulary import MAX_RANK
from solution.features.candidates import divide, make_candidates
from solution.features.tile.tiling import find_tiling
from solution.system.errors import InputError
from tests.made.graphs import make_layout_graph, make_tile_graph

RANKS = {2: (2, 2, 2), 5: (3, 2, 0), 7: (0, 3, 0)}  # of the graph's dot and reshapes, from 2 on


@pytest.mark.parametrize("count", [1, 2, 30])
def test_layouts_are_orders_of_the_dimensions_that_a_tensor_has(count: int) -> None:
    made = make_candidates(make_layout_graph(0), count)
    assert made.runtimes is None
    assert made.num_configs == len(made.distinct.first) <= count
    layouts = made.layouts.expand().reshape(-1, 3, 3, MAX_RANK)
    assert (layouts[0] == -1).all()  # all is the compiler's choice
    for node, ranks in enumerate(RANKS.values()):
        for tensor, rank in enumerate(ranks):
            for given in layouts[:, node, tensor]:
                assert (given == -1).all() or sorted(given) == [-1] * (6 - rank) + [*range(rank)]
    changed = (layouts[1:, ..., 0] >= 0).sum(axis=(1, 2))
    assert (changed > 0).all()


def test_the_same_graph_and_seed_give_the_same() -> None:
    one, two, other = (make_candidates(make_layout_graph(0), 20, seed) for seed in (0, 0, 1))
    assert np.array_equal(one.layouts.expand(), two.layouts.expand())
    assert not np.array_equal(one.layouts.expand(), other.layouts.expand())


@pytest.mark.parametrize("count", [5, 100_000])
def test_tiles_divide_what_they_cut(count: int) -> None:
    made = make_candidates(make_tile_graph(3), count)
    sizes = find_tiling(made).extents
    assert 1 < made.num_configs == len(made.distinct.first) <= count
    for row in made.tiles:
        assert (sizes[:2] % row[8:10] == 0).all()
        assert (row[14], row[15]) == (row[8:10].sum(), row[8:10].prod())


def test_divisors() -> None:
    for size in range(1, 200):
        assert divide(size) == [number for number in range(1, size + 1) if size % number == 0]
    assert divide(1 << 62)[-1] == 1 << 62


def test_where_nothing_may_be_chosen_it_is_said() -> None:
    graph = make_layout_graph(0)
    bare = Graph(
        graph.name, graph.collection, graph.node_features, graph.node_opcodes, graph.edges,
        np.empty(0, np.int64), graph.layouts.__class__(
            np.empty((0, 18), np.int8), np.zeros(1, np.int64), np.empty((1, 0), np.uint8),
            np.zeros(1, np.int64)), None,
    )  # fmt: skip
    with pytest.raises(InputError, match="There is nothing to choose"):
        make_candidates(bare)
    with pytest.raises(InputError, match="--configs is 0"):
        make_candidates(graph, 0)
