"""Divide a program into pieces whose layouts do not depend on each other.

A layout constraint propagates along a tensor of rank 2 or more, and through instructions that keep
or rearrange its dimensions, but not through dots, convolutions and other instructions of the kind
CHANGES. So a program consists of connected pieces, and only the layouts that a configuration
requests inside a piece decide the piece's layouts.

A piece is stored as a program. Besides its own instructions and uses (operands as an instruction
reads them) this program has their neighbours in other pieces: readers, and instructions whose
results are read. Constraints on neighbours have no effect on the piece.
"""

from dataclasses import dataclass

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from solution.features.operations import NONE
from solution.features.propagation.canonical import UNSET
from solution.features.propagation.instructions import (
    ASKS,
    BROADCASTS,
    CHANGES,
    CONCATENATES,
    KEEPS,
    NO_OPCODE,
    REDUCES,
    RESHAPES,
    TRANSPOSES,
    Instructions,
)

# Kinds of instructions that propagate layouts between operands and result, and between operands
PASSING = (KEEPS, ASKS, REDUCES, CONCATENATES, BROADCASTS, RESHAPES, TRANSPOSES)


@dataclass(frozen=True)
class Piece:
    """A piece of a program. Original numbers number instructions and uses of the whole program."""

    program: Instructions
    ops: np.ndarray  # (instructions,) int64, original number of each instruction
    uses: np.ndarray  # (uses,) int64, original number of each use
    own_ops: np.ndarray  # positions in `ops` of the instructions whose results belong to the piece
    own_uses: np.ndarray  # positions in `uses` of the uses that belong to the piece
    calls: np.ndarray  # positions in `ops` of custom calls
    dots: np.ndarray  # positions in `ops` of dots in `varying`, see divide()


def divide(program: Instructions, varying: np.ndarray) -> list[Piece]:
    """Return the pieces of a program. All parts that no requested layout can affect are one piece.

    Args:
        varying: (dots,) dots that request layouts under some configurations, and request nothing
            under others (see passes.feeds_dot).
    """
    count, labels = program.number, _label(program)
    is_there = np.append(program.rank >= 2, program.rank[program.read] >= 2)
    is_asked = np.zeros(labels.max() + 1, bool)
    is_asked[labels[:count][(program.kind == ASKS)]] = True
    for op in varying:
        uses = np.arange(program.use_starts[op], program.use_starts[op + 1])
        is_asked[labels[[op, *(count + uses)]]] = True
    label = np.where(is_asked[labels], labels, NONE)  # parts without requests become one piece
    found = []
    for number in np.unique(label[is_there]) if is_there.any() else [NONE]:  # at least one piece
        points = np.flatnonzero((label == number) & is_there)
        found.append(
            _cut(program, points[points < count], points[points >= count] - count, varying)
        )
    return found


def _label(program: Instructions) -> np.ndarray:
    """Return the number of the connected component of each instruction and use (instructions +
    uses,). Each instruction or use of a rank below 2 is a component by itself."""
    count, uses = program.number, np.arange(len(program.read))
    ranks, passing = program.rank, np.isin(program.kind, PASSING)
    linked = uses[ranks[program.read] >= 2]
    point = count + linked
    base, reader = program.read[linked], program.reader[linked]
    # link a use with the result that it reads, and with the custom calls on both
    pairs = [np.stack([base, point])]
    for call in (program.behind[base], program.before[linked]):
        pairs.append(np.stack([call, point])[:, call != NONE])
    ops = np.flatnonzero((program.behind != NONE) & (ranks >= 2))
    pairs.append(np.stack([ops, program.behind[ops]]))
    # link a use with the result of its reader, and with the reader's other operands
    through = passing[reader]
    pairs.append(np.stack([reader, point])[:, through & (ranks[reader] >= 2)])
    first = np.full(count, NONE)
    first[reader[::-1]] = point[::-1]
    pairs.append(np.stack([first[reader], point])[:, through])
    one, other = np.concatenate(pairs, axis=1)
    shape = (count + len(uses), count + len(uses))
    links = coo_array((np.ones(len(one), bool), (one, other)), shape=shape)
    return np.asarray(connected_components(links, directed=False)[1], np.int64)


def _cut(
    program: Instructions, own_ops: np.ndarray, own_uses: np.ndarray, varying: np.ndarray
) -> Piece:
    """Return the piece with these instructions and uses, given by original numbers."""
    uses = np.union1d(own_uses, np.flatnonzero(np.isin(program.reader, own_ops)))
    inner = np.union1d(own_ops, np.append(program.reader[uses], program.number - 1))
    ops = np.union1d(inner, program.read[uses])
    is_base = ~np.isin(ops, inner)  # a neighbour that only supplies an operand
    return Piece(
        _renumber(program, ops, uses, is_base),
        ops,
        uses,
        np.searchsorted(ops, own_ops),
        np.searchsorted(uses, own_uses),
        np.flatnonzero((program.kind[ops] == ASKS) & ~is_base),
        np.searchsorted(ops, np.intersect1d(varying, ops[~is_base])),
    )


def _renumber(
    program: Instructions, ops: np.ndarray, uses: np.ndarray, is_base: np.ndarray
) -> Instructions:
    """Return a program of `ops` and `uses`, renumbered. Where `is_base`, nothing is requested."""
    new_op = np.full(program.number + 1, NONE)
    new_op[ops] = np.arange(len(ops))
    new_op[-1] = NONE  # the index NONE (-1) maps to NONE
    new_use = np.full(len(program.read) + 1, NONE)
    new_use[uses] = np.arange(len(uses))
    new_use[-1] = NONE
    read, reader = new_op[program.read[uses]], new_op[program.reader[uses]]
    behind = np.where(is_base, NONE, new_op[program.behind[ops]])
    order = np.argsort(read, kind="stable")
    return program._replace(
        node=program.node[ops],
        opcodes=np.where(is_base, NO_OPCODE, program.opcodes[ops]),
        kind=np.where(is_base, CHANGES, program.kind[ops]).astype(program.kind.dtype),
        rank=program.rank[ops],
        sizes=program.sizes[ops],
        dimensions=program.dimensions[ops],
        fixed=np.where(is_base, UNSET, program.fixed[ops]),
        device=program.device[ops],
        only_reader=new_op[program.only_reader[ops]],
        forwards=program.forwards[ops],
        turned=program.turned[ops],
        use_starts=np.searchsorted(reader, np.arange(len(ops) + 1)),
        read=read,
        reader=reader,
        wanted=program.wanted[uses],
        before=new_op[program.before[uses]],
        behind=behind,
        asked=program.asked[ops],
        order=new_op[program.order[np.isin(program.order, ops)]],
        main=new_use[program.main[ops]],
        reader_starts=np.searchsorted(read[order], np.arange(len(ops) + 1)),
        reading=order,
    )
