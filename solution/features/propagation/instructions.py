"""Build the arrays that layout assignment works on: instructions, operands, requests.

Instances of nodes (solution.features.propagation.inlining) come first, then custom calls: one for
each tensor whose layout a configuration may set. A custom call requests the layout, or passes the
tensor on unchanged if the configuration leaves its layout to the compiler.
"""

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from solution.domain import vocabulary
from solution.domain.graph import Graph
from solution.domain.neighbours import Neighbours, starts_of
from solution.domain.vocabulary import MAX_RANK, OPCODE_IDS
from solution.features.layout.tensors import KEEPING
from solution.features.operations import NONE, find_operands, num_bytes, tensor_ranks
from solution.features.propagation import canonical
from solution.features.propagation.backend import Backend
from solution.features.propagation.calls import BEHIND, Call, attach_calls, list_calls
from solution.features.propagation.inlining import Inlined, inline
from solution.features.propagation.tiles import choose_layouts

NO_OPCODE = -1
# Kinds of instructions, by their effect on the layout of an operand. ASKS: a custom call, which
# requests a layout. GIVES: the last instruction, which reads the program's results.
CHANGES, KEEPS, CONCATENATES, REDUCES, RESHAPES, TRANSPOSES, BROADCASTS, ASKS, GIVES = range(9)
# further, rare opcodes that keep the layout of their operand (InstructionCanChangeLayout of
# openxla/xla)
RARE = """
add-dependency all-gather all-gather-start all-gather-done all-reduce-start all-reduce-done cholesky
opt-barrier reduce-scatter set-dimension-size
"""
KINDS = np.full(vocabulary.NUM_OPCODES, CHANGES, np.int8)
KINDS[[OPCODE_IDS[name] for name in (*KEEPING.split(), *RARE.split())]] = KEEPS
KINDS[OPCODE_IDS["concatenate"]] = CONCATENATES
KINDS[OPCODE_IDS["reduce"]] = REDUCES
KINDS[OPCODE_IDS["reshape"]] = RESHAPES
KINDS[OPCODE_IDS["transpose"]] = TRANSPOSES
KINDS[OPCODE_IDS["broadcast"]] = BROADCASTS


class Instructions(NamedTuple):  # compiled code reads the fields of named tuples
    """A program's instructions: instances of nodes (one for each call of their computation), custom
    calls that each request a tensor's layout, and a reader of the results. A use is an operand as
    one instruction reads it. Layouts are packed into integers, see canonical.pack_layout."""

    # (instructions,) int64, the node whose tensor is computed; NONE for no node
    node: np.ndarray
    # (instructions,) int64. A custom call has the opcode of the node whose tensor it reads. The
    # last instruction, which reads the program's results, has NO_OPCODE.
    opcodes: np.ndarray
    kind: np.ndarray  # (instructions,) int8, CHANGES ... GIVES: effect of each on layouts
    rank: np.ndarray  # (instructions,) int64, number of dimensions of the result
    sizes: np.ndarray  # (instructions, 6) int64, dimensions of the result; 1 past the rank
    dimensions: np.ndarray  # (instructions, 6) int64, attribute `dimensions`; NONE past its length
    fixed: np.ndarray  # (instructions,) int64, layout fixed by the module or backend, or UNSET
    # (instructions,) int64, the layout in which the device would store the result if it were a
    # parameter or a result of the program
    device: np.ndarray
    # Two fields for a TPU (solution.features.propagation.passes). `only_reader` (instructions,)
    # int64: the only reader of the result if it is element-wise, a dot or a transpose; otherwise
    # NONE. `forwards` (instructions,) bool: True if the instruction propagates a requested layout
    # from its operand to its result.
    only_reader: np.ndarray
    forwards: np.ndarray
    # (instructions,) int64: the layout of a dot whose operands the compiler swaps, because only a
    # transpose reads the dot and no custom call stands between the two; otherwise UNSET.
    turned: np.ndarray
    use_starts: np.ndarray  # (instructions + 1,) int64, the first use of each instruction
    read: np.ndarray  # (uses,) int64, the instance whose result is read, perhaps via a custom call
    reader: np.ndarray  # (uses,) int64, the instruction that reads
    wanted: np.ndarray  # (uses,) int64, layout that the backend requests for an operand, or UNSET
    before: np.ndarray  # (uses,) int64, the custom call that requests the operand's layout, or NONE
    behind: np.ndarray  # (instructions,) int64, call that requests the result's layout, or NONE
    # (instructions, 2) int64: the node and tensor whose layout a custom call requests, as indices
    # into graph.configurable and LAYOUT_TENSORS; NONE for other instructions
    asked: np.ndarray
    # (instructions,) int64: instructions sorted by node, the order in which layouts are assigned
    order: np.ndarray
    # (instructions, 2) int64: the uses that read the input and the kernel of a dot or convolution,
    # or the two largest operands of another instruction; NONE if there are fewer
    main: np.ndarray
    # (instructions + 1,): reading[reader_starts[i] : reader_starts[i + 1]] are the uses that read i
    reader_starts: np.ndarray
    reading: np.ndarray  # (uses,) int64, uses sorted by the instance that they read
    flags: np.ndarray  # (2,) bool, fields of Backend: row_major, device_layouts

    @property
    def number(self) -> int:
        return len(self.node)

    @property
    def is_programs(self) -> np.ndarray:
        """(instructions,) bool: True for instructions of the program, False for custom calls."""
        return self.kind != ASKS


