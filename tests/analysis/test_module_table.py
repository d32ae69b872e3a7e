"""What a module says of its nodes beyond the 140 features, against einsum and by hand."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from solution.analysis.module_table import FEATURES, module_features
from solution.features.operands import find_operands
from solution.programs.hlo.messages import MESSAGES, instructions
from solution.programs.hlo.nodes import find_places
from solution.programs.hlo.records import read_module_file
from tests.made import modules

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
    arrays = [np.ones(tuple(own.dimensions)) for own in (left, right)]
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
    assert (dot["lhs_sums_minor"], dot["rhs_sums_minor"]) == (0, 0)  # by layout, not by place
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


def test_every_column_has_a_unit_and_a_reason_of_a_line() -> None:
    assert len(set(NAMES)) == len(NAMES)
    for feature in FEATURES:
        assert feature.unit
        assert feature.reason
        assert "\n" not in feature.reason


@pytest.mark.parametrize("file", ["op_tuning_data.pb", "module_tuning_data_layout.pb"])
def test_the_operands_that_shapes_give_away_are_those_of_real_modules(tpu: Path, file: str) -> None:
    """Of dots and convolutions: the edges of npz files do not say which is which."""
    for record in read_module_file(tpu / "pb" / file):
        guess, places = find_operands(record.graph), find_places(record.module)
        for place, instruction in enumerate(instructions(record.module)):
            if instruction.opcode in ("dot", "convolution"):
                told = [places[operand] for operand in instruction.operand_ids]
                assert [guess.input[place], guess.kernel[place]] == told
