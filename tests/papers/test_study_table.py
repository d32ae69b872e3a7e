"""The rows of the LightGBM study, worked by hand from its document and against a slow reference."""

import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from solution.domain.codebook_encoder import encode
from solution.domain.collection import collection
from solution.domain.graph import Graph
from solution.domain.vocabulary import NUM_OPCODES, OPCODE_IDS, OPCODES
from solution.features.preparation import Preparation
from solution.papers.study_table import features_of, opcode_shares, study_rows
from tests.made.graphs import make_layout_graph, make_nodes, make_tile_graph


def make_program(outputs: list[list[tuple[int, ...]]]) -> Graph:
    """x (60, 100) -> tanh -> reshape (3, 20, 100) -> exp -> reshape (6000,) -> add -> add.

    `outputs` are the output layouts of the two reshapes in each configuration.
    """
    layouts = np.full((len(outputs), 2, 18), -1, np.int8)
    for config, nodes in enumerate(outputs):
        for node, order in enumerate(nodes):
            layouts[config, node, : len(order)] = order
    opcodes = ("parameter", "tanh", "reshape", "exponential", "reshape", "add", "add")
    shapes = [(60, 100), (60, 100), (3, 20, 100), (3, 20, 100), (6000,), (6000,), (6000,)]
    return Graph(
        name="program",
        collection=collection("layout:xla:random"),
        node_features=make_nodes(shapes),
        node_opcodes=np.array([OPCODE_IDS[name] for name in opcodes], np.uint8),
        edges=np.array([[1, 0], [2, 1], [3, 2], [4, 3], [5, 4], [6, 5], [6, 5]]),
        configurable=np.array([2, 4]),
        configs=encode(layouts),
        runtimes=np.arange(1.0, 1 + len(outputs)),
    )


def column(graph: Graph, name: str, opcodes: str | None = None) -> list[float]:
    names = [feature.name for feature in features_of(graph.collection.kind, opcodes)]
    rows = study_rows(graph, opcodes)
    assert rows.shape[1] == len(names)
    return rows[graph.distinct.inverse, names.index(name)].tolist()


def test_padding_is_what_registers_of_128_by_8_add_to_the_outputs() -> None:
    graph = make_program([[(2, 1, 0), (0,)], [(1, 2, 0), (0,)], [(), ()], [(0, 1, 2), ()]])
    # 3 x 20 x 100: 100 to 128 and 20 to 24; 6000 to 6016 and 1 to 8.
    program = 3 * (24 * 128) - 6000 + 8 * 6016 - 6000
    # 20 to 128 and 100 to 104; 3 to 128 and 20 to 24, a hundred times.
    others = [3 * (104 * 128) - 3 * 24 * 128, 100 * (24 * 128) - 3 * 24 * 128]
    expected = [program, program + others[0], program, program + others[1]]
    assert column(graph, "padding") == expected


def test_frequencies_are_of_the_values_of_all_layout_features() -> None:
    graph = make_program([[(2, 1, 0), (0,)], [(), ()]])
    assert column(graph, "value_0") == pytest.approx([2 / 36, 0])
    assert column(graph, "value_1") == pytest.approx([1 / 36, 0])
    assert column(graph, "value_2") == pytest.approx([1 / 36, 0])
    assert column(graph, "value_-1") == pytest.approx([32 / 36, 1])


def test_configurable_operations_are_counted() -> None:
    graph = make_program([[(), ()]])
    assert column(graph, "reshape_nodes") == [2]
    assert column(graph, "dot_nodes") == column(graph, "convolution_nodes") == [0]
    assert column(make_layout_graph(), "dot_nodes")[0] == 1


def test_opcodes_are_shares_of_what_pruning_keeps_and_apart_of_what_it_drops() -> None:
    graph = make_program([[(), ()], [(2, 1, 0), ()]])  # kept: 1 to 5; dropped: 0 and 6
    assert column(graph, "kept_reshape", "all") == pytest.approx([2 / 7, 2 / 7])
    assert column(graph, "kept_add", "all") == pytest.approx([1 / 7, 1 / 7])
    assert column(graph, "dropped_add", "all") == pytest.approx([1 / 7, 1 / 7])
    assert column(graph, "dropped_parameter", "all") == pytest.approx([1 / 7, 1 / 7])
    assert opcode_shares(graph, "all").sum() == pytest.approx(1)
    pruned = Preparation(1).prune(graph)
    assert column(pruned, "kept_reshape", "kept") == pytest.approx([2 / 5, 2 / 5])


def test_a_kernel_has_the_mean_of_its_nodes_its_tile_and_its_opcodes() -> None:
    graph = make_tile_graph(3, configs=9)
    rows = study_rows(graph, "kept")[graph.distinct.inverse]
    assert rows.shape == (9, 140 + 24 + NUM_OPCODES)
    for place in range(140):
        mean = sum(node[place] for node in graph.node_features.astype(float)) / 4
        assert rows[:, place] == pytest.approx(mean, rel=1e-6)
    np.testing.assert_array_equal(rows[:, 140:164], graph.tiles)
    for place, name in enumerate([*OPCODES.values(), "virtual"]):
        opcode = OPCODE_IDS.get(name, -1)
        share = sum(own == opcode for own in graph.node_opcodes) / 4
        assert rows[:, 164 + place] == pytest.approx(share)


def slow_row(graph: Graph, config: int) -> list[float]:
    """Padding, the share of each value, convolutions, dots, reshapes: node by node."""
    padding, values, total = 0, dict.fromkeys(range(-1, 6), 0), 0
    tensor = graph.layouts.expand()[config].tolist()
    for node, slots in zip(graph.configurable, tensor, strict=True):
        shape = [int(size) for size in graph.node_features[node, 21:27] if size]
        program = [int(axis) for axis in graph.node_features[node, 134:140]]
        order = [
            own if given == -1 else given for given, own in zip(slots[:6], program, strict=True)
        ]
        minor, second = shape[order[0]], shape[order[1]] if len(shape) > 1 else 1
        stored = math.ceil(minor / 128) * 128 * math.ceil(second / 8) * 8
        padding += math.prod(shape) // (minor * second) * stored - math.prod(shape)
        for value in slots:
            values[value] += 1
            total += 1
    counts = [
        sum(graph.node_opcodes[node] == OPCODE_IDS[name] for node in graph.configurable)
        for name in ("convolution", "dot", "reshape")
    ]
    return [padding, *(count / total for count in values.values()), *counts]


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 10_000), st.integers(1, 20))
def test_rows_are_those_that_are_counted_node_by_node(seed: int, configs: int) -> None:
    graph = make_layout_graph(seed, configs)
    found = study_rows(graph)[graph.distinct.inverse]
    expected = [slow_row(graph, config) for config in range(configs)]
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_a_program_without_configurable_nodes_has_rows() -> None:
    none = encode(np.empty((3, 0, 18), np.int8))
    empty = np.empty(0, np.int64)
    graph = dataclasses.replace(make_layout_graph(3, 3), configurable=empty, configs=none)
    assert np.isfinite(study_rows(graph, "all")).all()