def list_instructions(graph: Graph, backend: Backend) -> Instructions:
    """Return the instructions of a whole (not pruned) graph, after repair_padding."""
    inlined = _repeat_squares(graph, inline(graph))
    if backend.canonical_operands:
        inlined = canonical.transpose_operands(graph, inlined)
    reads, named = inlined.reads, inlined.named
    calls = list_calls(graph, inlined, backend)
    count = len(inlined.node)
    makers = [inlined.node[i if k == BEHIND else reads[i][k]] for i, k, _, _ in calls]
    node = np.array([*inlined.node, *makers, NONE], np.int64)
    opcodes = np.append(graph.node_opcodes, NO_OPCODE).astype(np.int64)[node]
    opcodes[list(inlined.orders)] = OPCODE_IDS["transpose"]
    opcodes[list(inlined.reshapes)] = OPCODE_IDS["reshape"]
    rows = [*reads, *([i if k == BEHIND else reads[i][k]] for i, k, _, _ in calls),
            inlined.results]  # fmt: skip
    starts = starts_of([len(row) for row in rows]).astype(np.int64)
    behind, before, asked = attach_calls(calls, count, starts)
    described = _describe(graph, node, inlined)
    kind = np.append(KINDS[opcodes[:-1]], np.int8(GIVES))
    kind[count:-1] = ASKS
    _distrust(kind, described, rows)
    if backend.device_layouts:
        _drop_broadcasts(kind, described, rows)
    read = np.array([one for row in rows for one in row], np.int64)
    reader_starts, reading = Neighbours.of(read, np.arange(len(read)), len(node))
    listed = Instructions(
        node=node,
        opcodes=opcodes,
        kind=kind,
        **described,
        fixed=canonical.fix_layouts(graph, node, opcodes, described["rank"], count, backend),
        device=canonical.make_row_major(described["rank"]),
        only_reader=np.full(len(node), NONE),
        forwards=np.zeros(len(node), bool),
        turned=canonical.turn_dots(inlined, described, opcodes, backend),
        use_starts=starts,
        read=read,
        reader=np.repeat(np.arange(len(node)), np.diff(starts)),
        wanted=np.full(len(read), canonical.UNSET),
        before=before,
        behind=behind,
        asked=asked,
        order=_order(inlined, calls),
        main=_choose_main(graph, node, rows, named, starts),
        reader_starts=reader_starts,
        reading=reading,
        flags=np.array([backend.row_major, backend.device_layouts]),
    )
    return choose_layouts(graph, inlined, listed) if backend.device_layouts else listed


def _repeat_squares(graph: Graph, inlined: Inlined) -> Inlined:
    """Return the instances. If both operands of one are the same tensor (x * x), list the tensor
    twice among its operands: the graph has a single edge for both."""
    operands = find_operands(graph)
    reads, named = [], []
    for node, read, names in zip(inlined.node, inlined.reads, inlined.named, strict=True):
        is_square = operands.kernel[node] != NONE and operands.input[node] == operands.kernel[node]
        reads.append(read * 2 if is_square and len(read) == 1 else read)
        named.append(names * 2 if is_square and len(read) == 1 else names)
    return replace(inlined, reads=reads, named=named)


