"""Assign the layouts of all configurations of a program, piece by piece (partly compiled).

A piece is an independent part of the program (solution.features.propagation.pieces). A pattern of a
piece is a combination of layouts that configurations request in it. Configurations with one pattern
get equal layouts in the piece, so layouts are assigned once for each pattern.

A TPU's compiler assigns layouts in passes (solution.features.propagation.passes). After a pass, a
piece may keep layouts, which reshapes, reductions or clusters request in the next pass. All pieces
take part in a next pass if one has kept layouts. So a piece's layouts depend on its pattern and on
the kinds of layouts that were kept after each pass.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numba import njit

from solution.domain.neighbours import starts_of
from solution.features.propagation.canonical import UNSET
from solution.features.propagation.clusters import keep_clusters
from solution.features.propagation.instructions import ASKS, Instructions
from solution.features.propagation.passes import (
    DOT,
    MOST_PASSES,
    feeds_dot,
    keep_reductions,
    keep_reshapes,
    propagate_requests,
    run_pass,
)
from solution.features.propagation.pieces import Piece, divide
from solution.features.propagation.squeezing import find_squeezed
from solution.features.propagation.states import Stored, mark_copies
from solution.features.propagation.tiled_copies import finish, mark_tiled_copies
from solution.features.propagation.worklist import NONE, State, assign

# A block's layouts take about MOST_BYTES at most: POINT_BYTES per pattern and instruction or use.
MOST_BYTES, POINT_BYTES = 1 << 30, 104
# capacity of the worklist of constraints, per instruction and use
WORKLIST = 8
# Kinds of layouts that are kept after a pass: none, layouts of reshapes, of reductions, of clusters
NOTHING, OF_RESHAPES, OF_REDUCTIONS, OF_CLUSTERS = range(4)

Pair = tuple[np.ndarray, np.ndarray]


class Assigner:
    """Assigns layouts to one program for any of its configurations."""

    def __init__(self, program: Instructions, free: np.ndarray) -> None:
        """`free` (instructions,) bool: tensors that change layout at no cost, as constants do."""
        self._program, self._free = program, free
        self._calls = np.flatnonzero(program.kind == ASKS)
        # `_feeding`: True for dots that only another dot reads. `_dots`: the dots for which this
        # depends on the configuration, because a custom call in between may request a layout.
        self._feeding, varies = _find_feeding(program)
        self._dots = np.flatnonzero(varies)
        self._pieces = divide(program, self._dots)

    def assign(
        self, packed: np.ndarray, starts: np.ndarray, codes: np.ndarray
    ) -> Iterator[tuple[Stored, np.ndarray]]:
        """Yield for each block of configurations the layouts of all pieces (Stored), and the number
        (configs, pieces) of each configuration's entry in every piece.

        A block has as many configurations as MOST_BYTES of memory allow: nearly always all. If a
        pattern occurs in several blocks, its layouts are assigned again in each of them.

        Args:
            packed: (pairs, 3) requested layouts of output, input and kernel, as integers.
            starts: Codebook.starts.
            codes: (configs, nodes) rows of Codebook.codes.
        """
        asked = np.empty((len(codes), len(self._calls)), np.int64)
        feeds = np.empty((len(codes), len(self._dots)), np.int64)
        _list_requests(self._program, packed, starts, codes, self._calls, self._dots, asked, feeds)
        columns = [self._find_columns(piece) for piece in self._pieces]
        found = [
            _find_distinct(np.column_stack([asked[:, calls], feeds[:, dots]]))
            for calls, dots in columns
        ]
        run = _run_passes if self._program.flags[1] else _run_once
        size = _choose_block(self._pieces, [len(first) for first, _ in found], len(codes))
        for begin in range(0, len(codes), size):
            patterns, given = np.zeros((min(size, len(codes) - begin), len(columns)), np.int64), []
            for number, (piece, (calls, dots)) in enumerate(
                zip(self._pieces, columns, strict=True)
            ):
                first, pattern = found[number]
                used, patterns[:, number] = np.unique(
                    pattern[begin : begin + size], return_inverse=True
                )
                requests = np.full((len(used), len(piece.ops)), UNSET)
                requests[:, piece.calls] = asked[first[used]][:, calls]
                feeding = np.tile(self._feeding[piece.ops], (len(used), 1))
                feeding[:, piece.dots] = feeds[first[used]][:, dots]
                given.append((requests, feeding))
            yield run(self._pieces, given, patterns, self._free)

    def _find_columns(self, piece: Piece) -> Pair:
        """Return the positions of a piece's custom calls in _calls, and of its dots in _dots."""
        calls = np.searchsorted(self._calls, piece.ops[piece.calls])
        return calls, np.searchsorted(self._dots, piece.ops[piece.dots])


