"""How large data is: counts by hand."""

import dataclasses
from io import StringIO

import pytest
from matplotlib.figure import Figure

from solution.analysis.data_pictures import draw_scale
from solution.analysis.scale import EVERY, measure_scale, show_scale
from solution.data.scan import summarise, tabulate
from solution.system.terminal import PlainConsole
from tests.made.graphs import make_layout_graph, make_tile_graph

LAYOUTS = [make_layout_graph(seed, configs, name=f"p{seed}") for seed, configs in ((0, 3), (1, 5))]
KERNEL = make_tile_graph(0, 4)
SUMMARIES = tabulate([summarise(graph, "train") for graph in (*LAYOUTS, KERNEL)])


def test_means_are_over_graphs_and_pairs_are_all_configurations() -> None:
    rows = {row["collection"]: row for row in measure_scale(SUMMARIES).iter_rows(named=True)}
    layout, every = rows[LAYOUTS[0].collection.name], rows[EVERY]
    sizes = [graph.num_nodes for graph in LAYOUTS]
    assert (layout["graphs"], layout["pairs"], layout["configs"]) == (2, 8, 4)
    assert (layout["nodes"], layout["largest"]) == (sum(sizes) / 2, max(sizes))
    assert layout["edges"] == sum(len(graph.edges) for graph in LAYOUTS) / 2
    assert (every["graphs"], every["pairs"]) == (3, 12)
    assert every["nodes"] == pytest.approx((sum(sizes) + KERNEL.num_nodes) / 3)


def test_the_table_has_a_row_a_collection() -> None:
    console = PlainConsole(file=StringIO(), width=80)
    console.print(show_scale(SUMMARIES))
    shown = " ".join(console.file.getvalue().split())  # type: ignore[attr-defined]
    for row in measure_scale(SUMMARIES).iter_rows(named=True):
        assert f"{row['collection']} {row['graphs']} " in shown
    assert "reported" not in shown


def test_the_figure_has_a_point_a_graph() -> None:
    figure = draw_scale(SUMMARIES)
    assert isinstance(figure, Figure)
    (axes,) = figure.axes
    points = sum(len(drawn.get_offsets()) for drawn in axes.collections)
    assert points == len(SUMMARIES)
    one = tabulate([summarise(dataclasses.replace(KERNEL, runtimes=None), "test")])
    assert len(draw_scale(one).axes) == 1