def _choose_main(
    graph: Graph,
    node: np.ndarray,
    rows: list[list[int]],
    named: list[list[int]],
    starts: np.ndarray,
) -> np.ndarray:
    """Return the field `main` of Instructions. Edges have no order, so the main operands are input
    and kernel as find_operands names them or, for other instructions, the largest operands."""
    operands, size = find_operands(graph), np.append(num_bytes(graph), 0.0)
    main = np.full((len(node), 2), NONE)
    for op, row in enumerate(rows):
        names = named[op] if op < len(named) else [NONE] * len(row)
        product = operands.input[node[op]], operands.kernel[node[op]]
        keys = [
            (*(name != tensor for tensor in product), -size[node[read]])
            for name, read in zip(names, row, strict=True)
        ]
        order = sorted(range(len(row)), key=keys.__getitem__)[:2]
        main[op, : len(order)] = starts[op] + np.array(order, np.int64)
    return main


def _describe(graph: Graph, node: np.ndarray, inlined: Inlined) -> dict[str, np.ndarray]:
    """Return the fields `rank`, `sizes` and `dimensions` of Instructions. An instruction without a
    node is a scalar."""
    is_none = node == NONE
    rank = np.where(is_none, 0, np.minimum(tensor_ranks(graph), MAX_RANK)[node]).astype(np.int64)
    sizes = graph.node_features[:, vocabulary.SHAPE_DIMENSIONS][node].astype(np.int64)
    sizes = np.where(np.arange(MAX_RANK) < rank[:, None], np.maximum(sizes, 1), 1)
    dimensions = graph.node_features[:, vocabulary.DIMENSIONS][node].astype(np.int64)
    dimensions = np.where(is_none[:, None], NONE, dimensions)
    for added, matrix in inlined.matrices.items():
        rank[added] = len(matrix)
        sizes[added] = [*matrix, *[1] * (MAX_RANK - len(matrix))]
    for added, order in inlined.orders.items():
        sizes[added, : len(order)] = sizes[added, list(order)]
        dimensions[added] = [*order, *[NONE] * (MAX_RANK - len(order))]
    return {"rank": rank, "sizes": sizes, "dimensions": dimensions}


def _distrust(kind: np.ndarray, described: dict[str, np.ndarray], rows: list[list[int]]) -> None:
    """Set `kind` to CHANGES, in place, for transposes and broadcasts whose `dimensions` contradict
    their shapes. `rows`: the instructions that each instruction reads."""
    rank, dimensions = described["rank"], described["dimensions"]
    for op in np.flatnonzero(kind == TRANSPOSES):
        listed = dimensions[op, : rank[op]].tolist()
        reads = [rank[read] for read in rows[op]]
        if sorted(listed) != list(range(rank[op])) or reads != [rank[op]]:
            kind[op] = CHANGES
    for op in np.flatnonzero(kind == BROADCASTS):
        read = max((int(rank[read]) for read in rows[op]), default=0)
        listed = dimensions[op, :read].tolist()
        if sorted(set(listed)) != listed or (
            listed and not 0 <= listed[0] <= listed[-1] < rank[op]
        ):
            kind[op] = CHANGES


def _drop_broadcasts(
    kind: np.ndarray, described: dict[str, np.ndarray], rows: list[list[int]]
) -> None:
    """Set `kind` to KEEPS, in place, for broadcasts into the shape of their operand. The compiler
    drops them. `rows`: the instructions that each instruction reads."""
    rank, sizes = described["rank"], described["sizes"]
    for op in np.flatnonzero(kind == BROADCASTS):
        is_same = [rank[one] == rank[op] and (sizes[one] == sizes[op]).all() for one in rows[op]]
        if is_same == [True]:
            kind[op] = KEEPS


def _order(inlined: Inlined, calls: list[Call]) -> np.ndarray:
    """Return the field `order` of Instructions: instructions sorted by node. A custom call on an
    operand comes right before the reader, a custom call on a result right after the producer."""
    node = list(inlined.node)
    for added in sorted(inlined.orders, reverse=True):
        # sort an inserted transpose like the dot or convolution that it was inserted for
        node[added] = node[added + 1]
    keys = [(op, instance, 0) for instance, op in enumerate(node)]
    for instance, operand, _, _ in calls:
        keys.append((node[instance], instance, 1 if operand == BEHIND else -1))
    keys.append((max(node, default=0) + 1, 0, 0))
    return np.lexsort(np.array(keys).T[::-1])
