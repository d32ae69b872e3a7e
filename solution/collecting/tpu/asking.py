"""Request a configuration's layouts from a TPU's compiler, with the effect they have in TpuGraphs.

A configurable node is a convolution, dot or reshape; a configuration sets layouts of its output and
its operands. A LayoutConstraint on a single tensor has no lasting effect: layout assignment obeys
it and copies the tensor behind it, but then the pass that folds copies into convolutions removes
the layout. TpuGraphs' tool set layouts on instructions and let them propagate. So each output
layout of a configuration is propagated forward here, in the order of the nodes:

* Element-wise instructions, windows (pooling and its gradient), slices, paddings and
  concatenations of the same rank take the layout of their first operand that has one. A transpose
  takes the layout under which it moves no data.
* Constraints are added behind the configurable nodes. They are also added behind a propagated
  tensor if a configurable node or a window reads it, or if a window, a concatenation, a comparison
  or a transpose writes it.

Calls are inlined first, and elements of tuples are read directly, so that layouts reach the
readers: the body of a loop from jax contains a call that returns a tuple. For convolutions and dots
only the output layout is requested: their operands' layouts follow from the producers, and in
TpuGraphs' data they have no effect. Only for an operand from an infeed is a layout requested, too,
because it follows from no producer: the compiler copies the tensor, or folds the copy into the
convolution. For reshapes the layouts of operand and output are requested. The layouts of entry
parameters and infeeds (the program's boundary) stay as in the module.

Measured on one program of TpuGraphs (AlexNet training, 28 distinct runtimes on a TPU v3): Kendall's
tau between estimates and runtimes is 0.952 with propagation, 0.491 with constraints on the outputs
alone.
"""

from collections import defaultdict
from typing import Any

import numpy as np

from solution.collecting.constraints import (
    MIN_RANK,
    OUTPUT,
    Wanted,
    complete_layout,
    find_ranks,
    list_wanted,
    write_constraints,
)
from solution.collecting.tpu.compiled import CompiledProgram, Tensor
from solution.collecting.tpu.devices import find_entry_layouts
from solution.collecting.tpu.libtpu import EntryLayouts
from solution.collecting.tpu.reading import open_tuple
from solution.domain.vocabulary import LAYOUT_UNSET
from solution.features.propagation.calls import PROPAGATES, WINDOWS, WRITES_FIXED
from solution.programs.arguments import find_entry
from solution.programs.hlo.messages import MESSAGES, copy_message, instructions
from solution.programs.portable import FreshIds, lay_out, make_portable, replace_instructions
from solution.programs.program import Program

# op_name of a configurable node in the requested module: this prefix, then the node's number
NODE = "node."
# values that say whether a node's output has the requested layout, see compare_with_asked
TAKEN, UNTAKEN, UNASKED, UNSEEN = 1, 0, -1, -2
# version of the rules by which layouts are requested; a run that began with another version is not
# resumed
REQUEST_RULES = 2
# {opcode of a configurable node: opcodes that it may become in the compiled program}
MADE_OF = {
    "convolution": ("convolution",),
    "dot": ("convolution", "dot"),
    "reshape": ("bitcast", "copy", "reshape", "transpose"),
}


Origins = dict[int, int]  # {id of a copied instruction: id of its original}


def find_asked_ranks(module: Any, configurable: np.ndarray) -> np.ndarray:
    """Return the ranks (configurable, 3) of each configurable node's output and operands. The rank
    is 0 for a tensor whose layout cannot be requested on a TPU."""
    ranks = find_ranks(module, configurable)
    nodes = list(instructions(module))
    producers = {instruction.id: instruction for instruction in nodes}
    for row, node in zip(ranks, configurable, strict=True):
        if nodes[node].opcode != "reshape":
            for tensor, operand in enumerate(nodes[node].operand_ids, OUTPUT + 1):
                if not _is_fed(operand, producers):
                    row[tensor] = 0
    return ranks


def _is_fed(operand: int, producers: dict[int, Any]) -> bool:
    """Return True if `operand` (an instruction's id) is the output of an infeed, or an element of
    that output."""
    producer = producers[operand]
    while producer.opcode == "get-tuple-element":
        producer = producers[producer.operand_ids[0]]
    return bool(producer.opcode == "infeed")


