"""Request layouts from the compiler with a LayoutConstraint after each tensor.

LayoutConstraint is the custom call that `jax.experimental.layout.with_layout_constraint` writes.
Here it is inserted into the compiler's input module, whose instructions are the graph's nodes. So
it works for programs of any origin, and layouts belong to the nodes that the features describe.
"""

from collections import defaultdict
from typing import Any

import numpy as np

from solution.domain.vocabulary import LAYOUT_UNSET, MAX_RANK
from solution.programs.hlo.messages import MESSAGES, copy_message, instructions
from solution.programs.portable import FreshIds, make_portable, replace_instructions

# numbers of a node's tensors: 0 is its output, 1 its first operand, 2 its second operand
OUTPUT, INPUT = 0, 1
MIN_RANK = 2  # tensors of lower rank have only one layout
NUM_TENSORS = {"reshape": 2, "dot": 3, "convolution": 3}  # tensors with a layout, by opcode
# {instruction's id: [(tensor, its dimensions minor to major)]}; tensors: output 0, operands 1 and 2
Wanted = dict[int, list[tuple[int, list[int]]]]


def find_ranks(module: Any, configurable: np.ndarray) -> np.ndarray:
    """Return the ranks (configurable, 3) of each configurable node's output and operands. The rank
    is 0 for a tensor whose layout cannot be set."""
    shapes = {i.id: i.shape for i in instructions(module)}
    nodes = list(instructions(module))
    ranks = np.zeros((len(configurable), 3), np.int64)
    for row, number in zip(ranks, configurable, strict=True):
        node = nodes[number]
        tensors = [node.shape, *(shapes[operand] for operand in node.operand_ids)]
        for tensor, shape in enumerate(tensors[: NUM_TENSORS.get(node.opcode, 0)]):
            rank = len(shape.dimensions)
            row[tensor] = rank if MIN_RANK <= rank <= MAX_RANK else 0
    return ranks


def constrain(module: Any, configurable: np.ndarray, layouts: np.ndarray) -> bytes:
    """Return the serialized module with constraints that request `layouts` (configurable, 3, 6),
    minor to major, for the instructions at the positions `configurable`. A layout ends at the first
    -1, and `complete_layout` appends the missing dimensions. A layout that begins with -1 is left
    to the compiler."""
    nodes = list(instructions(module))
    ids = [nodes[number].id for number in configurable]
    return write_constraints(make_portable(module), list_wanted(ids, layouts))


def list_wanted(ids: list[int], layouts: np.ndarray) -> Wanted:
    """Return {instruction's id: layouts to request}, given the ids of the configurable nodes and
    their layouts (configurable, 3, 6) as in `constrain`."""
    wanted: Wanted = defaultdict(list)
    for row, tensor in np.argwhere(layouts[..., 0] != LAYOUT_UNSET).tolist():
        layout = layouts[row, tensor]
        wanted[ids[row]].append((tensor, layout[layout >= 0].tolist()))
    return wanted


def write_constraints(module: Any, wanted: Wanted) -> bytes:
    """Add constraints for the layouts `wanted` to a message Module in place; return its bytes."""
    fresh = FreshIds(module)
    for computation in module.computations:
        _constrain_computation(computation, wanted, fresh)
    return bytes(module.SerializeToString())


def complete_layout(layout: list[int], rank: int) -> list[int]:
    """Return the layout with its missing dimensions appended, in descending order."""
    return layout + [axis for axis in reversed(range(rank)) if axis not in layout]


def _constrain_computation(computation: Any, wanted: Wanted, fresh: FreshIds) -> None:
    if not any(instruction.id in wanted for instruction in computation.instructions):
        return
    shapes = {i.id: i.shape for i in computation.instructions}
    renamed: dict[int, int] = {}  # {node's id: id of the constraint that replaces it as an operand}
    written: list[Any] = []
    for instruction in computation.instructions:
        if not renamed.keys().isdisjoint(instruction.operand_ids):
            operands = [renamed.get(operand, operand) for operand in instruction.operand_ids]
            instruction.operand_ids[:] = operands
        layouts = dict(wanted.get(instruction.id, []))
        for tensor in sorted(layouts.keys() - {OUTPUT}):
            operand = instruction.operand_ids[tensor - 1]
            added = _make_constraint(operand, shapes[operand], layouts[tensor], fresh)
            instruction.operand_ids[tensor - 1] = added.id
            written.append(added)
        written.append(instruction)
        if OUTPUT in layouts:
            added = _make_constraint(instruction.id, instruction.shape, layouts[OUTPUT], fresh)
            # the instruction's readers now read the constraint, so the constraint gets the
            # instruction's metadata, too
            added.metadata.CopyFrom(instruction.metadata)
            renamed[instruction.id] = added.id
            shapes[added.id] = instruction.shape
            written.append(added)
    computation.root_id = renamed.get(computation.root_id, computation.root_id)
    replace_instructions(computation, written)


def _make_constraint(operand: int, shape: Any, layout: list[int], fresh: FreshIds) -> Any:
    """Return a constraint of the instruction with the id `operand`: a custom call that states the
    layout both for its operand and for its result, because XLA merges instructions that differ
    only in the results' layouts."""
    number = fresh.take()
    laid_out = copy_message(shape)
    laid_out.layout.minor_to_major[:] = complete_layout(layout, len(shape.dimensions))
    return MESSAGES["Instruction"](
        id=number,
        name=f"layout.{number}",
        opcode="custom-call",
        custom_call_target="LayoutConstraint",
        shape=laid_out,
        operand_ids=[operand],
        constrain_layout=True,
        operand_shapes_with_layout=[laid_out],
    )
