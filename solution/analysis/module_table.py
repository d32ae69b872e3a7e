"""Compute node features that the competition's 140 do not include; list a lifted program's guesses.

The table has a row per node, in the order of Graph.node_features, so the two can be joined. It
needs the program's protobuf, which is a separate download in the competition. A lifted program is
one that was reconstructed from a graph, with guesses where the graph says too little.

Rankers use only one kind of these columns: the dimensions that dots sum over (Graph.summed), which
solution.features.einsum turns into features. The other columns are for users' models, because npz
files contain none of them.

Source: the competition's best solutions (contracting and batch dimensions of dots, shapes of
operands, gathers) and its organisers, who name the contracting and batch dimensions.
"""

from collections.abc import Iterable, Sequence
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from rich.table import Table
from rich.text import Text

from solution.collecting.lifting.lift import Lifted
from solution.domain.vocabulary import MAX_RANK
from solution.features.column import Feature, numbered
from solution.programs.hlo.messages import instructions
from solution.programs.hlo.nodes import find_places, first, wrap
from solution.programs.hlo.records import Record
from solution.system.parquet import write_batches
from solution.system.terminal import make_table

OPERANDS = 3  # number of operands that get columns
# for each list of a dot's dimensions: name of its columns, the protobuf message's field, reason
DOT_LISTS = (
    ("lhs_contracting", "lhs_contracting_dimensions", "summed over in the left operand"),
    ("rhs_contracting", "rhs_contracting_dimensions", "summed over in the right operand"),
    ("lhs_batch", "lhs_batch_dimensions", "of the left operand, one product for each index"),
    ("rhs_batch", "rhs_batch_dimensions", "of the right operand, one product for each index"),
)
DOT_DIMENSIONS = 2  # number of columns for each list of dimensions in DOT_LISTS
# a gather's lists of dimensions, described like those of dots
GATHER_LISTS = (
    ("gather_offset", "offset_dims", "of the output, contiguous pieces of what is read"),
    ("gather_collapsed", "collapsed_slice_dims", "of which one index is read at a time"),
    ("gather_start", "start_index_map", "that the indices run along"),
)
GATHER_DIMENSIONS = 3  # number of columns for each list of dimensions in GATHER_LISTS
NONE = -1  # value of a missing dimension, because 0 is a valid dimension

FEATURES = (
    *(feature for name, _, reason in DOT_LISTS
      for feature in numbered(name, "dimension, -1: none", reason, DOT_DIMENSIONS)),
    Feature("dot_terms", "elements, 0: no dot", "the sum behind each element of a dot"),
    Feature("dot_batch", "elements, 0: no dot", "how many matrix products a dot is"),
    Feature("dot_rows", "elements, 0: no dot", "free dimensions of the left operand"),
    Feature("dot_columns", "elements, 0: no dot", "free dimensions of the right operand"),
    Feature("lhs_sums_minor", "0 or 1", "the contiguous dimension of the left operand is summed"),
    Feature("rhs_sums_minor", "0 or 1", "the contiguous dimension of the right operand is summed"),
    *(feature for name, _, reason in GATHER_LISTS
      for feature in numbered(name, "dimension, -1: none", reason, GATHER_DIMENSIONS)),
    Feature("gather_index_vector", "dimension, -1: none", "where a gather's indices lie"),
    Feature("operands", "count", "with repetitions, which edges do not show"),
    *(Feature(f"operand_{operand}_rank", "dimensions, -1: none", "in the order that edges lose")
      for operand in range(OPERANDS)),
    *(feature for operand in range(OPERANDS)
      for feature in numbered(
          f"operand_{operand}_size", "elements, 0: none", "the shape that is read", MAX_RANK)),
)  # fmt: skip


def module_features(module: Any) -> np.ndarray:
    """Return the table (nodes, len(FEATURES)) float32 of a program, a protobuf message Module.
    Raises InvalidGraphError if two instructions have the same id."""
    shapes = [instruction.shape for instruction in instructions(module)]
    positions = find_places(module)
    rows = [
        _describe(instruction, [shapes[positions[operand]] for operand in instruction.operand_ids])
        for instruction in instructions(module)
    ]
    return np.array(rows, np.int64).astype(np.float32)


