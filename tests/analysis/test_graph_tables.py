"""`inspect` shows every graph that can be read, whatever it is called."""

import dataclasses
import shutil
from io import StringIO
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from solution.analysis.graph_picture import make_figure
from solution.analysis.graph_tables import show_graph
from solution.analysis.module_table import FEATURES, module_features
from solution.domain.codebook import encode
from solution.domain.graph import Graph
from solution.features.operations import find_operands
from solution.programs.hlo.messages import MESSAGES, instructions
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


NAMES = [feature.name for feature in FEATURES]


def describe(*nodes: object) -> pl.DataFrame:
    rows = module_features(modules.module(("main", len(nodes), list(nodes))))
    assert rows.dtype == np.float32
    return pl.DataFrame(rows, schema=NAMES)


@given(st.integers(0, 10_000))
@settings(max_examples=50, deadline=None)
def test_the_sizes_of_a_dot_are_those_of_einsum(seed: int) -> None:
    numbers, left, right, letters = modules.describe_product(np.random.default_rng(seed))
    table = describe(
        modules.node(1, "parameter", left),
        modules.node(2, "parameter", right),
        modules.node(3, "dot", modules.shape(), (1, 2), dot=numbers),
    )
    arrays = [np.ones(tuple(shape.dimensions)) for shape in (left, right)]
    product = np.einsum(f"{letters[0]},{letters[1]}->{letters[2]}", *arrays)
    row = table.row(2, named=True)
    assert row["dot_terms"] == product.flat[0]  # a sum of ones
    assert row["dot_batch"] * row["dot_rows"] * row["dot_columns"] == product.size
    shared = set(letters[0]) & set(letters[1]) & set(letters[2])
    assert row["dot_batch"] == np.prod([1, *(left.dimensions[letters[0].index(k)] for k in shared)])
    summed = set(letters[0]) - set(letters[2])
    assert row["lhs_sums_minor"] == (letters[0][-1] in summed)
    assert row["rhs_sums_minor"] == (letters[1][-1] in summed)


def test_dimensions_and_operands_are_as_the_module_has_them() -> None:
    table = describe(
        modules.node(5, "parameter", modules.shape(2, 8, 16, order=[1, 2, 0])),
        modules.node(3, "parameter", modules.shape(2, 16, 4)),
        modules.node(9, "dot", modules.shape(2, 8, 4), (5, 3), dot=modules.dot([2], [1], [0], [0])),
        modules.node(2, "add", modules.shape(2, 8, 4), (9, 9)),
    )
    dot = table.row(2, named=True)
    pairs = ("lhs_contracting", "rhs_contracting", "lhs_batch", "rhs_batch")
    assert [[dot[f"{name}_{slot}"] for slot in (0, 1)] for name in pairs] == [
        [2, -1], [1, -1], [0, -1], [0, -1],
    ]  # fmt: skip
    assert [dot[f"dot_{name}"] for name in ("terms", "batch", "rows", "columns")] == [16, 2, 8, 4]
    assert (dot["lhs_sums_minor"], dot["rhs_sums_minor"]) == (0, 0)  # by layout, not by position
    assert [dot[f"operand_0_size_{slot}"] for slot in range(6)] == [2, 8, 16, 0, 0, 0]
    assert [dot[f"operand_1_size_{slot}"] for slot in range(6)] == [2, 16, 4, 0, 0, 0]
    assert table["operands"].to_list() == [0, 0, 2, 2]  # x + x has one edge
    assert table["operand_0_rank"].to_list() == [-1, -1, 3, 3]
    assert table["operand_2_rank"].to_list() == [-1] * 4
    others = table.filter(table["operands"] == 0)
    assert set(others["dot_terms"]) == {0}
    assert set(others["lhs_contracting_0"]) == {-1}


def test_a_gather_says_which_dimensions_it_reads() -> None:
    numbers = MESSAGES["GatherDimensions"](
        offset_dims=[1], collapsed_slice_dims=[0], start_index_map=[0], index_vector_dim=1
    )
    table = describe(
        modules.node(1, "parameter", modules.shape(100, 8)),
        modules.node(2, "gather", modules.shape(5, 8), (1,), gather=numbers),
    )
    names = [name for name in NAMES if name.startswith("gather_")]
    assert list(table.select(names).row(1)) == [1, -1, -1, 0, -1, -1, 0, -1, -1, 1]
    assert set(table.select(names).row(0)) == {-1}


@pytest.mark.parametrize("file", ["op_tuning_data.pb", "module_tuning_data_layout.pb"])
def test_the_operands_that_shapes_give_away_are_those_of_real_modules(tpu: Path, file: str) -> None:
    """Of dots and convolutions: the edges of npz files do not say which is which."""
    for record in read_module_file(tpu / "pb" / file):
        guess, numbers = find_operands(record.graph), find_places(record.module)
        for number, instruction in enumerate(instructions(record.module)):
            if instruction.opcode in ("dot", "convolution"):
                told = [numbers[operand] for operand in instruction.operand_ids]
                assert [guess.input[number], guess.kernel[number]] == told
