"""Features of any graph that can be made are numbers; where one fails, its graph is named."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from solution.domain.graph import Graph, InvalidGraphError
from solution.domain.memo import PerGraph
from solution.domain.vocabulary import DIMENSION_NUMBERS, OPCODE_IDS, SHAPE_DIMENSIONS
from solution.features.operands import find_operands
from solution.features.padding import repair_padding
from solution.features.pruning import PRUNINGS
from solution.features.table import feature_table
from tests.made.graphs import make_layout_graph, make_tile_graph

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


def test_a_failure_names_its_graph_once() -> None:
    inner = PerGraph(lambda graph: graph.node_features[len(graph.node_features)])
    outer = PerGraph(lambda graph: inner(graph))
    with pytest.raises(IndexError) as caught:
        outer(make_layout_graph(name="the_one"))
    notes = ["It happened with the graph layout:xla:random:the_one."]
    assert caught.value.__notes__ == notes


def test_a_failure_of_a_table_names_its_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    """With features as they were before they were checked."""
    graph = make_layout_graph(name="the_one")
    features = graph.node_features.copy()
    features[:, 134:] = 9
    broken = dataclasses.replace(graph)
    object.__setattr__(broken, "node_features", features)
    with pytest.raises(IndexError) as caught:
        feature_table(broken)
    assert "layout:xla:random:the_one" in caught.value.__notes__[0]


def test_dimension_numbers_of_a_convolution_are_looked_up_safely() -> None:
    """Any numbers from -1 to 5, with shapes of any rank."""
    generator = np.random.default_rng(0)
    for seed in range(30):
        graph = make_tile_graph(seed % 5)
        features = graph.node_features.copy()
        features[:, SHAPE_DIMENSIONS] = generator.integers(0, 4, (4, 6))
        features[:, DIMENSION_NUMBERS[1]] = generator.integers(-1, 6, (4, 14))
        opcodes = graph.node_opcodes.copy()
        opcodes[2] = OPCODE_IDS["convolution"]
        changed = dataclasses.replace(graph, node_features=features, node_opcodes=opcodes)
        assert find_operands(changed).input[2] in (0, 1)
        assert np.isfinite(feature_table(changed).to_numpy()).all()