def write_module_tables(records: Iterable[Record], path: Path) -> int:
    """Write the FEATURES of the programs of all records to one Parquet file. The file has a row per
    node, with the columns graph, node, and FEATURES. Returns the number of rows."""
    names = [feature.name for feature in FEATURES]
    schema = pl.Schema({"graph": pl.String(), "node": pl.Int32()})
    schema.update({name: pl.Float32() for name in names})
    tables = (
        pl.DataFrame(module_features(record.module), schema=names).select(
            pl.lit(record.graph.name).alias("graph"),
            pl.int_range(pl.len(), dtype=pl.Int32()).alias("node"),
            pl.all(),
        )
        for record in records
    )
    write_batches(tables, schema, path, sealed=False)
    return int(pl.scan_parquet(path, glob=False).select(pl.len()).collect().item())


def _describe(instruction: Any, operands: Sequence[Any]) -> list[int]:
    """Return the values of FEATURES for an instruction. `operands`: the shapes of its operands."""
    ranks = [len(shape.dimensions) for shape in operands]
    return [
        *_describe_dot(instruction, operands),
        *_describe_gather(instruction),
        len(operands),
        *first(ranks, OPERANDS, NONE),
        *first(
            [size for shape in operands for size in first(shape.dimensions, MAX_RANK)],
            OPERANDS * MAX_RANK,
        ),
    ]


def _describe_dot(instruction: Any, operands: Sequence[Any]) -> list[int]:
    lists = [getattr(instruction.dot, field) for _, field, _ in DOT_LISTS]
    dimensions = [axis for axes in lists for axis in first(axes, DOT_DIMENSIONS, NONE)]
    if instruction.opcode != "dot" or len(operands) < 2:
        return [NONE] * len(dimensions) + [0] * 6
    left, right = operands[:2]
    left_sums, right_sums, left_batch, right_batch = map(list, lists)
    return [
        *dimensions,
        _count(left, left_sums),
        _count(left, left_batch),
        _count(left, _others(left, left_sums + left_batch)),
        _count(right, _others(right, right_sums + right_batch)),
        _is_minor(left, left_sums),
        _is_minor(right, right_sums),
    ]


def _describe_gather(instruction: Any) -> list[int]:
    numbers = instruction.gather
    if instruction.opcode != "gather":
        return [NONE] * (len(GATHER_LISTS) * GATHER_DIMENSIONS + 1)
    lists = [getattr(numbers, field) for _, field, _ in GATHER_LISTS]
    return [
        *(axis for axes in lists for axis in first(axes, GATHER_DIMENSIONS, NONE)),
        numbers.index_vector_dim,
    ]


def _count(shape: Any, dimensions: Sequence[int]) -> int:
    """Return the product of the sizes of `dimensions`; dimensions that do not exist count as 1."""
    sizes = shape.dimensions
    return wrap(prod(sizes[axis] for axis in dimensions if 0 <= axis < len(sizes)))


def _others(shape: Any, dimensions: Sequence[int]) -> list[int]:
    return [axis for axis in range(len(shape.dimensions)) if axis not in dimensions]


def _is_minor(shape: Any, dimensions: Sequence[int]) -> int:
    """Return 1 if the contiguous dimension is among `dimensions`, else 0. Without a layout the last
    dimension is the contiguous one."""
    order = shape.layout.minor_to_major
    minor = order[0] if len(order) else len(shape.dimensions) - 1
    return int(minor in dimensions)


def show_guesses(name: str, lifted: Lifted) -> Table:
    """Return a table of the guesses in a lifted program (one reconstructed from a graph). It has a
    row for each kind of guess: the number of nodes with such a guess, and the first of them."""
    opcodes = [instruction.opcode for instruction in instructions(lifted.module)]
    touched = len({node for nodes in lifted.guesses.values() for node in nodes})
    table = make_table(
        Text(f"{name}: {len(opcodes):,} nodes, {touched:,} with a guess"),
        "The graph does not say these; they were inferred from shapes, or taken so that the "
        "program costs the same.",
    )
    table.add_column("Guess")
    table.add_column("Nodes", justify="right", no_wrap=True)
    table.add_column("First", justify="right", no_wrap=True)
    for kind, nodes in sorted(lifted.guesses.items(), key=lambda item: -len(item[1])):
        if nodes:
            first = min(nodes)
            table.add_row(Text(kind), f"{len(nodes):,}", f"{first} ({opcodes[first]})")
    return table
