"""A Graph is a read-only value that is always valid; neighbours and depths, against loops."""

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from solution.domain import vocabulary
from solution.domain.codebook import Codebook, encode
from solution.domain.graph import Graph, InvalidGraphError
from solution.domain.neighbours import Neighbours, find_depths, index_ragged, offsets, starts_of
from tests.made.graphs import find_difference, make_layout_graph, make_tile_graph

Change = Callable[[Any], Any]


def put(place: int | tuple[int, ...], value: float) -> Change:
    """What makes a copy of an array with one other value."""

    def change(array: np.ndarray) -> np.ndarray:
        changed = array.copy()
        changed[place] = value
        return changed

    return change


def refuse(graph: Graph, **fields: Any) -> list[str]:
    """What the error says of a graph with these fields."""
    with pytest.raises(InvalidGraphError) as caught:
        dataclasses.replace(graph, **fields)
    assert str(caught.value) == "; ".join(caught.value.defects)
    return caught.value.defects


def arrays_of(graph: Graph) -> list[np.ndarray]:
    values = [getattr(graph, field.name) for field in dataclasses.fields(graph)]
    if isinstance(graph.configs, Codebook):
        values += graph.configs.arrays().values()
    return [value for value in values if isinstance(value, np.ndarray)]


@pytest.mark.parametrize(
    ("graph", "count"), [(make_layout_graph(), 9), (make_tile_graph(), 6)], ids=["layout", "tile"]
)
def test_fields_and_arrays_cannot_be_changed(graph: Graph, count: int) -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        graph.name = "other"  # type: ignore[misc]
    arrays = arrays_of(graph)
    assert len(arrays) == count
    for array in arrays:
        with pytest.raises(ValueError, match="read-only"):
            array[...] = 0


NO_SHAPE = "node_feat has a shape with a size below 0, or of 2^63 elements,"
NO_NUMBERS = "node_feat has dimension numbers other than -1...5"
OPCODES = vocabulary.NUM_OPCODES
LAYOUT_DEFECTS: list[tuple[str, Change, str]] = [
    ("node_features", lambda x: x[:, :139], "node_feat has shape (8, 139), expected (any, 140)"),
    ("node_features", np.ravel, "node_feat has shape"),
    ("node_features", lambda _: np.array(1, np.float32), "node_feat"),
    ("node_features", put((3, 7), np.nan), "node_feat has NaN or infinite values in the nodes 3"),
    ("node_features", put((4, 0), np.inf), "node_feat has NaN or infinite values in the nodes 4"),
    *(
        ("node_features", put((4, column), value), f"{message} in the nodes 4")
        for message, values, columns in (
            ("node_feat has numbers beyond 64 bits", (3e38, -1e19), (0, 21, 40, 133)),
            (NO_SHAPE, (-1, -5e18), range(21, 27)),
            (NO_SHAPE, (2.0**63, 2.0**62), (23, 26)),  # beside two other sizes
            (NO_NUMBERS, (-2, 6, 0.5, 1e6), (31, 36, 93, 106, 134, 139)),
        )
        for value in values
        for column in columns
    ),
    ("node_opcodes", lambda x: x[:-1], "node_opcode has shape (7), expected (8)"),
    ("node_opcodes", put(2, OPCODES), f"outside 0...{vocabulary.VIRTUAL}: {OPCODES}"),
    ("node_opcodes", lambda x: put(2, -1)(x.astype(np.int64)), "node_opcode has ids outside 0..."),
    ("edges", lambda _: np.zeros((4, 3), int), "edge_index has shape (4, 3), expected (any, 2)"),
    ("edges", np.ravel, "edge_index has shape (14)"),
    ("edges", put((6, 1), 8), "edge_index points outside the nodes 0...7 in the rows 6"),
    ("edges", put((5, 0), -1), "edge_index points outside the nodes 0...7 in the rows 5"),
    ("configurable", lambda x: x[:, None], "node_config_ids"),
    ("configurable", lambda _: np.array(2), "node_config_ids"),
    ("configurable", put(2, 2), "node_config_ids names these nodes more than once: 2"),
    ("configurable", put(2, 8), "node_config_ids points outside the nodes 0...7: 8"),
    ("configurable", put(2, -1), "node_config_ids points outside the nodes 0...7: -1"),
    (
        "configs",
        lambda x: encode(x.expand()[:, :2]),
        "node_config_feat has shape (12, 2, 18), expected (any, 3, 18)",
    ),
    ("runtimes", lambda x: x[:-1], "config_runtime has shape (11), expected (12)"),
    ("runtimes", put(0, 5e-324), "config_runtime has times whose quotient is no number: 5e-324"),
    *(
        ("runtimes", put(9, value), "config_runtime is not positive for the configurations 9")
        for value in (0.0, -1.0, np.nan, np.inf)
    ),
]
TILE_DEFECTS: list[tuple[str, Change, str]] = [
    ("configs", lambda x: x[:, :23], "config_feat has shape (12, 23), expected (any, 24)"),
    ("configs", lambda _: np.array(1, np.float32), "config_feat"),
    ("configs", put((5, 3), np.nan), "configurations have NaN or infinite values in the rows 5"),
    ("configs", put((6, 3), -np.inf), "configurations have NaN or infinite values in the rows 6"),
    ("configurable", lambda _: np.array([2]), "node_config_ids"),
]


