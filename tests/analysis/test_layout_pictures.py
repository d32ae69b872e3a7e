"""What there is to gain and how far layouts are from the fastest, by hand and by slow ways."""

import dataclasses
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.figure import Figure

from solution.analysis import data_pictures, measures
from solution.analysis.first_look import FIGURES, OF_LAYOUTS, draw_first_look
from solution.analysis.graph_tables import show_graph
from solution.domain.codebook import encode
from solution.domain.graph import Graph
from solution.features.layout.tensors import find_constraints
from solution.features.operations import num_bytes
from solution.features.preparation import repair_padding
from solution.system.errors import InputError
from tests.made.graphs import make_layout_graph, make_tile_graph, write_graph

GRAPHS = [repair_padding(make_layout_graph(seed, 40, name=f"program_{seed}")) for seed in range(4)]
KERNELS = [make_tile_graph(seed, 40, name=f"kernel_{seed}") for seed in range(4)]


def with_own_choice(runtimes: list[float]) -> Graph:
    """Configurations of make_layout_graph, of which the second and the last lay out nothing."""
    graph = make_layout_graph(1, len(runtimes))
    tensor = graph.layouts.expand().copy()
    tensor[[1, -1]] = -1
    tensor[0, 0, :2] = (0, 1)
    tensor[2, 0, :2] = (1, 0)
    return dataclasses.replace(graph, configs=encode(tensor), runtimes=np.array(runtimes))


def test_the_gain_is_over_what_the_compiler_does_by_itself() -> None:
    graph = with_own_choice([3.0, 4.0, 2.0, 5.0])
    assert measures.default_runtime(graph) == pytest.approx(4.5)
    assert measures.gain_over_compiler(graph) == pytest.approx(4.5 / 2 - 1)
    other = graph.select(np.array([0, 2]))
    assert measures.default_runtime(other) is measures.gain_over_compiler(other) is None
    kernel = dataclasses.replace(make_tile_graph(0, 2), runtimes=np.array([0.8, 1.0]))
    assert measures.gain_over_compiler(kernel) == pytest.approx(0.25)


def slow_swaps(graph: Graph) -> list[int]:
    """Pairs of dimensions of every output, node by node; nothing else is laid out there."""
    best, found = int(np.argmin(graph.runtimes)), []
    tensor = graph.layouts.expand().tolist()

    def order(config: int, position: int, rank: int, program: list[int]) -> list[int]:
        given = [axis for axis in tensor[config][position][:6] if axis >= 0]
        return given + [axis for axis in program[:rank] if axis not in given]

    for config in range(graph.num_configs):
        swaps = 0
        for position, node in enumerate(graph.configurable):
            rank = int((graph.node_features[node, 21:27] > 0).sum())
            program = [int(axis) for axis in graph.node_features[node, 134:140]]
            one, other = (order(c, position, rank, program) for c in (config, best))
            for a, b in combinations(range(rank), 2):
                swaps += (one.index(a) < one.index(b)) != (other.index(a) < other.index(b))
        found.append(swaps)
    return found


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10_000))
def test_swaps_are_pairs_of_dimensions_in_another_order(seed: int) -> None:
    graph = repair_padding(make_layout_graph(seed, 15))
    assert measures.swaps_to_best(graph).tolist() == slow_swaps(graph)


def slow_copies(graph: Graph) -> list[float]:
    """Of the tensors between configurable nodes, the share of bytes whose two orders differ."""
    constraints, size = find_constraints(graph), num_bytes(graph)
    found = []
    for code in graph.layouts.codes[graph.layouts.rows]:
        moved = total = 0.0
        ends = [*constraints.starts[1:], len(constraints.configurable)]
        for node, first, last in zip(constraints.nodes, constraints.starts, ends, strict=True):
            given = {
                int(constraints.order[code[constraints.configurable[k]] + constraints.offsets[k]])
                for k in range(first, last)
            } - {-1}
            total += size[node]
            moved += size[node] * (len(given) > 1)
        found.append(moved / total if total else 0.0)
    return found


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 10_000))
def test_what_is_copied_are_tensors_with_two_orders(seed: int) -> None:
    graph = repair_padding(make_layout_graph(seed, 12))
    np.testing.assert_allclose(measures.copied_bytes(graph), slow_copies(graph), atol=1e-6)


@pytest.mark.parametrize("draw", [*FIGURES.values(), *OF_LAYOUTS.values()])
def test_every_figure_is_drawn_of_layouts(draw: object) -> None:
    assert isinstance(draw(GRAPHS), Figure)  # type: ignore[operator]


def test_figures_say_where_there_is_nothing_to_draw() -> None:
    unset = [graph.select(np.flatnonzero((graph.layouts.expand() >= 0).any(axis=(1, 2))))
             for graph in GRAPHS]  # fmt: skip
    drawn = [
        data_pictures.draw_gains(unset),
        data_pictures.draw_distances(KERNELS),
        data_pictures.draw_violations(KERNELS),
        data_pictures.draw_opcodes(KERNELS),
        data_pictures.draw_copies(KERNELS),
        data_pictures.draw_pruning(KERNELS),  # as of programs of which nothing can be set
    ]
    assert all(figure.texts for figure in drawn)


def test_a_name_that_begins_with_an_underscore_stands_in_the_legend() -> None:
    named = [
        dataclasses.replace(graph, name=name)
        for graph, name in zip(GRAPHS, ("_one", "two"), strict=False)
    ]
    legend = data_pictures.draw_across(named).axes[0].get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == ["_one", "two"]


def test_a_folder_is_looked_at_as_a_whole(tmp_path: Path) -> None:
    for graph in (*GRAPHS[:2], *KERNELS[:2]):
        write_graph(graph, tmp_path / "data")
    drawn = draw_first_look(tmp_path / "data", tmp_path / "pictures")
    assert {path.stem for path in drawn} == {*FIGURES, *OF_LAYOUTS}
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in drawn)
    write_graph(make_layout_graph(labelled=False), tmp_path / "other", "test")
    with pytest.raises(InputError, match="expected graphs"):
        draw_first_look(tmp_path / "other", tmp_path / "pictures")


def test_a_table_says_what_there_is_to_gain() -> None:
    table = show_graph(with_own_choice([3.0, 4.0, 2.0, 5.0]))[-1]
    assert list(table.columns[1].cells) == ["0.857", "125.0%"]