def _choose_block(pieces: Sequence[Piece], patterns: Sequence[int], configs: int) -> int:
    """Return the number of configurations in a block. `patterns`: for each piece, the number of its
    patterns in all configurations."""
    points = np.array([len(piece.ops) + len(piece.uses) for piece in pieces])
    size = max(1, configs)
    while size > 1 and points @ np.minimum(patterns, size) * POINT_BYTES > MOST_BYTES:
        size = -(-size // 2)
    return size


class _Entries:
    """The layouts assigned to one piece so far: one or, on a TPU, several entries per pattern."""

    def __init__(self, piece: Piece) -> None:
        self.piece, self.number = piece, 0
        self.found: list[tuple[np.ndarray, ...]] = []

    def add(self, arrays: tuple[np.ndarray, ...]) -> int:
        """Add an entry for each row of `arrays` (see _make_arrays), but keep only the columns of
        the piece's own instructions and uses; return the number of the first new entry."""
        buffers, uses, made, marks = arrays
        ops, read, count = self.piece.own_ops, self.piece.own_uses, uses.shape[1]
        self.found.append(
            (buffers[:, ops], marks[:, count + ops], uses[:, read], made[:, read], marks[:, read])
        )
        self.number += len(buffers)
        return self.number - len(buffers)

    def finish(
        self,
        passed: "_Passed",
        requests: np.ndarray,
        free: np.ndarray,
        state: State,
        decision: int,
        configs: np.ndarray,
    ) -> np.ndarray:
        """Add entries for the `configs` (positions in a group) that have run their last pass;
        return the number of each configuration's entry."""
        rows, position = np.unique(passed.local[configs], return_inverse=True)
        arrays = _make_arrays(self.piece.program, len(rows))
        layouts = [array[rows] for array in (*passed.assigned, *passed.kept[decision])]
        given = requests[passed.patterns[rows]]
        _finish_all(self.piece.program, given, free[self.piece.ops], state, *layouts, *arrays)
        return self.add(arrays) + position.reshape(-1)


def _store(entries: Sequence[_Entries]) -> Stored:
    pieces, number = [one.piece for one in entries], np.array([one.number for one in entries])
    ops = np.array([len(piece.own_ops) for piece in pieces])
    uses = np.array([len(piece.own_uses) for piece in pieces])
    layouts = (
        np.concatenate([part[k].ravel() for one in entries for part in one.found]) for k in range(5)
    )
    return Stored(
        np.concatenate([piece.ops[piece.own_ops] for piece in pieces]),
        np.concatenate([piece.uses[piece.own_uses] for piece in pieces]),
        starts_of(ops), starts_of(uses), starts_of(number * ops)[:-1],
        starts_of(number * uses)[:-1], *layouts,
    )  # fmt: skip


def _make_arrays(program: Instructions, rows: int) -> tuple[np.ndarray, ...]:
    """Return empty arrays with a row per pattern: layouts of results, layouts in which uses read,
    layouts of the tensors that uses read, and kinds of copies of uses and instructions."""
    count, uses = program.number, len(program.read)
    return (
        np.empty((rows, count), np.int64), np.empty((rows, uses), np.int64),
        np.empty((rows, uses), np.int64), np.empty((rows, uses + count), np.int8),
    )  # fmt: skip


def _make_state(program: Instructions) -> State:
    """Return working memory for assigning layouts."""
    count, uses = program.number, len(program.read)
    capacity = WORKLIST * (count + uses) + 64
    return State(
        np.empty(count, np.int64), np.empty(uses, np.int64), np.empty(uses, np.int64),
        np.empty(count + uses, np.int8), np.empty((2, capacity), np.int64),
        np.empty(capacity, np.int64), np.empty(5, np.int64),
        np.empty(count, np.int64), np.empty(uses, np.int64), np.zeros(count, np.bool_),
    )  # fmt: skip


def _run_once(
    pieces: Sequence[Piece], given: Sequence[Pair], patterns: np.ndarray, free: np.ndarray
) -> tuple[Stored, np.ndarray]:
    """Assign layouts as a CPU's compiler does; return the results of Assigner.assign."""
    entries = [_Entries(piece) for piece in pieces]
    for one, (requests, _) in zip(entries, given, strict=True):
        program = one.piece.program
        arrays = _make_arrays(program, len(requests))
        _assign_plain(program, requests, free[one.piece.ops], _make_state(program), *arrays)
        one.add(arrays)
    return _store(entries), patterns


def _run_passes(
    pieces: Sequence[Piece], given: Sequence[Pair], patterns: np.ndarray, free: np.ndarray
) -> tuple[Stored, np.ndarray]:
    """Assign layouts as a TPU's compiler does. The configurations of a group have kept the same
    kind of layouts (of reshapes, of reductions or of clusters) after each pass."""
    entries = [_Entries(piece) for piece in pieces]
    states = [_make_state(piece.program) for piece in pieces]
    numbers = np.zeros_like(patterns)
    # For each group: its configurations, for each piece the layouts kept in every pattern, and
    # whether the compiler has looked at clusters, which it does once.
    groups = [(np.arange(len(patterns)), [_keep_nothing(requests, piece)
              for piece, (requests, _) in zip(pieces, given, strict=True)], False)]  # fmt: skip
    for turn in range(MOST_PASSES):
        following = []
        for configs, kept, has_moved in groups:
            passed = [
                _pass(
                    piece.program,
                    one,
                    patterns[configs, number],
                    kept[number],
                    states[number],
                    turn,
                    looks=not has_moved,
                )
                for number, (piece, one) in enumerate(zip(pieces, given, strict=True))
            ]
            new = np.any([one.keeps[one.local] for one in passed], axis=0)
            decided = np.where(new.any(axis=1), np.argmax(new, axis=1) + OF_RESHAPES, NOTHING)
            for decision in np.unique(decided):
                here = np.flatnonzero(decided == decision)
                if decision != NOTHING and turn < MOST_PASSES - 1:
                    kept_now = [one.keep(decision, here) for one in passed]
                    moved = has_moved or decision == OF_CLUSTERS
                    following.append((configs[here], kept_now, moved))
                    continue
                for number, one in enumerate(entries):
                    parts = passed[number], given[number][0], free, states[number]
                    numbers[configs[here], number] = one.finish(*parts, decision, here)
        groups = following
    return _store(entries), numbers


def _keep_nothing(requests: np.ndarray, piece: Piece) -> Pair:
    shape = len(requests), len(piece.uses)
    return np.full(requests.shape, UNSET), np.full(shape, UNSET)


@dataclass
class _Passed:
    """The layouts of a piece after a pass: a row for each pattern that occurs in a group."""

    patterns: np.ndarray  # (rows,) the number of each row's pattern
    local: np.ndarray  # (configs of the group,) the row of each configuration
    assigned: Pair  # layouts of results (rows, instructions) and of uses (rows, uses)
    # the layouts to keep for results and uses after each decision (NOTHING ... OF_CLUSTERS)
    kept: list[Pair]
    # (rows, 3) bool: True if the pass adds layouts of reshapes, of reductions, of clusters
    keeps: np.ndarray
    total: int  # number of patterns of the piece

    def keep(self, decision: int, configs: np.ndarray) -> Pair:
        """Return the layouts (patterns, ...) to keep for these configurations after `decision`."""
        rows = np.unique(self.local[configs])
        buffers, uses = (
            np.full((self.total, array.shape[1]), UNSET) for array in self.kept[decision]
        )
        for whole, array in zip((buffers, uses), self.kept[decision], strict=True):
            whole[self.patterns[rows]] = array[rows]
        return buffers, uses


def _pass(
    program: Instructions,
    given: Pair,
    patterns: np.ndarray,
    kept: Pair,
    state: State,
    turn: int,
    *,
    looks: bool,
) -> _Passed:
    """Run pass number `turn` on a piece, once for each of a group's `patterns` (configs,). `looks`:
    look for clusters that move."""
    used, local = np.unique(patterns, return_inverse=True)
    requests, feeds = given[0][used], given[1][used]
    before = kept[0][used], kept[1][used]
    # the layouts kept after each decision, OF_RESHAPES ... OF_CLUSTERS, begin as before
    kept_buffers, kept_uses = (np.repeat(array[None], OF_CLUSTERS, axis=0) for array in before)
    buffers, uses = np.empty_like(before[0]), np.empty_like(before[1])
    keeps = np.zeros((len(used), OF_CLUSTERS), np.bool_)
    _run_pass(
        program, requests, feeds, state, turn, looks, buffers, uses, kept_buffers, kept_uses, keeps
    )
    after = [before, *zip(kept_buffers, kept_uses, strict=True)]
    return _Passed(used, local, (buffers, uses), after, keeps, len(given[0]))


@njit(cache=True, nogil=True)
def _run_pass(
    program, given, feeds, state, turn, looks, buffers, uses, kept_buffers, kept_uses, keeps
):
    """Run a pass for each row of `given`. Add the layouts to keep for reshapes, reductions and
    clusters to entries 0, 1 and 2 of `kept_buffers` (3, rows, instructions) and `kept_uses`. Where
    reshapes keep some, reductions are not looked at, and so on: the decision is made already."""
    for row in range(len(given)):
        state.kept_buffers[:], state.kept_uses[:] = kept_buffers[0, row], kept_uses[0, row]
        run_pass(program, given[row], feeds[row], state, turn)
        buffers[row], uses[row] = state.buffers, state.uses
        keeps[row, 0] = keep_reshapes(program, state)
        number = 0
        if not keeps[row, 0]:
            keeps[row, 1] = keep_reductions(program, state)
            number = 1
        if looks and number == 1 and not keeps[row, 1]:
            keeps[row, 2] = keep_clusters(program, given[row], state)
            number = 2
        kept_buffers[number, row], kept_uses[number, row] = state.kept_buffers, state.kept_uses


@njit(cache=True, nogil=True)
def _finish_all(
    program, given, free, state, buffers, uses, kept_buffers, kept_uses,
    made_buffers, made_uses, made, marks,
):  # fmt: skip
    for row in range(len(given)):
        state.buffers[:], state.uses[:] = buffers[row], uses[row]
        state.kept_buffers[:], state.kept_uses[:] = kept_buffers[row], kept_uses[row]
        find_squeezed(program, given[row], state.squeezed)
        finish(program, state)
        mark_tiled_copies(program, free, state, marks[row])
        made_buffers[row], made_uses[row] = state.buffers, state.uses
        for use in range(state.uses.size):
            made[row, use] = state.buffers[state.source[use]]


@njit(cache=True, nogil=True)
def _assign_plain(program, given, free, state, buffers, uses, made, marks):
    for row in range(len(given)):
        assign(program, given[row], state)
        mark_copies(program, free, state, marks[row])
        buffers[row], uses[row] = state.buffers, state.uses
        for use in range(state.uses.size):
            made[row, use] = state.buffers[state.source[use]]


@njit(cache=True, nogil=True)
def _list_requests(program, packed, starts, codes, calls, dots, asked, feeds):
    """Write into `asked` (configs, calls) the layout that each custom call requests, and into
    `feeds` (configs, dots) 1 for each of `dots` that only another dot reads, else 0."""
    count = program.kind.size
    given, known = np.full(count, UNSET), np.empty(count, np.int64)
    for row in range(len(codes)):
        for op in range(count):
            position = program.asked[op, 0]
            if position >= 0:
                given[op] = packed[starts[position] + codes[row, position], program.asked[op, 1]]
        if program.flags[1]:
            propagate_requests(program, given, known)
        for k in range(calls.size):
            asked[row, k] = given[calls[k]]
        for k in range(dots.size):
            feeds[row, k] = feeds_dot(program, given, dots[k])


@njit(cache=True, nogil=True)
def _find_feeding(program):
    """Return two masks (instructions,): True for dots that only another dot reads if no layouts are
    requested, and True for the dots among them for which a requested layout may change this."""
    count = program.kind.size
    given = np.full(count, UNSET)
    feeding, varies = np.zeros(count, np.bool_), np.zeros(count, np.bool_)
    for dot in range(count):
        feeding[dot] = feeds_dot(program, given, dot)
        op = dot
        while feeding[dot] and program.only_reader[op] != NONE:
            varies[dot] |= program.behind[op] != NONE
            op = program.only_reader[op]
            if program.opcodes[op] == DOT:
                break
    return feeding, varies


def _find_distinct(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the index of the first occurrence of each distinct row, and for each row the number of
    the distinct row that it equals."""
    if rows.shape[1] == 0:
        return np.zeros(1, np.int64), np.zeros(len(rows), np.int64)
    _, first, number = np.unique(rows, axis=0, return_index=True, return_inverse=True)
    return first, number.reshape(-1)
