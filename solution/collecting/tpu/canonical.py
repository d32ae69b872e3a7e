"""Name kernels and programs by what they compute, independent of their names in a module.

The name of a kernel is a hash of its canonical form: the instruction with the shapes and layouts of
its result and operands, its attributes and called computations, without names, ids and source
locations. Kernels with equal names have equal costs. Attributes that hlo.proto does not describe
are included, because protobuf keeps unknown fields.
"""

import hashlib
from functools import cached_property
from typing import Any

from solution.programs.hlo.messages import copy_message, instructions

# Fields left out of the canonical form: names, ids, annotations, source locations and schedule.
UNNAMED = (
    "name", "id", "metadata", "operand_ids", "control_predecessor_ids", "called_computation_ids",
    "sharding", "frontend_attributes", "statistics_viz", "original_value", "channel_id",
)  # fmt: skip
Instruction = Any  # the protobuf message Instruction of hlo.proto


class Names:
    """Computes canonical names (hashes of content) of a message Module's kernels, and of the whole
    module."""

    def __init__(self, module: Any) -> None:
        self.computations = {found.id: found for found in module.computations}
        self.entry = self.computations[module.entry_computation_id]
        self._sequences = {
            number: list(sequence.instruction_ids)
            for number, sequence in module.schedule.sequences.items()
        }
        self._digests: dict[int, bytes] = {}
        self._instructions = {instruction.id: instruction for instruction in instructions(module)}

    def order(self, computation: Any) -> list[Instruction]:
        """Return a computation's instructions in their scheduled order, or as listed if not
        scheduled."""
        sequence = self._sequences.get(computation.id)
        if sequence is None:
            return list(computation.instructions)
        return [self._instructions[number] for number in sequence]

    def operands(self, instruction: Instruction) -> list[Instruction]:
        return [self._instructions[number] for number in instruction.operand_ids]

    def called(self, instruction: Instruction) -> list[Any]:
        """Return the computations that an instruction calls."""
        return [self.computations[number] for number in instruction.called_computation_ids]

    def name_kernel(self, instruction: Instruction) -> str:
        """Return a kernel's name: the hash of its canonical form, as 32 hex digits."""
        found = hashlib.sha256(self._describe(instruction))
        for operand in self.operands(instruction):
            found.update(b"operand" + operand.shape.SerializeToString(deterministic=True))
        return found.hexdigest()[:32]

    @cached_property
    def program(self) -> str:
        """Return the hash of the whole scheduled program; it depends on the order of the
        instructions."""
        return self._digest(self.entry).hex()[:32]

    def _digest(self, computation: Any) -> bytes:
        """Return the hash of a computation, in which positions replace the instructions' ids."""
        if computation.id not in self._digests:
            found = hashlib.sha256()
            ordered = self.order(computation)
            positions = {instruction.id: position for position, instruction in enumerate(ordered)}
            for instruction in ordered:
                operands = [positions[number] for number in instruction.operand_ids]
                found.update(f"{operands}".encode() + self._describe(instruction))
            found.update(str(positions[computation.root_id]).encode())
            self._digests[computation.id] = found.digest()
        return self._digests[computation.id]

    def _describe(self, instruction: Instruction) -> bytes:
        """Return the canonical form of an instruction, without its operands."""
        unnamed = copy_message(instruction)
        for field in UNNAMED:
            unnamed.ClearField(field)
        called = b"".join(self._digest(computation) for computation in self.called(instruction))
        return unnamed.SerializeToString(deterministic=True) + called


def hash_texts(*parts: object) -> str:
    """Return a hash (32 hex digits) of the parts; hash_texts("a", "b") differs from
    hash_texts("ab")."""
    found = hashlib.sha256()
    for part in parts:
        data = part if isinstance(part, bytes) else str(part).encode()
        found.update(f"{len(data)} ".encode() + data)
    return found.hexdigest()[:32]
