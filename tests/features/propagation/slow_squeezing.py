"""Tensors without their dimensions of size 1 on a TPU, the slow and obvious way: by recursion."""

from collections.abc import Callable
from dataclasses import dataclass, field

from solution.domain.vocabulary import OPCODE_IDS
from solution.features.operations import NONE
from solution.features.propagation import instructions as kinds
from solution.features.propagation.calls import IS_ELEMENTWISE
from tests.features.propagation.slow import Buffer, Layout, Slow, Use
from tests.features.propagation.slow_tiles import lie_alike

BROADCAST, CONSTANT = OPCODE_IDS["broadcast"], OPCODE_IDS["constant"]


@dataclass
class SlowSqueezing(Slow):
    """One configuration. `squeezed` has the instructions whose results lose dimensions of size 1.

    Their layouts still list these dimensions, but as the outermost ones.
    """

    squeezed: set[int] = field(default_factory=set)

    def request(self) -> None:
        self.squeezed = self.find_squeezed()

    def find_squeezed(self) -> set[int]:
        known: dict[int, bool] = {}

        def is_squeezed(op: int) -> bool:
            if op not in known:
                known[op] = False  # a program in a circle squeezes nothing
                known[op] = self.adds_ones(op, is_squeezed) or self.reads_it(op, is_squeezed)
            return known[op]

        found = {op for op in range(self.program.number) if is_squeezed(op)}
        filled = [op for op in range(self.program.number) if self.is_filled(op)]
        readers = {op: {use.reader for use in self.readers(op)} for op in filled}
        return found | {op for op in filled if readers[op] and readers[op] <= found}

    def adds_ones(self, op: int, is_squeezed: Callable[[int], bool]) -> bool:
        """Whether a reshape, reduction or broadcast only adds or drops dimensions of size 1."""
        kind, use = self.program.kind[op], self.main_use(op)
        is_same = kind == kinds.KEEPS and self.is_named(op, BROADCAST)
        if not use or not (is_same or kind in (kinds.RESHAPES, kinds.REDUCES, kinds.BROADCASTS)):
            return False
        is_of_scalar = self.is_named(op, BROADCAST) and self.rank(use.base) == 0
        if is_of_scalar or not self.only_ones_differ(use.base, op):
            return False
        if self.is_asked(use) or self.is_asked_behind(op):
            return False
        is_vector = self.rank(use.base) < 2  # a vector of one element, too, is like any other
        return is_vector or 1 not in self.shape(use.base) or is_squeezed(use.base)

    def reads_it(self, op: int, is_squeezed: Callable[[int], bool]) -> bool:
        """Whether an element-wise instruction reads what is squeezed, and else only what is of any
        shape."""
        kind, opcode = self.program.kind[op], self.program.opcodes[op]
        if kind != kinds.KEEPS or not IS_ELEMENTWISE[opcode]:
            return False
        found = [use for use in self.uses[op] if not self.is_asked(use) and is_squeezed(use.base)]
        others = [use.base for use in self.uses[op] if use not in found]
        is_any_shape = all(self.rank(base) == 0 or self.is_filled(base) for base in others)
        return bool(found) and is_any_shape

    def is_named(self, op: int, opcode: int) -> bool:
        """Whether an instruction, but no custom call for it, has the opcode."""
        return self.program.kind[op] != kinds.ASKS and self.program.opcodes[op] == opcode

    def is_filled(self, op: int) -> bool:
        """Constants and broadcasts of scalars."""
        use = self.main_use(op)
        if use and self.program.kind[op] == kinds.BROADCASTS:
            return self.rank(use.base) == 0
        return self.is_named(op, CONSTANT)

    def is_asked(self, use: Use) -> bool:
        """Whether a custom call that requests a layout stands before a use."""
        return use.source.number != use.base

    def is_asked_behind(self, op: int) -> bool:
        call = int(self.program.behind[op])
        return call != NONE and self.given[call] is not None

    def main_use(self, op: int) -> Use | None:
        slot = int(self.program.main[op, 0])
        return None if slot == NONE else self.uses[op][slot - int(self.program.use_starts[op])]

    def readers(self, op: int) -> list[Use]:
        """The uses of an instruction's result, but for custom calls."""
        uses = [use for use in self.all_uses() if use.base == op]
        return [use for use in uses if self.program.kind[use.reader] != kinds.ASKS]

    def put_outermost(self, op: int, layout: Layout) -> Layout:
        """The layout with the dimensions of size 1 outermost."""
        shape = self.shape(op)
        ones = [axis for axis in layout if shape[axis] == 1]
        return (*(axis for axis in layout if shape[axis] != 1), *sorted(ones, reverse=True))

    def set_buffer(self, buffer: Buffer, layout: Layout, mandatory: bool, urgent: bool) -> None:
        if buffer.number in self.squeezed:
            layout = self.put_outermost(buffer.number, layout)
        super().set_buffer(buffer, layout, mandatory, urgent)

    def set_use(self, use: Use, layout: Layout, mandatory: bool, urgent: bool) -> None:
        if use.reader in self.squeezed:
            layout = self.put_outermost(use.base, layout)
        super().set_use(use, layout, mandatory, urgent)

    def find_kind(self, op: int) -> int:
        """A squeezed reduction or broadcast is a reshape."""
        kind = super().find_kind(op)
        is_reshape = op in self.squeezed and kind in (kinds.REDUCES, kinds.BROADCASTS)
        return kinds.RESHAPES if is_reshape else kind

    def reads_twin(self, use: Use) -> bool:
        """Whether the reader is squeezed, but not what it reads: it reads another broadcast."""
        is_border = use.reader in self.squeezed and use.base not in self.squeezed
        return is_border and 1 in self.shape(use.base)

    def passes_down(self, use: Use) -> bool:
        return not self.reads_twin(use)

    def passes_up(self, use: Use) -> bool:
        is_call = self.program.kind[use.reader] == kinds.ASKS
        if is_call and use.base in self.squeezed:
            shape, layout = self.shape(use.base), use.layout
            assert layout
            return lie_alike(shape, layout, shape, self.put_outermost(use.base, layout))
        return not self.reads_twin(use)
