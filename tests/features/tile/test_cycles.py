"""Cycles of a tile: a sum by hand, and how well they order what was measured."""

import math

import numpy as np
import pytest

from solution.data.folders import SAMPLE, find_files
from solution.data.npz import read_graph
from solution.domain.collection import TILE
from solution.domain.metrics import top_k_score
from solution.features.table import feature_table
from solution.features.tile.cycles import MISS, NUMBER, NUMBERS, START, VECTOR, estimate_cycles
from solution.features.tile.loops import find_nest
from tests.features.tile.test_access import with_dimensions
from tests.features.tile.test_tile_table import make_kernel, make_tile

NO_MISSES = {name: np.zeros(1) for name in MISS}


def test_cycles_of_a_product_by_hand() -> None:
    """Tiles of 32 x 64 of a product (100, 64) x (64, 200), whose columns are a vector's."""
    nodes = [("parameter", (100, 64)), ("parameter", (64, 200)), ("dot", (100, 200))]
    graph = make_kernel(nodes, [(2, 0), (2, 1)], make_tile(32, 64)[None])
    misses = {
        "first_level": np.array([700.0]),
        "second_level": np.zeros(1),
        "page_table": np.ones(1),
    }
    iterations = 100 * 64 * 200
    vectors = 100 * 64 * (3 * 64 // NUMBERS + 8)  # the last 8 columns are no whole vector
    starts = 100 * 64 * 4 + 100 * 4  # of the columns, of the sum around them
    waits = MISS["first_level"] * 700 + MISS["page_table"]
    expected = (VECTOR * vectors + START * starts + waits) / iterations
    assert estimate_cycles(graph, find_nest(graph), misses)[0] == pytest.approx(expected)


def test_strided_loops_take_their_numbers_one_by_one() -> None:
    nodes = [("parameter", (96, 64)), ("transpose", (64, 96))]
    graph = with_dimensions(make_kernel(nodes, [(1, 0)], make_tile(8, 96)[None]), 1, (1, 0))
    expected = NUMBER + START * (64 + 8) / (64 * 96)
    assert estimate_cycles(graph, find_nest(graph), NO_MISSES)[0] == pytest.approx(expected)


def test_a_kernel_without_loops_has_a_number() -> None:
    graph = make_kernel([("parameter", (1, 1)), ("tanh", (1, 1))], [(1, 0)], make_tile(1, 1)[None])
    assert math.isfinite(feature_table(graph)["cycles"][0])


def test_fewest_cycles_first_names_fast_tiles_before_anything_is_learned() -> None:
    files = [file for file in find_files(SAMPLE) if file.collection.name == TILE[0]]
    graphs = [read_graph(file.path, file.collection) for file in files]
    scores = [
        top_k_score(feature_table(graph)["cycles"].to_numpy(), np.asarray(graph.runtimes), 5)
        for graph in graphs
        if graph.runtimes is not None
    ]
    assert len(scores) > 100
    assert np.mean(scores) > 0.93
