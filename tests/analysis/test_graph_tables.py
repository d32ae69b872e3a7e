"""`inspect` shows every graph that can be read, whatever it is called."""

import dataclasses
import shutil
from io import StringIO
from pathlib import Path

import numpy as np
import pytest

from solution.analysis.graph_picture import make_figure
from solution.analysis.graph_tables import show_graph
from solution.domain.codebook import encode
from solution.domain.graph import Graph
from solution.features.operations import find_operands
from solution.programs.hlo.messages import instructions
from solution.programs.hlo.nodes import find_places
from solution.programs.hlo.records import read_module_file, write_record
from solution.system.pictures import save_figure
from solution.system.terminal import PlainConsole
from tests.conftest import FastSlow
from tests.made import modules
from tests.made.graphs import make_layout_graph, make_tile_graph, write_graph

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
    assert "fastest first" in labelled
    assert "file's order" in blind
    assert "fastest" not in blind and "Runtime" not in blind


def test_a_module_with_nothing_to_set_is_inspected(fastslow: FastSlow, tmp_path: Path) -> None:
    nodes = [modules.node(1, "parameter", modules.shape(4))]
    module = modules.module(("main", 1, nodes))
    path = modules.write(modules.record(module=module), tmp_path / "mine.pb")
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
    save_figure(make_figure(graph), tmp_path / "graph.png")
    assert (tmp_path / "graph.png").stat().st_size > 5000
    assert "\x1b" not in show(graph)


@pytest.mark.parametrize("copies", [0, 1, 2])
def test_check_and_run_say_which_graphs_are_copies_of_others(
    copies: int, fastslow: FastSlow, tmp_path: Path
) -> None:
    for seed in range(2):
        write_graph(make_tile_graph(seed, name=f"kernel{seed}"), tmp_path / "data")
    valid = tmp_path / "data/npz/tile/xla/valid"
    valid.mkdir()
    for number in range(copies):
        shutil.copyfile(valid.with_name("train") / "kernel1.npz", valid / f"copy{number}.npz")
    run = ("run", "data", "--experiment", "nothing_001", "--workers", "1")
    prepare, of_store = ("prepare", "data"), ("check", "stores/data")
    for command in (("check", "data"), *((prepare, run, of_store) if copies != 1 else ())):
        result = fastslow(*command)
        assert result.returncode == 0, result.stderr
        if command == prepare:
            continue
        said = {0: "", 1: "1 graph is a copy", 2: "2 graphs are copies"}[copies]
        assert said in result.stderr
        named = "such as tile:xla train kernel1 and tile:xla valid copy0."
        assert (named in result.stderr) == bool(copies)
        assert ("under another name" in result.stderr) == bool(copies)


@pytest.mark.parametrize("file", ["op_tuning_data.pb", "module_tuning_data_layout.pb"])
def test_the_operands_that_shapes_give_away_are_those_of_real_modules(tpu: Path, file: str) -> None:
    """Of dots and convolutions: the edges of npz files do not say which is which."""
    for record in read_module_file(tpu / "pb" / file):
        guess, numbers = find_operands(record.graph), find_places(record.module)
        for number, instruction in enumerate(instructions(record.module)):
            if instruction.opcode in ("dot", "convolution"):
                told = [numbers[operand] for operand in instruction.operand_ids]
                assert [guess.input[number], guess.kernel[number]] == told
