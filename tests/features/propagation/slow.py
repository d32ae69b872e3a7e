"""Layout assignment the slow and obvious way: objects, tuples, a deque, as XLA has it.

Layouts are tuples of dimensions, minor to major. What an instruction is comes from
solution.features.propagation.instructions; what is done with it is written here anew.
"""

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
        self.buffers = [Buffer(number) for number in range(program.count)]
        self.uses: list[list[Use]] = [[] for _ in range(program.count)]
        for place, (reader, base) in enumerate(zip(program.reader, program.read, strict=True)):
            use = Use(int(reader), int(base), self.buffers[self.find_source(place)])
            self.uses[reader].append(use)
        self.ask()
        self.hand_on_all()
        for own in program.order:
            if self.is_there(own) and program.rank[own] > 1 and not self.buffers[own].layout:
                self.set_buffer(self.buffers[own], row_major(program.rank[own]), False, True)
                self.hand_on_all()

    def find_source(self, place: int) -> int:
        """The custom calls that ask for something stand between a tensor and its readers."""
        program = self.program
        base, reader = int(program.read[place]), int(program.reader[place])
        if not self.backend.by_custom_calls:
            return base
        behind, before = int(program.behind[base]), int(program.before[place])
        if before != kinds.NONE and self.given[before]:
            return before
        if behind not in (kinds.NONE, reader) and self.given[behind]:
            return behind
        return base

    def is_there(self, own: int) -> bool:
        is_call = self.program.kind[own] == kinds.ASKS
        return not is_call or (self.backend.by_custom_calls and self.given[own] is not None)

    def ask(self) -> None:
        """All constraints that do not follow from others, in XLA's order."""
        program = self.program
        for own in range(program.count - 1):
            if program.fixed[own] != UNSET and not self.uses[own]:
                self.set_buffer(self.buffers[own], self.fixed(own), True, True)
        for use in self.uses[-1]:
            self.set_use(use, row_major(program.rank[use.base]), True, True)
        for own in program.order:
            if self.backend.row_major_operands and self.is_there(own) and own < program.count - 1:
                if program.fixed[own] != UNSET:
                    self.set_buffer(self.buffers[own], self.write(own), True, True)
                for use in self.uses[own]:
                    is_turned = program.kind[own] == kinds.TRANSPOSES and self.is_turned(use.base)
                    rows = row_major(program.rank[use.base])
                    self.set_use(use, self.write(use.base) if is_turned else rows, True, True)
        for own in program.order:
            self.ask_of_configuration(own)

    def ask_of_configuration(self, own: int) -> None:
        program = self.program
        if self.backend.by_custom_calls:
            if program.kind[own] == kinds.ASKS and self.given[own]:
                self.set_buffer(self.buffers[own], self.given[own], True, True)
                self.set_use(self.uses[own][0], self.given[own], True, True)
            return
        behind = program.behind[own]
        if behind != kinds.NONE and self.given[behind]:
            self.set_buffer(self.buffers[own], self.given[behind], True, True)
        for place, use in enumerate(self.uses[own], start=int(program.use_starts[own])):
            before = program.before[place]
            if before != kinds.NONE and self.given[before]:
                self.set_use(use, self.given[before], True, True)

    def is_turned(self, own: int) -> bool:
        """Whether a dot is multiplied the other way round, so that nothing is left to transpose."""
        behind = self.program.behind[own]
        is_free = behind == kinds.NONE or not self.given[behind]
        return self.program.turned[own] != UNSET and is_free

    def write(self, own: int) -> Layout:
        """The layout that a product writes."""
        layout = self.fixed(own)
        return (*layout[1::-1], *layout[2:]) if self.is_turned(own) else layout

    def fixed(self, own: int) -> Layout:
        return unpack(int(self.program.fixed[own]), int(self.program.rank[own]))

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

    def hand_on_all(self) -> None:
        self.sort_in()
        while self.waiting:
            constraint = self.waiting.popleft()
            if isinstance(constraint, Buffer):
                self.hand_on_buffer(constraint)
            else:
                self.hand_on_use(constraint)
            self.sort_in()

    def sort_in(self) -> None:
        for constraint in self.added:
            if constraint.urgent:
                self.waiting.appendleft(constraint)
            else:
                self.waiting.append(constraint)
        self.added.clear()

    def hand_on_use(self, use: Use) -> None:
        own, layout = use.reader, use.layout
        assert layout
        kind, buffer = self.program.kind[own], self.buffers[own]
        self.set_buffer(use.source, layout, False, True)
        if kind in (kinds.KEEPS, kinds.ASKS, kinds.REDUCES, kinds.CONCATENATES):
            if kind == kinds.CONCATENATES and not self.is_largest(use):
                return
            for other in self.uses[own]:
                if other.source is not use.source and self.rank(other.base) == len(layout):
                    self.set_use(other, layout, True, True)
            if self.rank(own) == len(layout):
                self.set_buffer(buffer, layout, True, True)
        elif kind == kinds.RESHAPES:
            made = self.reshape(use.base, layout, own)
            if made:
                self.set_buffer(buffer, made, False, self.only_ones_differ(use.base, own))
        elif kind == kinds.TRANSPOSES:
            order = self.program.dimensions[own].tolist()
            made = tuple(order.index(dimension) for dimension in layout)
            self.set_buffer(buffer, made, True, True)

    def hand_on_buffer(self, buffer: Buffer) -> None:
        own, layout = buffer.number, buffer.layout
        assert layout
        kind = self.program.kind[own]
        for use in self.uses[own]:
            rank = self.rank(use.base)
            if rank < 2:
                continue
            if kind in (kinds.KEEPS, kinds.ASKS, kinds.CONCATENATES) and rank == len(layout):
                self.set_use(use, layout, True, True)
            elif kind == kinds.BROADCASTS:
                kept = self.program.dimensions[own, :rank].tolist()
                self.set_use(use, tuple(kept.index(k) for k in layout if k in kept), True, False)
            elif kind == kinds.RESHAPES:
                read = self.reshape(own, layout, use.base)
                if read:
                    self.set_use(use, read, False, self.only_ones_differ(use.base, own))
            elif kind == kinds.TRANSPOSES:
                order = self.program.dimensions[own].tolist()
                self.set_use(use, tuple(order[k] for k in layout), False, True)
        for use in self.all_uses():
            is_read = use.source is buffer and self.program.kind[use.reader] != kinds.GIVES
            if is_read and not self.backend.row_major_operands:
                self.set_use(use, layout, False, True)

    def all_uses(self) -> Iterator[Use]:
        return (use for row in self.uses for use in row)

    def rank(self, own: int) -> int:
        return int(self.program.rank[own])

    def shape(self, own: int) -> tuple[int, ...]:
        return tuple(self.program.sizes[own, : self.rank(own)].tolist())

    def is_largest(self, use: Use) -> bool:
        along = int(self.program.dimensions[use.reader, 0])
        sizes = self.program.sizes
        return along < 0 or all(
            sizes[other.base, along] <= sizes[use.base, along] for other in self.uses[use.reader]
        )

    def only_ones_differ(self, one: int, other: int) -> bool:
        shapes = [tuple(size for size in self.shape(own) if size > 1) for own in (one, other)]
        return shapes[0] == shapes[1]

    def reshape(self, known: int, layout: Layout, other: int) -> Layout | None:
        true_ranks = [sum(size > 1 for size in self.shape(own)) for own in (known, other)]
        if true_ranks == [1, 1]:
            return None
        return align(self.shape(known), layout, self.shape(other))


def row_major(rank: int) -> Layout:
    return tuple(range(int(rank)))[::-1]


def unpack(number: int, rank: int) -> Layout:
    return tuple(number >> 3 * place & 7 for place in range(rank))


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
