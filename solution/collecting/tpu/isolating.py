"""Write a module of single kernels, so that their costs are known without a full compilation.

A kernel's code, and so its cost, depends only on the kernel, not on the rest of the program. So
new kernels are put into a small module in the form that they have after the passes over HLO, and
only machine code is generated for it. Operands become constants or uninitialised buffers. Results
in the chip's memory (VMEM) are copied to HBM, because a module's result cannot stay on the chip.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from solution.collecting.tpu.canonical import Instruction, Names
from solution.collecting.tpu.compiled import Cost
from solution.collecting.tpu.reading import Reader, read_cost
from solution.programs.arguments import TUPLE
from solution.programs.hlo.messages import MESSAGES, copy_message
from solution.programs.obstacles import COLLECTIVES, WAITING

U32 = 8  # the element type u32 in XLA's PrimitiveType
HBM, VMEM, SMEM = 0, 1, 2  # memory spaces in layouts
ENTRY = 1 << 20  # id of the new entry computation, larger than the ids in any program
LOCAL_BITS = 32  # lower bits of an instruction's id; the bits above are its computation's id
# Instructions that cannot be compiled alone: they communicate, or use the chip's random state.
NOT_ALONE = {*COLLECTIVES, *WAITING, "rng", "rng-bit-generator", "rng-get-and-update-state"}


@dataclass(frozen=True)
class Isolated:
    """A module that consists of single kernels of a program."""

    # a serialized HloModuleProto, optimised and scheduled
    module: bytes
    # {canonical name: kernel}; the kernels are results of the passes over HLO
    kernels: dict[str, Instruction]

    def read_costs(self, generated: bytes) -> dict[str, Cost] | None:
        """Return {canonical name: cost} of the kernels, read from `generated`, a serialized
        OptimisedModule after code generation. Return None if the compiler failed, or changed a
        kernel so that its cost may differ from the original kernel's."""
        module = MESSAGES["OptimisedModule"].FromString(generated).module
        found = {
            instruction.name: instruction
            for computation in module.computations
            if computation.id == module.entry_computation_id
            for instruction in computation.instructions
        }
        costs = {}
        for key, kernel in self.kernels.items():
            made = found.get(kernel.name)
            if made is None or made.opcode != kernel.opcode or made.shape != kernel.shape:
                return None
            costs[key] = read_cost(made)
        return costs


def isolate(reader: Reader, keys: Iterable[str]) -> Isolated | None:
    """Return a module of the kernels with the canonical names `keys`, taken from `reader`; None if
    one of them cannot be compiled alone."""
    kernels = reader.find_kernels(keys)
    writer = _Writer(reader.names)
    for kernel in kernels.values():
        if not writer.add(kernel):
            return None
    return Isolated(writer.finish(), kernels)


class _Writer:
    """Writes a module whose entry computation consists of kernels of another module."""

    def __init__(self, names: Names) -> None:
        self._names = names
        self._called: dict[int, Any] = {}  # computations that kernels call, each before its callers
        self._entry = MESSAGES["Computation"](name="kernels", id=ENTRY)
        self._results: list[Instruction] = []

    def add(self, kernel: Instruction) -> bool:
        """Add a kernel and its operands; return False if the kernel cannot be compiled alone."""
        operands = self._names.operands(kernel)
        is_tupled = kernel.shape.element_type == TUPLE
        results = kernel.shape.tuple_shapes if is_tupled else [kernel.shape]
        if (
            kernel.opcode.removesuffix("-start").removesuffix("-done") in NOT_ALONE
            or any(operand.shape.element_type == TUPLE for operand in operands)
            or any(result.layout.memory_space not in (HBM, VMEM) for result in results)
        ):
            return False
        for computation in self._names.called(kernel):
            self._collect(computation)
        numbers = [self._add_operand(operand).id for operand in operands]
        added = self._append(kernel)
        added.operand_ids[:] = numbers
        added.name = kernel.name
        parts = [added]
        if is_tupled:
            parts = [
                self._make("get-tuple-element", shape, added, tuple_index=number)
                for number, shape in enumerate(added.shape.tuple_shapes)
            ]
        self._results += [self._move_out(part) for part in parts]
        return True

    def finish(self) -> bytes:
        """Return the serialized module."""
        shape = MESSAGES["Shape"](
            element_type=TUPLE, tuple_shapes=[result.shape for result in self._results]
        )
        root = self._make("tuple", shape, *self._results)
        self._entry.root_id = root.id
        module = MESSAGES["Module"](name="kernels", id=1, entry_computation_id=ENTRY)
        module.computations.extend([*self._called.values(), self._entry])
        module.host_program_shape.result.CopyFrom(shape)
        for computation in module.computations:
            ordered = self._names.order(computation) if computation.id != ENTRY else None
            module.schedule.sequences[computation.id].instruction_ids.extend(
                instruction.id for instruction in ordered or computation.instructions
            )
        return bytes(module.SerializeToString())

    def _collect(self, computation: Any) -> None:
        """Add a computation and the computations that it calls to `_called`, callers last."""
        for instruction in computation.instructions:
            for called in self._names.called(instruction):
                self._collect(called)
        self._called.setdefault(computation.id, computation)

    def _add_operand(self, operand: Instruction) -> Instruction:
        """Add a constant operand unchanged; for any other operand, add an unwritten buffer of
        its shape."""
        if operand.opcode == "constant":
            return self._append(operand)
        return self._make("custom-call", operand.shape, custom_call_target="AllocateBuffer")

    def _move_out(self, result: Instruction) -> Instruction:
        """Return an instruction whose result is in HBM: `result` itself, or a copy of it if it is
        in the memory on the chip."""
        if result.shape.layout.memory_space == HBM:
            return result
        outside = copy_message(result.shape)
        outside.layout.ClearField("memory_space")
        context = MESSAGES["Shape"](element_type=U32)
        context.layout.memory_space = SMEM
        moved = MESSAGES["Shape"](element_type=TUPLE, tuple_shapes=[outside, result.shape, context])
        return self._make("copy-done", outside, self._make("copy-start", moved, result))

    def _make(
        self, opcode: str, shape: Any, *operands: Instruction, **attributes: Any
    ) -> Instruction:
        numbers = [operand.id for operand in operands]
        return self._append(
            MESSAGES["Instruction"](opcode=opcode, shape=shape, operand_ids=numbers, **attributes)
        )

    def _append(self, instruction: Instruction) -> Instruction:
        """Append a copy of an instruction, with a new id and name, to the entry computation."""
        number = len(self._entry.instructions)
        added = self._entry.instructions.add()
        added.CopyFrom(instruction)
        added.ClearField("control_predecessor_ids")
        added.id, added.name = (ENTRY << LOCAL_BITS) + number, f"of.kernels.{number}"
        return added
