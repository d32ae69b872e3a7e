"""A Graph is a read-only value that is always valid."""

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from solution.domain import vocabulary
from solution.domain.codebook import Codebook, encode
from solution.domain.graph import Graph, InvalidGraphError
from tests.made.graphs import make_layout_graph, make_tile_graph

Change = Callable[[Graph], dict[str, Any]]


def put(array: np.ndarray, place: int | tuple[int, ...], value: float) -> np.ndarray:
    """A copy with one other value."""
    changed = array.copy()
    changed[place] = value
    return changed


def refuse(graph: Graph, change: Change) -> str:
    """What the error says when the change is made."""
    with pytest.raises(InvalidGraphError) as caught:
        dataclasses.replace(graph, **change(graph))
    assert str(caught.value) == "; ".join(caught.value.defects)
    return str(caught.value)


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
LAYOUT_DEFECTS: dict[str, tuple[Change, str]] = (
    {
        "too few feature columns": (
            lambda g: {"node_features": g.node_features[:, :139]},
            "node_feat has shape (8, 139), expected (any, 140)",
        ),
        "flat features": (
            lambda g: {"node_features": g.node_features.ravel()},
            "node_feat has shape",
        ),
        "an opcode too few": (
            lambda g: {"node_opcodes": g.node_opcodes[:-1]},
            "node_opcode has shape (7), expected (8)",
        ),
        "edges with three columns": (
            lambda g: {"edges": np.zeros((4, 3), np.int64)},
            "edge_index has shape (4, 3), expected (any, 2)",
        ),
        "flat edges": (lambda g: {"edges": g.edges.ravel()}, "edge_index has shape (14)"),
        "configs for another number of nodes": (
            lambda g: {"configs": encode(g.layouts.expand()[:, :2])},
            "node_config_feat has shape (12, 2, 18), expected (any, 3, 18)",
        ),
        "a runtime too few": (
            lambda g: {"runtimes": g.runtimes[:-1]},
            "config_runtime has shape (11), expected (12)",
        ),
        "ids in a column": (lambda g: {"configurable": g.configurable[:, None]}, "node_config_ids"),
        "ids without dimension": (lambda g: {"configurable": np.array(2)}, "node_config_ids"),
        "features without dimension": (
            lambda g: {"node_features": np.array(1, np.float32)},
            "node_feat",
        ),
        "no nodes": (
            lambda g: {
                "node_features": g.node_features[:0],
                "node_opcodes": g.node_opcodes[:0],
                "edges": g.edges[:0],
                "configurable": g.configurable[:0],
                "configs": encode(g.layouts.expand()[:, :0]),
            },
            "the graph has 0 nodes and 12 configurations",
        ),
        "no configs": (
            lambda g: {"configs": encode(g.layouts.expand()[:0]), "runtimes": g.runtimes[:0]},
            "the graph has 8 nodes and 0 configurations",
        ),
        "NaN feature": (
            lambda g: {"node_features": put(g.node_features, (3, 7), np.nan)},
            "node_feat has NaN or infinite values in the nodes 3",
        ),
        "infinite feature": (
            lambda g: {"node_features": put(g.node_features, (4, 0), np.inf)},
            "node_feat has NaN or infinite values in the nodes 4",
        ),
        "unknown opcode": (
            lambda g: {"node_opcodes": put(g.node_opcodes, 2, vocabulary.NUM_OPCODES)},
            f"node_opcode has ids outside 0...{vocabulary.VIRTUAL}: {vocabulary.NUM_OPCODES}",
        ),
        "negative opcode": (
            lambda g: {"node_opcodes": put(g.node_opcodes.astype(np.int64), 2, -1)},
            "node_opcode",
        ),
        "edge beyond the last node": (
            lambda g: {"edges": put(g.edges, (6, 1), 8)},
            "edge_index points outside the nodes 0...7 in the rows 6",
        ),
        "edge before the first node": (
            lambda g: {"edges": put(g.edges, (5, 0), -1)},
            "edge_index points outside the nodes 0...7 in the rows 5",
        ),
        "repeated id": (
            lambda g: {"configurable": np.array([2, 5, 2])},
            "node_config_ids names these nodes more than once: 2",
        ),
        "id beyond the last node": (
            lambda g: {"configurable": np.array([2, 5, 8])},
            "node_config_ids points outside the nodes 0...7: 8",
        ),
        "id before the first node": (
            lambda g: {"configurable": np.array([2, 5, -1])},
            "node_config_ids points outside the nodes 0...7: -1",
        ),
        "runtimes without a quotient": (
            lambda g: {"runtimes": np.r_[5e-324, g.runtimes[1:]]},
            "config_runtime has times whose quotient is no number: 5e-324",
        ),
    }
    | {
        f"feature {column} of {value}": (
            lambda g, column=column, value=value: {
                "node_features": put(g.node_features, (4, column), value)
            },
            f"{message} in the nodes 4",
        )
        for message, values, columns in (
            ("node_feat has numbers beyond 64 bits", (3e38, -1e19), (0, 21, 40, 133)),
            (NO_SHAPE, (-1, -5e18), range(21, 27)),
            (NO_SHAPE, (2.0**63, 2.0**62), (23, 26)),  # beside two other sizes
            (NO_NUMBERS, (-2, 6, 0.5, 1e6), (31, 36, 93, 106, 134, 139)),
        )
        for value in values
        for column in columns
    }
    | {
        f"runtime {value}": (
            lambda g, value=value: {"runtimes": put(g.runtimes, 9, value)},
            "config_runtime is not positive for the configurations 9",
        )
        for value in (0.0, -1.0, np.nan, np.inf)
    }
)