class RequestWriter:
    """Writes modules that request the layouts of a program's configurations from the compiler.

    The constructor does the work that all configurations share: it makes the program portable and
    inlines its calls.

    Args:
        module: the message Module from which the program's graph was made.
        configurable: (configurable,) numbers of the configurable nodes.
    """

    def __init__(self, module: Any, configurable: np.ndarray) -> None:
        nodes = list(instructions(module))
        self._ids = [nodes[node].id for node in configurable]
        self._can_ask = find_asked_ranks(module, configurable)[..., None] > 0
        inlined = make_portable(module, keeps_boundary=True)
        _name_nodes(inlined, dict(zip(self._ids, configurable.tolist(), strict=True)))
        settable = set(self._ids)
        # copies that inlining made of configurable nodes: (id of the copy, id of the node)
        self._copies = [
            (copied, origin)
            for copied, origin in inline_calls(inlined).items()
            if origin in settable
        ]
        self._settable = settable | {copied for copied, _ in self._copies}
        self._inlined = inlined.SerializeToString()

    def write(self, layouts: np.ndarray) -> bytes:
        """Return the serialized module that requests a configuration's layouts.

        Args:
            layouts: (configurable, 3, 6) layouts of output and operands, minor to major. The first
                -1 ends a layout; the dimensions that are not listed follow, with the last one most
                minor. Operands of convolutions and dots are ignored unless they come from an
                infeed.
        """
        wanted = list_wanted(self._ids, np.where(self._can_ask, layouts, LAYOUT_UNSET))
        for copied, origin in self._copies:
            if origin in wanted:
                wanted[copied] = wanted[origin]
        module = MESSAGES["Module"].FromString(self._inlined)
        for computation in module.computations:
            propagated = propagate(computation, wanted, self._settable)
            for number in _find_fixed(computation, propagated, self._settable):
                wanted[number] = [(OUTPUT, propagated[number])]
        return write_constraints(module, wanted)


def _name_nodes(module: Any, numbers: dict[int, int]) -> None:
    """Write each configurable node's number into its op_name, which survives compilation."""
    for instruction in instructions(module):
        if instruction.id in numbers:
            name = f"{NODE}{numbers[instruction.id]}"
            instruction.metadata.op_name = f"{name}/{instruction.metadata.op_name}".rstrip("/")


def find_fixed_boundary(module: Any) -> EntryLayouts | None:
    """Return the layouts of the entry's parameters and results; None if the module sets none.

    A dump of a TPU's compiler sets them. If all are row-major, as in a module from jax, they count
    as not set, and the compiler chooses them.
    """
    entry = find_entry(module)
    crossing = [i for i in entry.instructions if i.opcode == "parameter" or i.id == entry.root_id]
    shapes = [part for instruction in crossing for part in open_tuple(instruction.shape)]
    if all(list(shape.layout.minor_to_major) in ([], lay_out(shape)) for shape in shapes):
        return None
    return find_entry_layouts(module)


def compare_with_asked(
    compiled: CompiledProgram, program: Program, layouts: np.ndarray
) -> np.ndarray:
    """Return whether each configurable node has the requested output layout, (configurable,) int8.

    TAKEN: the compiled instruction has the requested layout. UNTAKEN: it has another layout.
    UNASKED: no layout was requested. UNSEEN: the compiled program has no such instruction any more.

    Args:
        layouts: (configurable, 3, 6) the requested layouts, minor to major, -1 for unset.
    """
    found: dict[int, list[Tensor]] = defaultdict(list)
    for tensor in compiled.tensors:
        if tensor.source.startswith(NODE):
            number = tensor.source.removeprefix(NODE).partition("/")[0]
            if number.isdigit():
                found[int(number)].append(tensor)
    nodes = list(instructions(program.module))
    states = np.full(len(program.configurable), UNASKED, np.int8)
    for row, (node, given) in enumerate(zip(program.configurable, layouts, strict=True)):
        order = given[OUTPUT][given[OUTPUT] != LAYOUT_UNSET].tolist()
        if order:
            states[row] = _compare(found[int(node)], nodes[node], order)
    return states


def _compare(tensors: list[Tensor], node: Any, order: list[int]) -> int:
    """Return TAKEN, UNTAKEN or UNSEEN for the output layout of one configurable node.

    Args:
        tensors: results in the compiled program that stem from `node`.
        order: the requested layout, minor to major; it may be incomplete.
    """
    made = MADE_OF.get(node.opcode, ())
    sizes = tuple(node.shape.dimensions)
    made_tensors = [one for one in tensors if one.opcode in made and one.dimensions == sizes]
    if not made_tensors:
        return UNSEEN
    whole = tuple(complete_layout(order, len(sizes)))
    # a reshape may become several instructions; one with the requested layout suffices
    holds = any if node.opcode == "reshape" else all
    return TAKEN if holds(is_same_order(one, whole) for one in made_tensors) else UNTAKEN


def is_same_order(tensor: Tensor, order: tuple[int, ...]) -> bool:
    """Return True if a tensor's layout is `order` (minor to major), ignoring dimensions of size
    1."""
    return [axis for axis in tensor.minor_to_major if tensor.dimensions[axis] > 1] == [
        axis for axis in order if tensor.dimensions[axis] > 1
    ]


