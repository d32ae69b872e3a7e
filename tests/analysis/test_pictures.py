"""What a first look measures, against slow and obvious ways; and that every plot can be read."""

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.figure import Figure

from solution.analysis import data_pictures as pictures
from solution.analysis import measures
from solution.analysis.first_look import FIGURES, OF_LAYOUTS, draw_first_look
from solution.analysis.graph_picture import (
    MAX_NODES,
    describe_fastest,
    describe_node,
    lay_out,
    make_figure,
)
from solution.analysis.graph_tables import EVERY, measure_scale, show_graph
from solution.data.folders import SAMPLE, find_files
from solution.data.npz import read_graph
from solution.data.summaries import SCHEMA, summarise
from solution.domain import vocabulary
from solution.domain.codebook import encode
from solution.domain.graph import Graph
from solution.features.preparation import repair_padding
from solution.system.errors import InputError
from tests.made.graphs import make_layout_graph, make_tile_graph, write_graph
from tests.readable import assert_apart

SEEDS = st.integers(0, 10_000)


def slow_violation_ratio(graph: Graph) -> list[float]:
    """One configuration and one node after the other."""
    ratios = []
    for layouts in graph.layouts.expand():
        violating = 0
        for node, (minor, *_) in zip(graph.configurable, layouts, strict=True):
            sizes = graph.node_features[node, vocabulary.SHAPE_DIMENSIONS]
            violating += minor >= 0 and sizes[minor] < max(sizes)
        ratios.append(violating / len(graph.configurable))
    return ratios


@settings(max_examples=25, deadline=None)
@given(SEEDS)
def test_the_violation_ratio_is_the_obvious_one(seed: int) -> None:
    graph = make_layout_graph(seed, 9)
    np.testing.assert_allclose(measures.violation_ratio(graph), slow_violation_ratio(graph))


@settings(max_examples=20, deadline=None)
@given(SEEDS)
def test_principal_components_are_those_of_the_covariance(seed: int) -> None:
    vectors = np.random.default_rng(seed).normal(size=(30, 5)) * [3, 2, 1, 1, 1]
    coordinates, shares = measures.principal_components(vectors)
    strengths = np.sort(np.linalg.eigvalsh(np.cov(vectors.T)))[::-1]
    np.testing.assert_allclose(shares, strengths[:2] / strengths.sum())
    np.testing.assert_allclose(coordinates.var(axis=0, ddof=1), strengths[:2])


@pytest.fixture(scope="module")
def graphs() -> list[Graph]:
    """Two labelled graphs of every collection of the sample."""
    chosen: dict[str, list[Graph]] = {}
    for file in find_files(SAMPLE):
        graphs = chosen.setdefault(file.collection.name, [])
        if file.split != "test" and len(graphs) < 2:
            graphs.append(repair_padding(read_graph(file.path, file.collection)))
    return [graph for graphs in chosen.values() for graph in graphs]


def assert_readable(figure: Figure) -> None:
    """Titles, axis labels with what they count, and a legend where colours mean something."""
    assert figure.axes
    for axes in figure.axes:
        if not axes.axison or axes.get_label() == "<colorbar>":
            continue
        assert axes.get_title()
        assert axes.get_xlabel()
        assert axes.has_data() or axes.texts
        labelled = [item for item in axes.collections if not item.get_label().startswith("_")]  # type: ignore[union-attr]
        assert axes.get_legend() is not None or len(labelled) == 0
    assert_apart(figure)


@pytest.mark.parametrize("draw", [
    pictures.draw_runtimes, pictures.draw_across, pictures.draw_violations, pictures.draw_opcodes,
    pictures.draw_pruning,
])  # fmt: skip
def test_pictures_can_be_read(
    draw: Callable[[Sequence[Graph]], Figure], graphs: list[Graph], tmp_path: Path
) -> None:
    figure = draw(graphs)
    assert_readable(figure)
    figure.savefig(tmp_path / "picture.png", dpi=30)


def test_pictures_of_one_graph_can_be_read(graphs: list[Graph]) -> None:
    for graph in (graphs[0], graphs[-1]):
        assert_readable(pictures.draw_configurations(graph))
    assert make_figure(graphs[0]).axes


LAYOUTS = [make_layout_graph(seed, configs, name=f"p{seed}") for seed, configs in ((0, 3), (1, 5))]
KERNEL = make_tile_graph(0, 4)
SUMMARIES = pl.DataFrame(
    [dataclasses.asdict(summarise(graph, "train")) for graph in (*LAYOUTS, KERNEL)], SCHEMA
)


def test_means_are_over_graphs_and_pairs_are_all_configurations() -> None:
    rows = {row["collection"]: row for row in measure_scale(SUMMARIES).iter_rows(named=True)}
    layout, every = rows[LAYOUTS[0].collection.name], rows[EVERY]
    sizes = [graph.num_nodes for graph in LAYOUTS]
    assert (layout["graphs"], layout["pairs"], layout["configs"]) == (2, 8, 4)
    assert (layout["nodes"], layout["largest"]) == (sum(sizes) / 2, max(sizes))
    assert layout["edges"] == sum(len(graph.edges) for graph in LAYOUTS) / 2
    assert (every["graphs"], every["pairs"]) == (3, 12)
    assert every["nodes"] == pytest.approx((sum(sizes) + KERNEL.num_nodes) / 3)


def test_of_a_large_program_settable_operations_and_their_neighbours_are_shown() -> None:
    files = find_files(SAMPLE / "npz" / "layout" / "xla" / "default" / "train")
    file = max(files, key=lambda file: file.path.stat().st_size)
    large = read_graph(file.path, file.collection)
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


def test_figures_say_where_there_is_nothing_to_draw() -> None:
    unset = [graph.select(np.flatnonzero((graph.layouts.expand() >= 0).any(axis=(1, 2))))
             for graph in GRAPHS]  # fmt: skip
    drawn = [draw(KERNELS) for draw in OF_LAYOUTS.values()]  # as where nothing can be set
    assert all(figure.texts for figure in (pictures.draw_gains(unset), *drawn))


def test_a_name_that_begins_with_an_underscore_stands_in_the_legend() -> None:
    named = [make_layout_graph(seed, name=name) for seed, name in enumerate(("_one", "two"))]
    legend = pictures.draw_across(named).axes[0].get_legend()
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
