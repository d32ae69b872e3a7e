"""Layout assignment the slow and obvious way: objects, tuples, a deque, as XLA has it.

Layouts are tuples of dimensions, minor to major. What an instruction is comes from
solution.features.propagation.instructions; what is done with it is written here anew.
"""

import math
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import permutations

import numpy as np

from solution.features.propagation import instructions as kinds
from solution.features.propagation.backend import Backend
from solution.features.propagation.canonical import UNSET
from solution.features.propagation.instructions import Instructions

Layout = tuple[int, ...]


@dataclass(eq=False)
class Buffer:
    """What an instruction makes."""

    number: int
    layout: Layout | None = None
    mandatory: bool = False
    urgent: bool = False


@dataclass(eq=False)
class Use:
    """What an instruction reads."""

    reader: int
    base: int  # the instance, whatever custom call stands in between
    source: Buffer
    layout: Layout | None = None
    urgent: bool = False


@dataclass
class Slow:
    """One configuration: what each custom call asks for, None where it asks for nothing."""

    program: Instructions
    backend: Backend
    given: list[Layout | None]
    waiting: deque[Buffer | Use] = field(default_factory=deque)
    added: list[Buffer | Use] = field(default_factory=list)

    def run(self) -> None:
        """Assign all layouts."""
        program = self.program
        self.buffers = [Buffer(number) for number in range(program.number)]
        self.uses: list[list[Use]] = [[] for _ in range(program.number)]
        for slot, (reader, base) in enumerate(zip(program.reader, program.read, strict=True)):
            use = Use(int(reader), int(base), self.buffers[self.find_source(slot)])
            self.uses[reader].append(use)
        self.request()
        self.propagate_all()
        for op in program.order:
            if self.takes_part(op) and program.rank[op] > 1 and not self.buffers[op].layout:
                self.set_buffer(self.buffers[op], row_major(program.rank[op]), False, True)
                self.propagate_all()

    def find_source(self, slot: int) -> int:
        """The custom calls that ask for something stand between a tensor and its readers."""
        program = self.program
        base, reader = int(program.read[slot]), int(program.reader[slot])
        behind, before = int(program.behind[base]), int(program.before[slot])
        if before != kinds.NONE and self.given[before]:
            return before
        if behind not in (kinds.NONE, reader) and self.given[behind]:
            return behind
        return base

    def takes_part(self, op: int) -> bool:
        is_call = self.program.kind[op] == kinds.ASKS
        return not is_call or self.given[op] is not None

    def request(self) -> None:
        """All constraints that do not follow from others, in XLA's order."""
        program = self.program
        for op in range(program.number - 1):
            if program.fixed[op] != UNSET and not self.uses[op]:
                self.set_buffer(self.buffers[op], self.fixed(op), True, True)
        for use in self.uses[-1]:
            self.set_use(use, row_major(program.rank[use.base]), True, True)
        for op in program.order:
            if self.takes_part(op) and op < program.number - 1:
                if program.fixed[op] != UNSET:
                    self.set_buffer(self.buffers[op], self.write(op), True, True)
                for use in self.uses[op]:
                    is_turned = program.kind[op] == kinds.TRANSPOSES and self.is_turned(use.base)
                    rows = row_major(program.rank[use.base])
                    self.set_use(use, self.write(use.base) if is_turned else rows, True, True)
        for op in program.order:
            if program.kind[op] == kinds.ASKS and self.given[op]:
                self.set_buffer(self.buffers[op], self.given[op], True, True)
                self.set_use(self.uses[op][0], self.given[op], True, True)

    def is_turned(self, op: int) -> bool:
        """Whether a dot is multiplied the other way round, so that nothing is left to transpose."""
        behind = self.program.behind[op]
        is_free = behind == kinds.NONE or not self.given[behind]
        return self.program.turned[op] != UNSET and is_free

    def write(self, op: int) -> Layout:
        """The layout that a product writes."""
        layout = self.fixed(op)
        return (*layout[1::-1], *layout[2:]) if self.is_turned(op) else layout

    def fixed(self, op: int) -> Layout:
        return unpack(int(self.program.fixed[op]), int(self.program.rank[op]))

    def set_buffer(self, buffer: Buffer, layout: Layout, mandatory: bool, urgent: bool) -> None:
        if len(layout) < 2:
            return
        if buffer.layout == layout:
            if buffer.mandatory >= mandatory and buffer.urgent >= urgent:
                return
            buffer.mandatory |= mandatory
            buffer.urgent |= urgent
        elif buffer.layout and not mandatory:
            return
        else:
            buffer.layout, buffer.mandatory, buffer.urgent = layout, mandatory, urgent
        self.added.append(buffer)

    def set_use(self, use: Use, layout: Layout, mandatory: bool, urgent: bool) -> None:
        if len(layout) < 2 or use.layout == layout or (use.layout and not mandatory):
            return
        use.layout, use.urgent = layout, urgent
        self.added.append(use)

    def propagate_all(self) -> None:
        self.enqueue()
        while self.waiting:
            constraint = self.waiting.popleft()
            if isinstance(constraint, Buffer):
                self.propagate_buffer(constraint)
            else:
                self.propagate_use(constraint)
            self.enqueue()

    def enqueue(self) -> None:
        for constraint in self.added:
            if constraint.urgent:
                self.waiting.appendleft(constraint)
            else:
                self.waiting.append(constraint)
        self.added.clear()

    def propagate_use(self, use: Use) -> None:
        op, layout = use.reader, use.layout
        assert layout
        kind, buffer = self.find_kind(op), self.buffers[op]
        if self.passes_up(use):
            self.set_buffer(use.source, layout, False, True)
        if kind in (kinds.KEEPS, kinds.ASKS, kinds.REDUCES, kinds.CONCATENATES):
            if kind == kinds.CONCATENATES and not self.is_largest(use):
                return
            for other in self.uses[op]:
                if other.source is not use.source and self.rank(other.base) == len(layout):
                    self.set_use(other, layout, True, True)
            if self.rank(op) == len(layout):
                self.set_buffer(buffer, layout, True, True)
        elif kind == kinds.RESHAPES:
            made = self.reshape(use.base, layout, op)
            if made:
                self.set_buffer(buffer, made, False, self.only_ones_differ(use.base, op))
        elif kind == kinds.TRANSPOSES:
            order = self.program.dimensions[op].tolist()
            made = tuple(order.index(dimension) for dimension in layout)
            self.set_buffer(buffer, made, True, True)

    def propagate_buffer(self, buffer: Buffer) -> None:
        op, layout = buffer.number, buffer.layout
        assert layout
        kind = self.find_kind(op)
        for use in self.uses[op]:
            rank = self.rank(use.base)
            if rank < 2:
                continue
            if kind in (kinds.KEEPS, kinds.ASKS, kinds.CONCATENATES) and rank == len(layout):
                self.set_use(use, layout, True, True)
            elif kind == kinds.BROADCASTS:
                kept = self.program.dimensions[op, :rank].tolist()
                self.set_use(use, tuple(kept.index(k) for k in layout if k in kept), True, False)
            elif kind == kinds.RESHAPES:
                read = self.reshape(op, layout, use.base)
                if read:
                    self.set_use(use, read, False, self.only_ones_differ(use.base, op))
            elif kind == kinds.TRANSPOSES:
                order = self.program.dimensions[op].tolist()
                self.set_use(use, tuple(order[k] for k in layout), False, True)
        for use in self.all_uses():
            is_read = use.source is buffer and self.program.kind[use.reader] != kinds.GIVES
            if is_read and not self.backend.row_major and self.passes_down(use):
                self.set_use(use, layout, False, True)

    def find_kind(self, op: int) -> int:
        return int(self.program.kind[op])

    def passes_up(self, use: Use) -> bool:
        """Whether what is read takes the layout in which it is read."""
        return True

    def passes_down(self, use: Use) -> bool:
        """Whether the reader takes the layout of what it reads."""
        return True

    def all_uses(self) -> Iterator[Use]:
        return (use for row in self.uses for use in row)

    def rank(self, op: int) -> int:
        return int(self.program.rank[op])

    def shape(self, op: int) -> tuple[int, ...]:
        return tuple(self.program.sizes[op, : self.rank(op)].tolist())

    def is_largest(self, use: Use) -> bool:
        along = int(self.program.dimensions[use.reader, 0])
        sizes = self.program.sizes
        return along < 0 or all(
            sizes[other.base, along] <= sizes[use.base, along] for other in self.uses[use.reader]
        )

    def only_ones_differ(self, one: int, other: int) -> bool:
        shapes = [tuple(size for size in self.shape(op) if size > 1) for op in (one, other)]
        return shapes[0] == shapes[1]

    def reshape(self, known: int, layout: Layout, other: int) -> Layout | None:
        true_ranks = [sum(size > 1 for size in self.shape(op)) for op in (known, other)]
        if true_ranks == [1, 1]:
            return None
        return align(self.shape(known), layout, self.shape(other))


