"""Layout assignment for a TPU, the slow and obvious way: tiles by the addresses of elements."""

import math
from dataclasses import dataclass, field

import numpy as np

from solution.domain.vocabulary import OPCODE_IDS
from solution.features.operations import NONE
from solution.features.propagation import instructions as kinds
from solution.features.propagation.canonical import UNSET
from tests.features.propagation.slow import Layout, Use, addresses, align, row_major, unpack
from tests.features.propagation.slow_clusters import SlowClusters
from tests.features.propagation.slow_squeezing import BROADCAST, SlowSqueezing
from tests.features.propagation.slow_tiles import lie_alike

PASSES, LAST_GROUPED = 5, 2
DOT, CONVOLUTION = OPCODE_IDS["dot"], OPCODE_IDS["convolution"]


@dataclass
class SlowTiled(SlowSqueezing):
    """One configuration. `kept` has, by instruction, the layouts of its operand and result;
    `moved`, by the first instruction of each cluster that moves, the cluster's layout."""

    kept: dict[int, tuple[Layout, Layout]] = field(default_factory=dict)
    moved: dict[int, Layout] = field(default_factory=dict)
    turn: int = 0

    def run(self) -> None:
        """Assign all layouts, in up to five passes."""
        self.propagate_requests()
        for self.turn in range(PASSES):
            super().run()
            found = self.find_reshapes() or self.find_reductions()
            self.kept |= found
            if not found:
                moved = {} if self.moved else SlowClusters(self).find()
                if not moved or self.turn == PASSES - 1:
                    break
                self.moved = moved
        self.collapse_copies()
        self.merge_copies()
        self.fuse_copies()

    def propagate_requests(self) -> None:
        """Layouts that the first operand of the same rank passes on."""
        program = self.program
        known: dict[int, Layout] = {}
        for op in range(program.number):
            call, reads = int(program.behind[op]), self.read(op)
            if call != NONE and program.asked[call, 0] >= 0:
                layout = self.given[call]
            elif program.forwards[op] and self.rank(op) > 1:
                layouts = [known[one] for one in reads if one in known]
                layout = next((one for one in layouts if len(one) == self.rank(op)), None)
                if layout and program.kind[op] == kinds.TRANSPOSES:
                    order = program.dimensions[op].tolist()
                    layout = tuple(order.index(axis) for axis in layout)
                if call != NONE:
                    self.given[call] = layout
            else:
                continue
            if layout:
                known[op] = layout

    def read(self, op: int) -> list[int]:
        starts = self.program.use_starts
        return self.program.read[starts[op] : starts[op + 1]].tolist()

    def request(self) -> None:
        """All constraints that do not follow from others, in the compiler's order."""
        super().request()
        program, order = self.program, self.program.order.tolist()
        for op in order:
            if program.fixed[op] != UNSET and not self.uses[op]:
                self.set_buffer(self.buffers[op], self.fixed(op), True, True)
        for use in self.uses[-1]:
            layout = unpack(int(program.device[use.base]), self.rank(use.base))
            self.set_use(use, layout, True, True)
        for kind in (kinds.RESHAPES, kinds.REDUCES):
            for op in order[::-1]:
                if op in self.kept and program.kind[op] == kind:
                    self.request_kept(op)
        for op in order[::-1]:
            is_grouped = self.turn < LAST_GROUPED and self.feeds_dot(op)
            if self.is_product(op) and program.fixed[op] != UNSET and not is_grouped:
                self.request_product(op)
        self.request_moved(order[::-1])
        for op in order:
            layout = self.given[op]
            if program.kind[op] == kinds.ASKS and layout:
                self.set_buffer(self.buffers[op], layout, True, True)
                self.set_use(self.uses[op][0], layout, True, True)

    def request_moved(self, order: list[int]) -> None:
        """Clusters that begin at element-wise instructions come first, then those that begin at
        broadcasts, then those that begin at constants."""
        for kind in (kinds.KEEPS, kinds.BROADCASTS, kinds.CHANGES):
            for op in order:
                if op in self.moved and self.program.kind[op] == kind:
                    self.set_buffer(self.buffers[op], self.moved[op], True, True)

    def request_kept(self, op: int) -> None:
        read, made = self.kept[op]
        use = self.main_use(op)
        assert use
        is_reshape = self.program.kind[op] == kinds.RESHAPES
        is_trivial = is_reshape and self.only_ones_differ(use.base, op)
        self.set_use(use, read, True, is_trivial)
        self.set_buffer(self.buffers[op], made, True, True)

    def request_product(self, op: int) -> None:
        self.set_buffer(self.buffers[op], self.fixed(op), True, True)
        for slot, use in enumerate(self.uses[op], start=int(self.program.use_starts[op])):
            if self.program.wanted[slot] != UNSET:
                layout = unpack(int(self.program.wanted[slot]), self.rank(use.base))
                self.set_use(use, layout, True, False)

    def is_product(self, op: int) -> bool:
        is_call = self.program.kind[op] == kinds.ASKS
        return not is_call and self.program.opcodes[op] in (DOT, CONVOLUTION)

    def feeds_dot(self, op: int) -> bool:
        program = self.program
        if program.opcodes[op] != DOT:
            return False
        while program.only_reader[op] != NONE:
            call = int(program.behind[op])
            if call != NONE and self.given[call]:
                return False
            op = int(program.only_reader[op])
            if program.opcodes[op] == DOT:
                return True
        return False

    def read_layout(self, use: Use) -> Layout:
        layout = use.layout or use.source.layout
        assert layout
        return layout

    def find_reshapes(self) -> dict[int, tuple[Layout, Layout]]:
        """Reshapes that move data, which are new, and the layouts that they will request."""
        program = self.program
        found = {}
        for op in np.flatnonzero(program.kind == kinds.RESHAPES).tolist():
            wanted = program.wanted[program.use_starts[op]]
            if wanted == UNSET or op in self.kept or op in self.squeezed:
                continue
            use, made = self.uses[op][0], self.buffers[op].layout
            assert made
            shape, read = self.shape(use.base), self.read_layout(use)
            if not lie_alike(shape, read, self.shape(op), made):
                found[op] = unpack(int(wanted), self.rank(use.base)), self.fixed(op)
        return found

    def find_reductions(self) -> dict[int, tuple[Layout, Layout]]:
        """Reductions that reorder the dimensions they keep, which are new, and their layouts."""
        program = self.program
        found = {}
        for op in np.flatnonzero(program.kind == kinds.REDUCES).tolist():
            use = self.main_use(op)
            if not use or self.rank(op) < 2 or op in self.kept or op in self.squeezed:
                continue
            read = self.read_layout(use)
            kept = [k for k in range(len(read)) if k not in program.dimensions[op].tolist()]
            wanted = tuple(kept.index(axis) for axis in read if axis in kept)
            made, shape = self.buffers[op].layout, self.shape(op)
            assert made
            if (addresses(shape, wanted) != addresses(shape, made)).any():
                found[op] = read, wanted
        return found

    def is_trivial(self, op: int) -> bool:
        """Whether a reshape only adds or drops dimensions of size 1, which are still there, or a
        broadcast does nothing."""
        if len(self.uses[op]) != 1 or op in self.squeezed:
            return False
        if self.program.kind[op] == kinds.KEEPS:
            return self.is_named(op, BROADCAST)
        is_reshape = self.program.kind[op] == kinds.RESHAPES
        return is_reshape and self.only_ones_differ(self.uses[op][0].base, op)

    def collapse_copies(self) -> None:
        """The last of several trivial reshapes makes the only copy, trivial broadcasts none."""
        for op in filter(self.is_trivial, self.program.order.tolist()):
            (use,), readers = self.uses[op], self.readers(op)
            layout = self.buffers[use.base].layout or row_major(self.rank(use.base))
            use.layout = self.buffers[use.base].layout
            if self.program.kind[op] == kinds.KEEPS:
                self.buffers[op].layout = use.layout
            if self.rank(op) < 2 or self.program.kind[op] == kinds.KEEPS:
                continue
            wanted = self.find_read(op)
            if len(readers) == 1 and self.is_trivial(readers[0].reader):
                wanted = align(self.shape(use.base), layout, self.shape(op))
            self.buffers[op].layout = wanted or self.buffers[op].layout

    def merge_copies(self) -> None:
        """Copies before and behind a reshape or transpose become one before it, if it moves no
        data. The second may stand behind a transpose that alone reads the result."""
        kind = self.program.kind
        for op in self.program.order.tolist()[::-1]:
            is_reshape, buffer = kind[op] == kinds.RESHAPES, self.buffers[op]
            if not is_reshape and kind[op] != kinds.TRANSPOSES:
                continue
            if len(self.uses[op]) != 1 or self.rank(op) < 2 or op in self.kept:
                continue
            if self.is_trivial(op):
                continue
            (use,), readers = self.uses[op], {reader.reader for reader in self.readers(op)}
            if not use.layout or use.layout == self.buffers[use.base].layout:
                continue
            wanted, behind = self.find_read(op), None
            if wanted in (None, buffer.layout) and len(readers) == 1:
                (reader,) = readers
                if kind[reader] == kinds.TRANSPOSES and self.find_read(reader):
                    behind, wanted = reader, self.turn_back(reader, self.find_read(reader))
            if not wanted or wanted == buffer.layout:
                continue
            if is_reshape:
                moved = align(self.shape(op), wanted, self.shape(use.base))
            else:
                moved = self.turn_back(op, wanted)
            if not moved:
                continue
            if is_reshape and not lie_alike(self.shape(use.base), moved, self.shape(op), wanted):
                continue
            if behind is not None:
                self.buffers[behind].layout = self.find_read(behind)
                self.uses[behind][0].layout = wanted
            use.layout, buffer.layout = moved, wanted

    def turn_back(self, op: int, layout: Layout | None) -> Layout:
        """The layout of a transpose's operand that makes its result have `layout`."""
        assert layout
        order = self.program.dimensions[op].tolist()
        return tuple(order[axis] for axis in layout)

    def find_read(self, op: int) -> Layout | None:
        """The layout in which all readers read a result, if there is one."""
        layouts = {use.layout for use in self.readers(op)}
        return next(iter(layouts)) if len(layouts) == 1 else None

    def fuse_copies(self) -> None:
        """Products, and reshapes that move data, write what all their readers want.

        Then the custom calls disappear: readers read the instruction itself.
        """
        for op, buffer in enumerate(self.buffers):
            is_moving = self.program.kind[op] == kinds.RESHAPES and op in self.kept
            if is_moving or self.is_product(op):
                uses = self.readers(op)
                layouts = {use.layout for use in uses}
                ends = any(self.program.kind[use.reader] == kinds.GIVES for use in uses)
                if len(layouts) == 1 and layouts != {buffer.layout}:
                    can_write = not ends if is_moving else all(map(self.can_write, uses))
                    (layout,) = layouts
                    buffer.layout = layout if can_write else buffer.layout
        for use in self.all_uses():
            use.source = self.buffers[use.base]

    def can_write(self, use: Use) -> bool:
        """Whether the product that `use` reads can write the layout in which it is read."""
        kind, rank = self.program.kind[use.reader], self.rank(use.base)
        if self.program.opcodes[use.base] == CONVOLUTION:
            is_blocked = kind == kinds.REDUCES
        else:
            is_blocked = kind == kinds.RESHAPES and rank > 2
        shape, made = self.shape(use.base), self.buffers[use.base].layout
        assert made and use.layout
        written = self.buffers[use.reader].layout
        if is_blocked and written:  # a reshape that moves no data
            is_blocked = not lie_alike(shape, use.layout, self.shape(use.reader), written)
        ones = [tuple(axis for axis in one if shape[axis] > 1) for one in (made, use.layout)]
        is_swap = ones[0][:2] == ones[1][1::-1] and ones[0][2:] == ones[1][2:]
        return is_swap and len(ones[0]) > 1 and not is_blocked

    def find_copies(self, free: np.ndarray) -> list[bool]:
        """Tell which uses, then which instructions, copy a tensor."""
        uses = list(self.all_uses())
        seen: set[tuple[int, Layout | None]] = set()
        marks = []
        for use in uses:
            copies = not free[use.base] and self.moves_before(use)
            marks.append(copies and (use.base, use.layout) not in seen)
            if copies:
                seen.add((use.base, use.layout))
        return marks + [self.moves(op) for op in range(self.program.number)]

    def moves_before(self, use: Use) -> bool:
        """Whether a copy stands before a use."""
        made, kind, shape = use.source.layout, self.program.kind[use.reader], self.shape(use.base)
        if not made or not use.layout or kind == kinds.ASKS:
            return False
        if kind == kinds.BROADCASTS:
            return bool((addresses(shape, made) != addresses(shape, use.layout)).any())
        swapped = (use.layout[1], use.layout[0], *use.layout[2:])
        allowed = [use.layout, swapped] if self.is_product(use.reader) else [use.layout]
        return not any(lie_alike(shape, made, shape, layout) for layout in allowed)

    def moves(self, op: int) -> bool:
        """Whether a reshape or a transpose puts an element elsewhere."""
        kind, made = self.program.kind[op], self.buffers[op].layout
        if len(self.uses[op]) != 1 or self.rank(op) < 2 or not made or op in self.squeezed:
            return False
        (use,) = self.uses[op]
        shape, read = self.shape(use.base), use.layout or use.source.layout
        if kind == kinds.TRANSPOSES and read:
            order = self.program.dimensions[op].tolist()
            turned = tuple(order.index(axis) for axis in read)
            return not lie_alike(self.shape(op), turned, self.shape(op), made)
        if kind != kinds.RESHAPES and not self.is_trivial(op):
            return False
        if len(shape) < 2:  # a vector lies along the lanes
            return self.shape(op)[made[0]] != math.prod(shape)
        return read is not None and not lie_alike(shape, read, self.shape(op), made)