def propagate(computation: Any, wanted: Wanted, settable: set[int]) -> dict[int, list[int]]:
    """Propagate the requested output layouts forward through a computation.

    Args:
        wanted: {instruction id: requested layouts}.
        settable: ids of the configurable nodes, which take no layout from their operands.

    Returns:
        {instruction id: complete layout of its result, minor to major}, for the instructions that a
        requested layout reaches.
    """
    found: dict[int, list[int]] = {}
    for instruction in computation.instructions:  # operands stand before their readers
        number, rank = instruction.id, len(instruction.shape.dimensions)
        if rank < MIN_RANK:
            continue
        if number in settable:
            given = dict(wanted.get(number, ())).get(OUTPUT)
            if given is not None:
                found[number] = complete_layout(given, rank)
        elif instruction.opcode in PROPAGATES:
            known = (found[o] for o in instruction.operand_ids if len(found.get(o, ())) == rank)
            layout = next(known, None)
            if layout is not None and instruction.opcode == "transpose":
                # moved[i]: the dimension of the operand that becomes dimension i of the result
                moved = list(instruction.dimensions)
                layout = [moved.index(axis) for axis in layout]
            if layout is not None:
                found[number] = layout
    return found


def _find_fixed(
    computation: Any, propagated: dict[int, list[int]], settable: set[int]
) -> list[int]:
    """Return the ids of the instructions behind which a propagated layout is fixed by a constraint.
    Configurable nodes (`settable`) are left out. See the module's docstring for the rule."""
    readers: dict[int, list[Any]] = defaultdict(list)
    for instruction in computation.instructions:
        for operand in instruction.operand_ids:
            readers[operand].append(instruction)
    return [
        instruction.id
        for instruction in computation.instructions
        if instruction.id in propagated
        and instruction.id not in settable
        and (
            instruction.opcode in WRITES_FIXED
            or any(r.id in settable or r.opcode in WINDOWS for r in readers[instruction.id])
        )
    ]


def inline_calls(module: Any) -> Origins:
    """Replace each call in a message Module, in place, with a copy of the called computation. Then
    let each reader of a tuple's element read the tuple's operand directly.

    The called computations stay in the module; XLA removes unused ones. All other instructions keep
    their ids.

    Returns:
        {id of a copied instruction: id of its original, which is never a copy}
    """
    fresh, origins = FreshIds(module), Origins()
    computations = {computation.id: computation for computation in module.computations}
    for computation in module.computations:  # a called computation stands before its callers
        if any(instruction.opcode == "call" for instruction in computation.instructions):
            _inline(computation, computations, fresh, origins)
        _skip_tuples(computation)
    return origins


def _inline(
    computation: Any, computations: dict[int, Any], fresh: FreshIds, origins: Origins
) -> None:
    """Inline the calls of one computation, in place; add the copied instructions to `origins`."""
    # {id of a call: the id that replaces it (root of the inlined copy, or an operand of the call)}
    renamed: dict[int, int] = {}
    written: list[Any] = []
    for instruction in computation.instructions:
        _rename_read(instruction, renamed)
        if instruction.opcode != "call":
            written.append(instruction)
            continue
        (called,) = instruction.called_computation_ids
        inside: dict[int, int] = {}
        for original in computations[called].instructions:
            if original.opcode == "parameter":
                inside[original.id] = instruction.operand_ids[original.parameter_number]
                continue
            copied = copy_message(original)
            copied.id = inside[original.id] = fresh.take()
            copied.name = f"{original.name}.{copied.id}"
            copied.operand_ids[:] = [inside[operand] for operand in original.operand_ids]
            copied.control_predecessor_ids[:] = [
                inside[p] for p in original.control_predecessor_ids if p in inside
            ]
            origins[copied.id] = origins.get(original.id, original.id)
            written.append(copied)
        renamed[instruction.id] = inside[computations[called].root_id]
    computation.root_id = renamed.get(computation.root_id, computation.root_id)
    replace_instructions(computation, written)


def _rename_read(instruction: Any, renamed: dict[int, int]) -> None:
    """Replace the ids of the instructions that an instruction reads or waits for, in place."""
    for ids in (instruction.operand_ids, instruction.control_predecessor_ids):
        ids[:] = [renamed.get(one, one) for one in ids]


def _skip_tuples(computation: Any) -> None:
    """Remove, in place, each get-tuple-element of a tuple that the computation itself makes; its
    readers read the tuple's operand instead."""
    tuples = {i.id: i for i in computation.instructions if i.opcode == "tuple"}
    # {id of a get-tuple-element: id of the tuple's operand that it selects}
    renamed: dict[int, int] = {}
    kept: list[Any] = []
    for instruction in computation.instructions:  # operands stand before their readers
        _rename_read(instruction, renamed)
        if instruction.opcode == "get-tuple-element" and instruction.operand_ids[0] in tuples:
            made = tuples[instruction.operand_ids[0]]
            renamed[instruction.id] = made.operand_ids[instruction.tuple_index]
        else:
            kept.append(instruction)
    if renamed:
        computation.root_id = renamed.get(computation.root_id, computation.root_id)
        replace_instructions(computation, kept)