def row_major(rank: int) -> Layout:
    return tuple(range(int(rank)))[::-1]


def unpack(number: int, rank: int) -> Layout:
    return tuple(number >> 3 * slot & 7 for slot in range(rank))


def addresses(shape: tuple[int, ...], layout: Layout) -> np.ndarray:
    """Where in memory each element lies, in the order of its indices."""
    found = np.empty(shape, np.int64)
    major_first = layout[::-1]
    np.transpose(found, major_first)[...] = np.arange(found.size).reshape(
        [shape[axis] for axis in major_first]
    )
    return found.reshape(-1)


def align(shape: tuple[int, ...], layout: Layout, new: tuple[int, ...]) -> Layout | None:
    """The layout in which a reshape to `new` moves nothing: tried one after the other.

    Dimensions of size 1 stand outermost, the last one innermost of them.
    """
    wanted = addresses(shape, layout)
    ones = tuple(axis for axis in reversed(range(len(new))) if new[axis] == 1)
    for order in permutations([axis for axis in range(len(new)) if new[axis] != 1]):
        if np.array_equal(addresses(new, order + ones), wanted):
            return order + ones
    return None


LEAST_ROWS = {1: 8, 2: 4, 4: 2, 8: 2}  # by the bytes of an element


def pad_slowly(shape: tuple[int, ...], layout: Layout, width: int) -> int:
    """Bytes on a TPU: enlarge the minor dimensions by one until whole register tiles hold them."""
    sizes = [shape[axis] for axis in layout]
    if len(sizes) == 1:
        lanes = LEAST_ROWS[width] * 128
        while lanes < min(sizes[0], 1024):
            lanes *= 2
    else:
        lanes, rows = 128, LEAST_ROWS[width]
        while sizes and rows < min(sizes[1], 8):
            rows *= 2
        while sizes and sizes[1] % rows:
            sizes[1] += 1
    while sizes and sizes[0] % lanes:
        sizes[0] += 1
    return math.prod(sizes) * width
