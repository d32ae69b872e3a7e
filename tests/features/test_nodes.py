"""Node features for the nets: logarithms, derived columns, standardisation."""

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from solution.domain.codebook import encode
from solution.domain.graph import Budget, Graph, InvalidGraphError, PerGraph
from solution.domain.vocabulary import DIMENSION_NUMBERS, MAX_RANK, OPCODE_IDS, SHAPE_DIMENSIONS
from solution.features.candidates import make_candidates
from solution.features.nodes import NUM_NUMERIC, compress, fit_scaler, numeric_features
from solution.features.preparation import PRUNINGS, repair_padding
from solution.features.table import feature_table
from solution.features.tile.tiling import find_tiling
from solution.system.errors import InputError
from tests.made.graphs import make_layout_graph, make_tile_graph


def test_compress_by_hand() -> None:
    values = np.array([0.0, 1.0, -1.0, math.e - 1, 1 - math.e, 3e8])
    expected = [0, math.log(2), -math.log(2), 1, -1, math.log(3e8 + 1)]
    assert compress(values).tolist() == pytest.approx(expected)


def make_tables(seed: int) -> list[np.ndarray]:
    """A few tables of different lengths with columns of different scales."""
    generator = np.random.default_rng(seed)
    scales = np.array([1e-3, 1.0, 50.0, 1e4])
    lengths = generator.integers(1, 60, 4)
    return [
        (scales * (generator.normal(size=(rows, 4)) + 2)).astype(np.float32) for rows in lengths
    ]


@given(st.integers(0, 10_000))
@settings(max_examples=30, deadline=None)
def test_the_scaler_equals_mean_and_deviation_of_all_rows(seed: int) -> None:
    tables = make_tables(seed)
    rows = np.concatenate(tables).astype(np.float64)
    scaler = fit_scaler(tables)
    np.testing.assert_allclose(scaler.mean, rows.mean(axis=0), rtol=1e-5)
    np.testing.assert_allclose(scaler.scale, 1 / rows.std(axis=0), rtol=1e-5)


@pytest.mark.parametrize("value", [0.0, 1.0, 0.1, -7.3, 20.0, 1e6])
def test_a_constant_column_becomes_0_even_where_other_rows_differ(value: float) -> None:
    scaler = fit_scaler([np.full((37, 1), value, np.float32) for _ in range(50)])
    assert scaler(np.array([[value], [value + 3], [-1e6]], np.float32)).tolist() == [[0], [0], [0]]


def test_a_rarely_set_flag_is_not_constant() -> None:
    flags = np.zeros((100_000, 1), np.float32)
    flags[0] = 1
    assert fit_scaler([flags]).scale[0] == pytest.approx(1 / flags.astype(float).std(), rel=1e-4)


def test_derived_columns_by_hand() -> None:
    """x -> dot(x, w) -> add -> reshape -> tanh -> reshape; dot and reshapes are configurable."""
    graph = repair_padding(make_layout_graph())
    rows, inner = graph.node_features[0, 21:23]
    columns = graph.node_features[1, 22]
    features = numeric_features(graph)
    assert features.shape == (8, NUM_NUMERIC)
    assert features.dtype == np.float32
    derived = np.expm1(features[:, 140:])
    np.testing.assert_allclose(derived[:, 0], [2, 2, 2, 2, 2, 3, 3, 1], rtol=1e-5)
    elements = [rows * inner, inner * columns, *[rows * columns] * 6]
    np.testing.assert_allclose(derived[:, 1], np.multiply(elements, 4), rtol=1e-4)
    operations = [*elements[:2], rows * inner * columns, *elements[3:]]
    np.testing.assert_allclose(derived[:, 2], operations, rtol=1e-4)
    np.testing.assert_allclose(derived[:, 3], [0, 0, 2, 0, 2, 1, 1, 1], atol=1e-6)
    np.testing.assert_allclose(derived[:, 4], [1, 1, 1, 1, 1, 1, 1, 0], atol=1e-6)
    np.testing.assert_allclose(derived[:, 5], [0, 0, 1, 0, 0, 1, 0, 1], atol=1e-6)


OPCODES = ("convolution", "dot", "reshape", "transpose", "broadcast", "reduce", "concatenate",
           "fusion", "tuple", "call", "parameter")  # fmt: skip
BLOCKS = (SHAPE_DIMENSIONS, *DIMENSION_NUMBERS, slice(0, 140))
VALUES = (-1.0, 0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 128.0, 2.0**31, 2.0**62, 2.0**63, 0.5, 1e-30)


def change(graph: Graph, generator: np.random.Generator) -> Graph:
    """A few other opcodes, features and edges."""
    opcodes, features = graph.node_opcodes.copy(), graph.node_features.copy()
    edges = graph.edges.copy()
    for _ in range(generator.integers(1, 8)):
        node = generator.integers(graph.num_nodes)
        if generator.random() < 0.4:
            opcodes[node] = OPCODE_IDS[generator.choice(OPCODES)]
        block = BLOCKS[generator.integers(len(BLOCKS))]
        features[node, generator.integers(block.start, block.stop)] = generator.choice(VALUES)
        if generator.random() < 0.2:
            edges[generator.integers(len(edges))] = generator.integers(graph.num_nodes, size=2)
    return dataclasses.replace(graph, node_opcodes=opcodes, node_features=features, edges=edges)


@pytest.mark.filterwarnings("error")
@given(seed=st.integers(0, 2**32))
@settings(max_examples=60, deadline=None)
def test_features_of_any_graph_are_numbers(seed: int) -> None:
    generator = np.random.default_rng(seed)
    for made in (make_layout_graph(seed % 7), make_tile_graph(seed % 7)):
        try:
            graph = change(made, generator)
        except InvalidGraphError:
            continue
        repaired = repair_padding(graph)
        for prune in PRUNINGS.values():
            assert np.isfinite(feature_table(prune(repaired, 1)).to_numpy()).all()


@pytest.mark.parametrize("wrap", [lambda x: x, lambda x: [x], lambda x: {"x": (x, 1)}])
def test_a_result_that_the_budget_does_not_allow_is_computed_again(
    wrap: Callable[[np.ndarray], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the array stands in a list, a tuple or a dictionary."""
    function = PerGraph(lambda graph: wrap(np.zeros(1000)))
    graph = make_layout_graph()
    monkeypatch.setattr(PerGraph, "budget", Budget(7999))
    assert function(graph) is not function(graph)
    monkeypatch.setattr(PerGraph, "budget", Budget(9000))
    assert function(graph) is function(graph)


def test_a_failure_names_its_graph_once() -> None:
    inner = PerGraph(lambda graph: graph.node_features[len(graph.node_features)])
    outer = PerGraph(lambda graph: inner(graph))
    with pytest.raises(IndexError) as caught:
        outer(make_layout_graph(name="the_one"))
    notes = ["It happened with the graph layout:xla:random:the_one."]
    assert caught.value.__notes__ == notes


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
            for row in layouts[:, node, tensor]:
                assert (row == -1).all() or sorted(row) == [-1] * (6 - rank) + [*range(rank)]
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


def test_where_nothing_may_be_chosen_it_is_said() -> None:
    graph = make_layout_graph(0, labelled=False)
    nothing = {"configurable": np.empty(0, np.int64), "configs": encode(np.empty((1, 0, 18)))}
    bare = dataclasses.replace(graph, **nothing)
    with pytest.raises(InputError, match="to choose"):
        make_candidates(bare)
    with pytest.raises(InputError, match="--configs is 0"):
        make_candidates(graph, 0)
