"""`inspect` shows every graph that can be read, whatever it is called."""

import dataclasses
from io import StringIO
from pathlib import Path

import numpy as np
import pytest

from solution.analysis.graph_picture import draw_graph
from solution.analysis.graph_tables import show_graph
from solution.domain.codebook_encoder import encode
from solution.domain.graph import Graph
from solution.programs.hlo.records import read_module_file, write_record
from solution.system.terminal import PlainConsole
from tests.conftest import FastSlow
from tests.made import modules
from tests.made.graphs import make_layout_graph, make_tile_graph

NOTHING_TO_SET = dataclasses.replace(
    make_layout_graph(), configurable=np.empty(0, np.int64), configs=encode(np.empty((12, 0, 18)))
)


def show(graph: Graph) -> str:
    console = PlainConsole(file=StringIO(), width=80)
    for table in show_graph(graph):
        console.print(table)
    return console.file.getvalue()  # type: ignore[attr-defined]


def timed(first: float, others: float) -> Graph:
    """A graph with these runtimes."""
    return dataclasses.replace(make_layout_graph(), runtimes=np.r_[first, np.full(11, others)])


def test_a_program_with_nothing_to_set_has_a_table_without_layouts() -> None:
    for graph in (NOTHING_TO_SET, dataclasses.replace(NOTHING_TO_SET, runtimes=None)):
        shown = show(graph)
        assert "configurable nodes           0" in shown
        assert "Tile sizes" not in shown
        assert "Layouts" not in shown
    assert "Tile sizes" in show(make_tile_graph())
    assert "Layouts" in show(make_layout_graph())


def test_tiles_without_runtimes_are_not_called_fast() -> None:
    graphs = make_tile_graph(), make_tile_graph(labelled=False)
    labelled, blind = (" ".join(show(graph).split()) for graph in graphs)  # titles are wrapped
    assert "Tile sizes, the fastest first; runtimes over the normaliser" in labelled
    assert "Tile sizes, in the file's order" in blind
    assert "fastest" not in blind and "Runtime" not in blind


def test_a_module_with_nothing_to_set_is_inspected(fastslow: FastSlow, tmp_path: Path) -> None:
    nodes = [modules.node(1, "parameter", modules.shape(4))]
    module = modules.module(("main", 1, nodes))
    path = modules.write(modules.record(own=module), tmp_path / "mine.pb")
    (record,) = read_module_file(path)
    written = write_record(record, tmp_path / "data")
    result = fastslow("inspect", written)
    assert result.returncode == 0, result.stderr
    assert "parameter" in result.stdout
    assert (tmp_path / "mine.png").stat().st_size > 1000


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    "graph",
    [
        NOTHING_TO_SET,
        timed(1e-290, 1e10),
        timed(1 + 3e-16, 1),
        timed(1, 1),
        dataclasses.replace(make_layout_graph(), name="a$x_$b"),
        dataclasses.replace(make_tile_graph(), name=r"$\frac$"),
        dataclasses.replace(make_layout_graph(), name="\x1b[31mred\n程序"),
    ],
    ids=["nothing to set", "far apart", "a bit apart", "equal", "dollars", "formula", "control"],
)
def test_any_graph_is_drawn(graph: Graph, tmp_path: Path) -> None:
    draw_graph(graph, tmp_path / "graph.png")
    assert (tmp_path / "graph.png").stat().st_size > 5000
    assert "\x1b" not in show(graph)