@pytest.mark.parametrize(
    ("graph", "name", "change", "message"),
    [
        *((make_layout_graph(), *defect) for defect in LAYOUT_DEFECTS),
        *((make_tile_graph(), *defect) for defect in TILE_DEFECTS),
    ],
    ids=lambda given: given if isinstance(given, str) else "",
)
def test_a_defect_is_refused_by_name(graph: Graph, name: str, change: Change, message: str) -> None:
    assert message in "; ".join(refuse(graph, **{name: change(getattr(graph, name))}))


def test_a_graph_without_nodes_or_configurations_is_refused() -> None:
    graph = make_layout_graph()
    layouts, names = graph.layouts.expand(), ("node_features", "node_opcodes", "edges")
    nothing = {name: getattr(graph, name)[:0] for name in (*names, "configurable")}
    defects = refuse(graph, **nothing, configs=encode(layouts[:, :0]))
    assert "the graph has 0 nodes and 12 configurations" in defects
    defects = refuse(graph, configs=encode(layouts[:0]), runtimes=np.empty(0))
    assert "the graph has 8 nodes and 0 configurations" in defects


def test_numbers_that_a_program_may_have_are_accepted() -> None:
    """Wrapped products, sizes of 0 and padding; a node that stands for many has their means."""
    graph = make_layout_graph()
    for column, value in (
        (vocabulary.SHAPE_PRODUCT, -(2.0**63)), (vocabulary.SHAPE_PRODUCT, 2.0**63), (21, 0.0),
        (26, 2.0**40), (134, -1), (31, 5), (61, -1), (67, -2),
    ):  # fmt: skip
        dataclasses.replace(graph, node_features=put((3, column), value)(graph.node_features))
    dataclasses.replace(
        graph,
        node_features=put((3, 134), 0.25)(graph.node_features),
        node_opcodes=put(3, vocabulary.VIRTUAL)(graph.node_opcodes),
    )


def test_all_defects_are_named_and_long_lists_are_cut() -> None:
    graph = make_layout_graph()
    assert refuse(graph, edges=graph.edges + 100, runtimes=np.zeros(12)) == [
        "edge_index points outside the nodes 0...7 in the rows 0, 1, 2, 3, 4 and 2 more",
        "config_runtime is not positive for the configurations 0, 1, 2, 3, 4 and 7 more",
    ]


@pytest.mark.parametrize("labelled", [True, False])
def test_select_keeps_the_program_and_takes_the_configurations_in_order(labelled: bool) -> None:
    graph, positions = make_layout_graph(labelled=labelled), np.array([7, 0, 7])
    part = graph.select(positions)
    assert np.array_equal(part.layouts.expand(), graph.layouts.expand()[positions])
    assert part.architecture == graph.architecture
    runtimes = None if graph.runtimes is None else graph.runtimes[positions]
    whole = dataclasses.replace(graph, configs=part.configs, runtimes=runtimes)
    assert find_difference(part, whole) is None


@pytest.mark.parametrize("graph", [make_layout_graph(), make_tile_graph()], ids=["layout", "tile"])
def test_distinct_configurations_expand_to_all_of_them(graph: Graph) -> None:
    repeated = graph.select(np.array([3, 1, 3, 0, 1, 3]))
    distinct = repeated.distinct
    assert (len(distinct.first), len(distinct.inverse)) == (3, 6)
    again = repeated.select(distinct.first).select(distinct.inverse)
    assert find_difference(again, repeated) is None