@pytest.mark.parametrize("defect", LAYOUT_DEFECTS)
def test_defect_of_a_layout_graph_is_refused_by_name(defect: str) -> None:
    change, message = LAYOUT_DEFECTS[defect]
    assert message in refuse(make_layout_graph(), change)


def test_numbers_that_a_program_may_have_are_accepted() -> None:
    """Wrapped products, sizes of 0 and padding; a node that stands for many has their means."""
    graph = make_layout_graph()
    for column, value in (
        (vocabulary.SHAPE_PRODUCT, -(2.0**63)), (vocabulary.SHAPE_PRODUCT, 2.0**63), (21, 0.0),
        (26, 2.0**40), (134, -1), (31, 5), (61, -1), (67, -2),
    ):  # fmt: skip
        dataclasses.replace(graph, node_features=put(graph.node_features, (3, column), value))
    dataclasses.replace(
        graph,
        node_features=put(graph.node_features, (3, 134), 0.25),
        node_opcodes=put(graph.node_opcodes, 3, vocabulary.VIRTUAL),
    )


TILE_DEFECTS: dict[str, tuple[Change, str]] = {
    "too few columns": (
        lambda g: {"configs": g.tiles[:, :23]},
        "config_feat has shape (12, 23), expected (any, 24)",
    ),
    "configs without dimension": (lambda g: {"configs": np.array(1, np.float32)}, "config_feat"),
    "NaN": (
        lambda g: {"configs": put(g.tiles, (5, 3), np.nan)},
        "the configurations have NaN or infinite values in the rows 5",
    ),
    "infinite": (
        lambda g: {"configs": put(g.tiles, (6, 3), -np.inf)},
        "the configurations have NaN or infinite values in the rows 6",
    ),
    "configurable nodes": (lambda g: {"configurable": np.array([2])}, "node_config_ids"),
}


@pytest.mark.parametrize("defect", TILE_DEFECTS)
def test_defect_of_a_tile_graph_is_refused_by_name(defect: str) -> None:
    change, message = TILE_DEFECTS[defect]
    assert message in refuse(make_tile_graph(), change)


def test_all_defects_are_named_and_long_lists_are_cut() -> None:
    graph = make_layout_graph()
    with pytest.raises(InvalidGraphError) as caught:
        dataclasses.replace(graph, edges=graph.edges + 100, runtimes=np.zeros(12))
    assert caught.value.defects == [
        "edge_index points outside the nodes 0...7 in the rows 0, 1, 2, 3, 4 and 2 more",
        "config_runtime is not positive for the configurations 0, 1, 2, 3, 4 and 7 more",
    ]


@pytest.mark.parametrize("labelled", [True, False])
def test_select_keeps_the_program_and_takes_the_configurations_in_order(labelled: bool) -> None:
    graph = make_layout_graph(labelled=labelled)
    positions = np.array([7, 0, 7])
    part = graph.select(positions)
    assert np.array_equal(part.layouts.expand(), graph.layouts.expand()[positions])
    assert part.key == graph.key
    assert part.architecture == graph.architecture
    assert np.array_equal(part.node_features, graph.node_features)
    if graph.runtimes is None:
        assert part.runtimes is None
    else:
        assert part.runtimes is not None
        assert part.runtimes.tolist() == [graph.runtimes[i] for i in (7, 0, 7)]


@pytest.mark.parametrize("graph", [make_layout_graph(), make_tile_graph()], ids=["layout", "tile"])
def test_distinct_configurations_expand_to_all_of_them(graph: Graph) -> None:
    repeated = graph.select(np.array([3, 1, 3, 0, 1, 3]))
    distinct = repeated.distinct
    assert len(distinct.first) == 3
    assert len(distinct.inverse) == 6
    again = repeated.select(distinct.first).select(distinct.inverse)
    rows = [
        g.tiles if g.collection.kind == "tile" else g.layouts.expand() for g in (again, repeated)
    ]
    assert np.array_equal(rows[0], rows[1])


def test_architecture_ignores_sizes_features_and_configurations() -> None:
    graph = make_layout_graph(seed=0)
    other = make_layout_graph(seed=1, configs=3, name="other", labelled=False)
    assert not np.array_equal(graph.node_features, other.node_features)
    assert graph.architecture == other.architecture


def test_architecture_changes_with_an_opcode_an_edge_or_the_order_of_operands() -> None:
    graph = make_layout_graph()
    others = [
        dataclasses.replace(graph, node_opcodes=put(graph.node_opcodes, 6, 1)),
        dataclasses.replace(graph, edges=graph.edges[:-1]),
        dataclasses.replace(graph, edges=graph.edges[[1, 0, 2, 3, 4, 5, 6]]),
        make_tile_graph(),
    ]
    assert len({other.architecture for other in [graph, *others]}) == 5
