"""Inline the calls of a module, so that a tensor's readers stand in the same computation as it.

jax writes each function that is jitted inside another one as a call, and a dump's fusions become
calls (solution.programs.portable). Every compiler inlines them before it assigns layouts.
"""

from typing import Any

from solution.programs.hlo.messages import MESSAGES
from solution.programs.portable import FreshIds, replace_instructions

Origins = dict[int, int]  # by the id of a copied instruction: the id of its original


def inline_calls(module: Any) -> Origins:
    """Replace each call in a message Module, in place, with a copy of the called computation.

    Called computations stay; XLA removes unused ones. Instructions that were not copied keep their
    ids and have no origin.

    Returns:
        The copies. Each origin is an instruction that is not a copy itself.
    """
    fresh, origins = FreshIds(module), Origins()
    computations = {computation.id: computation for computation in module.computations}
    for computation in module.computations:  # called computations stand before their callers
        if any(instruction.opcode == "call" for instruction in computation.instructions):
            _inline(computation, computations, fresh, origins)
    return origins


def _inline(
    computation: Any, computations: dict[int, Any], fresh: FreshIds, origins: Origins
) -> None:
    renamed: dict[int, int] = {}  # by a call's id: the root of its copy, or an operand
    written: list[Any] = []
    for instruction in computation.instructions:
        instruction.operand_ids[:] = [renamed.get(o, o) for o in instruction.operand_ids]
        instruction.control_predecessor_ids[:] = [
            renamed.get(p, p) for p in instruction.control_predecessor_ids
        ]
        if instruction.opcode != "call":
            written.append(instruction)
            continue
        (called,) = instruction.called_computation_ids
        inside: dict[int, int] = {}
        for own in computations[called].instructions:
            if own.opcode == "parameter":
                inside[own.id] = instruction.operand_ids[own.parameter_number]
                continue
            copied = MESSAGES["Instruction"].FromString(own.SerializeToString())
            copied.id = inside[own.id] = fresh.take()
            copied.name = f"{own.name}.{copied.id}"
            copied.operand_ids[:] = [inside[operand] for operand in own.operand_ids]
            copied.control_predecessor_ids[:] = [
                inside[p] for p in own.control_predecessor_ids if p in inside
            ]
            origins[copied.id] = origins.get(own.id, own.id)
            written.append(copied)
        renamed[instruction.id] = inside[computations[called].root_id]
    computation.root_id = renamed.get(computation.root_id, computation.root_id)
    replace_instructions(computation, written)