def test_architecture_ignores_sizes_features_and_configurations() -> None:
    graph = make_layout_graph(seed=0)
    other = make_layout_graph(seed=1, configs=3, name="other", labelled=False)
    assert not np.array_equal(graph.node_features, other.node_features)
    assert graph.architecture == other.architecture


def test_architecture_changes_with_an_opcode_an_edge_or_the_order_of_operands() -> None:
    graph = make_layout_graph()
    others = [
        dataclasses.replace(graph, node_opcodes=put(6, 1)(graph.node_opcodes)),
        dataclasses.replace(graph, edges=graph.edges[:-1]),
        dataclasses.replace(graph, edges=graph.edges[[1, 0, 2, 3, 4, 5, 6]]),
        make_tile_graph(),
    ]
    assert len({other.architecture for other in [graph, *others]}) == 5


@st.composite
def drawn_edges(draw: st.DrawFn, *, cycles: bool = False) -> tuple[np.ndarray, int]:
    """Rows [consumer, producer] in any order, some of them twice, and how many nodes there are."""
    count = draw(st.integers(1, 9))
    node = st.integers(0, count - 1)
    pairs = draw(st.lists(st.tuples(node, node), max_size=20))
    names = draw(st.permutations(range(count)))
    kept = [(names[max(p)], names[min(p)]) for p in pairs if p[0] != p[1]]
    if cycles:
        kept += [(consumer, producer) for producer, consumer in kept[:1]]
    return np.array(kept, np.int64).reshape(-1, 2), count


@given(drawn_edges(), st.lists(st.integers(0, 8), max_size=6))
def test_operands_and_consumers_of_nodes(drawn: tuple[np.ndarray, int], wanted: list[int]) -> None:
    """Of one node, and of several nodes at once."""
    edges, count = drawn
    operands, consumers = Neighbours.operands(edges, count), Neighbours.consumers(edges, count)
    for node in range(count):
        read = [producer for consumer, producer in edges.tolist() if consumer == node]
        reading = [consumer for consumer, producer in edges.tolist() if producer == node]
        assert operands.at(node).tolist() == read
        assert consumers.at(node).tolist() == reading
        assert (operands.counts()[node], consumers.counts()[node]) == (len(read), len(reading))
    nodes = np.array([node for node in wanted if node < count], np.int64)
    expected = [(at, other) for at, node in enumerate(nodes) for other in operands.at(node)]
    assert list(zip(*operands.spread(nodes), strict=True)) == expected


@given(drawn_edges(), drawn_edges())
def test_graphs_are_joined(first: tuple[np.ndarray, int], second: tuple[np.ndarray, int]) -> None:
    joined = Neighbours.join([Neighbours.operands(*first), Neighbours.operands(*second)])
    edges = np.concatenate([first[0], second[0] + first[1]])
    expected = Neighbours.operands(edges, first[1] + second[1])
    assert joined.starts.tolist() == expected.starts.tolist()
    assert joined.nodes.tolist() == expected.nodes.tolist()
    part = joined.cut(slice(first[1], first[1] + second[1]))
    assert [part.at(n).tolist() for n in range(second[1])] == [
        joined.at(first[1] + n).tolist() for n in range(second[1])
    ]


@given(drawn_edges())
def test_a_node_lies_one_deeper_than_what_it_reads(drawn: tuple[np.ndarray, int]) -> None:
    edges, count = drawn
    depths = [0] * count
    for _ in range(count):
        for consumer, producer in edges.tolist():
            depths[consumer] = max(depths[consumer], depths[producer] + 1)
    assert find_depths(edges, count).tolist() == depths


@given(st.lists(st.integers(0, 4), max_size=8))
def test_indices_of_a_ragged_array_are_those_of_a_loop(counts: list[int]) -> None:
    expected = [(row, index) for row, count in enumerate(counts) for index in range(count)]
    rows, inside = index_ragged(np.array(counts, np.int64))
    assert list(zip(rows.tolist(), inside.tolist(), strict=True)) == expected
    assert starts_of(counts).tolist() == [sum(counts[:k]) for k in range(len(counts) + 1)]
    assert offsets(counts).tolist() == [sum(counts[:k]) for k in range(len(counts))]
