"""Clusters of element-wise instructions that a TPU's compiler moves, the slow and obvious way."""

import math
from collections.abc import Hashable
from dataclasses import dataclass

from solution.domain.vocabulary import OPCODE_IDS
from solution.features.propagation import instructions as kinds
from solution.features.propagation.calls import IS_ELEMENTWISE
from solution.features.propagation.clusters import COPIED, HEAVY, LAST, PLAIN
from tests.features.propagation.slow import Layout, Use, unpack
from tests.features.propagation.slow_squeezing import BROADCAST, SlowSqueezing

UNMOVED = (OPCODE_IDS["select"], OPCODE_IDS["clamp"])
PRODUCTS = (OPCODE_IDS["dot"], OPCODE_IDS["convolution"])
DIVIDE, SQRT = OPCODE_IDS["divide"], OPCODE_IDS["sqrt"]
REDUCE_WINDOW = OPCODE_IDS["reduce-window"]


@dataclass
class SlowClusters:
    """The clusters of a program after a pass, in one configuration."""

    slow: SlowSqueezing

    def find(self) -> dict[int, Layout]:
        """The clusters that move: the first instruction of each, and the new layout."""
        found: dict[int, Layout] = {}
        seen: set[int] = set()
        for op in self.slow.program.order.tolist():
            layout = self.slow.buffers[op].layout
            is_first = self.is_counted(op) or self.slow.is_filled(op)
            if op in seen or not layout or not is_first:
                continue
            members = self.collect(op, seen)
            seen |= members
            wanted = unpack(int(self.slow.program.device[op]), self.slow.rank(op))
            if op in self.slow.squeezed:
                wanted = self.slow.put_outermost(op, wanted)
            old, new = (pad_to_tiles(self.slow.shape(op), one) for one in (layout, wanted))
            saved = sum(map(self.count, members)) * (old - new)
            if new < old and saved > self.weigh_border(members) * (old + new):
                found[op] = wanted
        return found

    def collect(self, first: int, seen: set[int]) -> set[int]:
        """The cluster that begins at `first`, without members of the clusters before it."""
        members = {first}

        def visit(op: int) -> None:
            links = [use for use in self.uses_of(op) if self.connects(use)]
            for other in {end for use in links for end in (use.base, use.reader)}:
                if other not in members | seen:
                    members.add(other)
                    if not self.slow.is_filled(other):
                        visit(other)

        visit(first)
        return members

    def uses_of(self, op: int) -> list[Use]:
        """What an instruction reads, and its readers."""
        return [*self.slow.uses[op], *(use for use in self.slow.all_uses() if use.base == op)]

    def is_counted(self, op: int) -> bool:
        kind, opcode = self.slow.program.kind[op], self.slow.program.opcodes[op]
        is_elementwise = kind == kinds.KEEPS and bool(IS_ELEMENTWISE[opcode])
        return is_elementwise and opcode not in UNMOVED and self.slow.rank(op) > 1

    def count(self, op: int) -> int:
        """A number over a square root is two instructions: the compiler multiplies by rsqrt."""
        reads = [use.base for use in self.slow.uses[op]]
        is_inverse = self.slow.is_named(op, DIVIDE) and any(map(self.slow.is_filled, reads))
        is_inverse = is_inverse and SQRT in self.slow.program.opcodes[reads]
        return (1 + is_inverse) * self.is_counted(op)

    def is_member(self, op: int) -> bool:
        kind = self.slow.program.kind[op]
        is_same = kind == kinds.KEEPS and self.slow.is_named(op, BROADCAST)
        is_shaping = op in self.slow.squeezed and kind != kinds.KEEPS
        is_any = self.is_counted(op) or self.slow.is_filled(op) or is_shaping
        return self.slow.rank(op) > 1 and (is_any or is_same)

    def connects(self, use: Use) -> bool:
        """Whether what is read and the reader are in one cluster, if they are in any."""
        are_members = self.is_member(use.base) and self.is_member(use.reader)
        is_direct = not self.slow.is_asked(use) and not self.slow.reads_twin(use)
        if not are_members or not is_direct or self.is_copied(use):
            return False
        if {use.base, use.reader} & self.slow.squeezed:
            return self.slow.only_ones_differ(use.base, use.reader)
        return self.slow.shape(use.base) == self.slow.shape(use.reader)

    def is_copied(self, use: Use) -> bool:
        made, read = use.source.layout, use.layout
        return made is not None and read is not None and made != read

    def weigh_border(self, members: set[int]) -> int:
        """What stands at the border counts once, but each copy, and each result of the program."""
        weights: dict[Hashable, int] = {}
        copies = 0
        for use in self.slow.all_uses():
            is_read, reads = self.reads_outside(use, members), self.is_read_outside(use, members)
            if self.is_copied(use):
                copies += is_read + reads
                continue
            if is_read:
                weights["read", use.source.number] = self.weigh(use.source.number)
            if reads:
                weights[self.name_reader(use)] = self.weigh_reader(use)
        return sum(weights.values()) + COPIED * copies

    def reads_outside(self, use: Use, members: set[int]) -> bool:
        """Whether a member reads a tensor that is none."""
        is_member = use.reader in members and not self.slow.is_filled(use.reader)
        is_free = self.connects(use) or self.slow.reads_twin(use)
        return is_member and self.slow.rank(use.base) > 1 and not is_free

    def is_read_outside(self, use: Use, members: set[int]) -> bool:
        """Whether a tensor that is no member reads one; a custom call only if it requests one."""
        is_there = self.slow.takes_part(use.reader) and use.source.number in members
        return is_there and not self.connects(use) and not self.slow.reads_twin(use)

    def name_reader(self, use: Use) -> Hashable:
        """What counts once: of all broadcasts of a tensor, one; of the program's results, each."""
        kind = self.slow.program.kind[use.reader]
        if kind == kinds.BROADCASTS:
            return "broadcasts", self.find_root(use.base)
        return ("result", id(use)) if kind == kinds.GIVES else ("reads", use.reader)

    def find_root(self, op: int) -> int:
        """What a tensor is but for dimensions of size 1."""
        use = self.slow.main_use(op)
        if op not in self.slow.squeezed or self.is_counted(op) or not use or not self.connects(use):
            return op
        return self.find_root(use.base)

    def weigh(self, op: int) -> int:
        kind = self.slow.program.kind[op]
        is_product = any(self.slow.is_named(op, opcode) for opcode in PRODUCTS)
        return HEAVY if is_product or kind == kinds.RESHAPES else PLAIN

    def weigh_reader(self, use: Use) -> int:
        kind = self.slow.program.kind[use.reader]
        if kind == kinds.ASKS:  # a reshape in front of it gives the dimensions of size 1 back
            is_reshaped = use.base in self.slow.squeezed and 1 in self.slow.shape(use.base)
            return HEAVY if is_reshaped else PLAIN
        is_plain = kind in (kinds.REDUCES, kinds.BROADCASTS)
        if is_plain or self.slow.is_named(use.reader, REDUCE_WINDOW):
            return PLAIN
        return HEAVY if self.weigh(use.reader) == HEAVY else LAST


def pad_to_tiles(shape: tuple[int, ...], layout: Layout) -> int:
    """Elements in whole tiles of 8 x 128."""
    lanes, rows, *others = (shape[axis] for axis in layout)
    return math.ceil(lanes / 128) * 128 * math.ceil(rows / 8) * 8 * math.prod(others)
