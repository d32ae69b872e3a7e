"""What the picture of a program shows, and where each operation stands in it."""

import numpy as np
import pytest

from solution.analysis.graph_picture import make_figure
from solution.analysis.program_drawing import (
    COLUMNS,
    MAX_NODES,
    describe_fastest,
    describe_node,
    find_levels,
    lay_out,
)
from solution.data.folders import SAMPLE, find_files
from solution.data.npz import read_graph
from solution.domain.graph import Graph
from solution.domain.vocabulary import OPCODE_IDS
from tests.made.graphs import make_layout_graph, make_tile_graph, make_wide_graph


@pytest.fixture(scope="module")
def programs() -> list[Graph]:
    """The smallest and the largest layout graph of the sample, and one a line and a bit long."""
    files = [f for f in find_files(SAMPLE) if f.collection.name.startswith("layout")]
    labelled = [f for f in files if f.split != "test" and "default" in f.collection.name]
    graphs = [read_graph(file.path, file.collection) for file in labelled]
    graphs.sort(key=lambda graph: graph.num_nodes)
    (longer,) = [graph for graph in graphs if graph.name == "mlp_w192_l4_train"]
    return [graphs[0], longer, graphs[-1]]


def test_a_parameter_stands_beside_its_consumer(programs: list[Graph]) -> None:
    for graph in programs:
        levels = find_levels(graph)
        assert (levels[graph.edges[:, 0]] > levels[graph.edges[:, 1]]).all()  # operands at the left
        for node in np.flatnonzero(graph.node_opcodes == OPCODE_IDS["parameter"]):
            consumers = graph.edges[graph.edges[:, 1] == node, 0]
            if len(consumers):
                assert levels[node] == levels[consumers].min() - 1


def test_no_two_operations_stand_at_one_place(programs: list[Graph]) -> None:
    for graph in [*programs, make_tile_graph(), make_wide_graph(4, 60)]:
        places = lay_out(graph).places
        assert len(np.unique(places, axis=0)) == len(places)


def test_a_line_is_not_left_with_a_few_operations(programs: list[Graph]) -> None:
    for graph in [*programs, make_wide_graph(4, COLUMNS), make_wide_graph(4, 3 * COLUMNS)]:
        drawing = lay_out(graph)
        lengths = [
            np.ptp(drawing.places[drawing.lines == line, 0]) for line in np.unique(drawing.lines)
        ]
        assert min(lengths) > max(lengths) / 2
        assert max(lengths) <= 1.5 * COLUMNS


def test_of_a_large_program_settable_operations_and_their_neighbours_are_shown(
    programs: list[Graph],
) -> None:
    large = programs[-1]
    assert large.num_nodes > MAX_NODES
    drawing = lay_out(large)
    beside = large.edges[np.isin(large.edges, large.configurable).any(axis=1)]
    assert drawing.graph.num_nodes == len(np.unique([*large.configurable, *beside.ravel()]))
    assert drawing.left_out == large.num_nodes - drawing.graph.num_nodes
    title = make_figure(large).axes[0].get_title()
    assert f"{large.num_nodes:,} operations, of which {drawing.graph.num_nodes:,}" in title


def test_operations_have_their_shapes_and_the_fastest_layouts() -> None:
    graph = make_layout_graph(3)
    rows, columns = graph.node_features[2, 21:23].astype(int)
    assert describe_node(graph, 2) == f"dot {rows}x{columns}"
    fastest = graph.layouts.expand()[np.argmin(graph.runtimes)]
    found = describe_fastest(graph)
    for node, layout in zip(graph.configurable.tolist(), fastest, strict=True):
        output = ",".join(str(axis) for axis in layout[:6] if axis >= 0)
        assert found.get(node, "") == (f"output {output}" if output else "")
    said = [text.get_text() for text in make_figure(graph).axes[0].texts]
    assert f"dot\n{rows}x{columns}" in said
    assert set(found.values()) <= set(said)
