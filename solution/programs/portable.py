"""Rewrite a dumped module so that other backends can compile it.

A TPU's dump has special kinds of fusions, tiled layouts, and 64-bit integers as pairs of 32-bit
integers, which other backends reject. They do not affect the result, so they are replaced with
plain instructions that compute the same. Instructions keep their ids.
"""

from collections.abc import Sequence
from typing import Any

from solution.programs.arguments import find_entry, is_tupled
from solution.programs.hlo.messages import MESSAGES, copy_message
from solution.programs.hlo.nodes import find_places

TUPLE, OPAQUE, TOKEN = 13, 14, 17  # numbers in XLA's PrimitiveType of types that have no layout
U32, U64 = 8, 9  # numbers in XLA's PrimitiveType
PAIR = 2  # number of 32-bit integers that represent a 64-bit integer
LOCAL_BITS = 32  # low bits of an instruction's id: its number inside its computation


def make_portable(module: Any, *, keeps_boundary: bool = False) -> Any:
    """Return a copy of a Module that all backends accept, with row-major layouts. With
    `keeps_boundary`, the entry's parameters and all infeeds keep their layouts, without tiles."""
    copy = copy_message(module)
    for name in ("schedule", "input_output_alias", "buffer_donor"):
        copy.ClearField(name)
    fresh = FreshIds(copy)
    entry = find_entry(copy).id
    for computation in copy.computations:
        rewritten = []
        boundary = ("infeed", "parameter") if computation.id == entry else ("infeed",)
        shapes = {i.id: copy_message(i.shape) for i in computation.instructions}
        for instruction in computation.instructions:
            _lay_out(instruction.shape, keeps=keeps_boundary and instruction.opcode in boundary)
            if instruction.opcode == "fusion":
                instruction.opcode = "call"
            rewritten += _write_plainly(instruction, shapes, fresh)
        replace_instructions(computation, _write_old_forms(rewritten, fresh))
    if is_tupled(copy):
        _take_apart(copy, fresh)
    return copy


class FreshIds:
    """Generates instruction ids that are new in a module, for any computation. Inside a computation
    XLA uses only the lower half of an id, so the lower half of each new id is larger than all."""

    def __init__(self, module: Any) -> None:
        taken = list(find_places(module))
        lower = max(number % 2**LOCAL_BITS for number in taken)
        self._last = max(taken) - max(taken) % 2**LOCAL_BITS + lower

    def take(self) -> int:
        self._last += 1
        return self._last


def replace_instructions(computation: Any, instructions: list[Any]) -> None:
    """Replace the instructions of a computation by copies of `instructions`, in place."""
    copies = [copy_message(instruction) for instruction in instructions]
    del computation.instructions[:]
    computation.instructions.extend(copies)


def make_shape(element_type: int, sizes: Sequence[int]) -> Any:
    """Return the shape of an array, with a row-major layout."""
    shape = MESSAGES["Shape"](element_type=element_type, dimensions=sizes)
    shape.layout.minor_to_major[:] = lay_out(shape)
    return shape


def lay_out(shape: Any) -> list[int]:
    """Return the row-major layout of a shape, in minor-to-major order."""
    return list(range(len(shape.dimensions)))[::-1]


def _take_apart(module: Any, fresh: FreshIds) -> None:
    """Replace the entry's only parameter, a tuple, by one parameter per element, in place."""
    entry = find_entry(module)
    (whole,) = (i for i in entry.instructions if i.opcode == "parameter")
    parts = [
        _make_parameter(number, shape, fresh)
        for number, shape in enumerate(whole.shape.tuple_shapes)
    ]
    taken = {
        i.id: parts[i.tuple_index].id
        for i in entry.instructions
        if i.opcode == "get-tuple-element" and list(i.operand_ids) == [whole.id]
    }
    kept = [i for i in entry.instructions if i.id not in taken and i.id != whole.id]
    for instruction in kept:
        operands = [taken.get(operand, operand) for operand in instruction.operand_ids]
        instruction.operand_ids[:] = operands
    entry.root_id = taken.get(entry.root_id, entry.root_id)
    replace_instructions(entry, [*parts, *kept])
    shape = module.host_program_shape
    del shape.parameters[:]
    del shape.parameter_names[:]
    shape.parameters.extend(part.shape for part in parts)
    shape.parameter_names.extend(part.name for part in parts)


def _make_parameter(number: int, shape: Any, fresh: FreshIds) -> Any:
    taken = fresh.take()
    return MESSAGES["Instruction"](
        id=taken,
        name=f"parameter.{taken}",
        opcode="parameter",
        shape=shape,
        parameter_number=number,
    )


def _lay_out(shape: Any, *, keeps: bool = False) -> None:
    """Make a shape's layout row-major (unless `keeps`) and drop its tiles, in place."""
    for part in shape.tuple_shapes:
        _lay_out(part, keeps=keeps)
    if shape.element_type not in (TUPLE, OPAQUE, TOKEN):
        order = list(shape.layout.minor_to_major)
        shape.ClearField("layout")  # clears the tiles too
        is_kept = keeps and sorted(order) == list(range(len(shape.dimensions)))
        shape.layout.minor_to_major[:] = order if is_kept else lay_out(shape)


def _write_old_forms(instructions: list[Any], fresh: FreshIds) -> list[Any]:
    """Return the instructions with replacements for forms that only older compilers accept: the
    copy of an array becomes a reshape, a reshape to another type a reshape and a conversion."""
    types = {instruction.id: instruction.shape.element_type for instruction in instructions}
    written = []
    for instruction in instructions:
        is_array = instruction.shape.element_type not in (TUPLE, OPAQUE, TOKEN)
        if instruction.opcode == "copy" and is_array:
            instruction = _as(instruction, "reshape", list(instruction.operand_ids))
        elif instruction.opcode == "reshape":
            before = types[instruction.operand_ids[0]]
            if before != instruction.shape.element_type:
                reshaped = _make(
                    "reshape", instruction.shape.dimensions, instruction.operand_ids, fresh, before
                )
                written.append(reshaped)
                instruction = _as(instruction, "convert", [reshaped.id])
        written.append(instruction)
    return written


def _write_plainly(instruction: Any, shapes: dict[int, Any], fresh: FreshIds) -> list[Any]:
    """Return instructions that replace `instruction` and that all backends accept; the last one has
    its id. `shapes`: {instruction id: original shape} of the computation."""
    halves = {"X64SplitLow": _split, "X64SplitHigh": _split, "X64Combine": _combine}
    if instruction.opcode == "custom-call" and instruction.custom_call_target in halves:
        return halves[instruction.custom_call_target](instruction, fresh)
    read = [shapes[operand] for operand in instruction.operand_ids if operand in shapes]
    if instruction.opcode == "bitcast" and read:
        return _reinterpret(instruction, read[0], shapes[instruction.id], fresh)
    if instruction.opcode == "rng-bit-generator" and read and len(read[0].tuple_shapes) == PAIR:
        return _draw_bits(instruction, read[0], fresh)
    return [instruction]


def _reinterpret(instruction: Any, read: Any, made: Any, fresh: FreshIds) -> list[Any]:
    """Return instructions that replace a bitcast from shape `read` to shape `made`: a transpose to
    the operand's order in memory, a reshape, a transpose from the result's order in memory; or a
    bitcast-convert if the element type changes."""
    sizes, result = list(read.dimensions), list(made.dimensions)
    before, after = (
        list(shape.layout.minor_to_major)[::-1] or list(range(len(shape.dimensions)))
        for shape in (read, made)
    )
    if made.element_type != read.element_type or sorted(before) != list(range(len(sizes))):
        return [_as(instruction, "bitcast-convert", list(instruction.operand_ids))]
    kind = made.element_type
    first = _make("transpose", [sizes[a] for a in before], instruction.operand_ids, fresh, kind)
    first.dimensions[:] = before
    middle = _make("reshape", [result[a] for a in after], [first.id], fresh, kind)
    last = _as(instruction, "transpose", [middle.id])
    last.dimensions[:] = [after.index(axis) for axis in range(len(result))]
    return [first, middle, last]


def _draw_bits(instruction: Any, state: Any, fresh: FreshIds) -> list[Any]:
    """Return instructions that replace an rng-bit-generator whose state is a pair of 32-bit arrays:
    one with a 64-bit state, of which only the drawn bits are used, not the new state."""
    written = []
    for number, half in enumerate(state.tuple_shapes):
        sizes = list(half.dimensions)
        part = _make("get-tuple-element", sizes, instruction.operand_ids, fresh, half.element_type)
        part.tuple_index = number
        written += [part, _make("reshape", [*sizes, 1], [part.id], fresh, half.element_type)]
    sizes = list(state.tuple_shapes[0].dimensions)
    pairs = _make("concatenate", [*sizes, PAIR], [i.id for i in written[1::2]], fresh)
    pairs.dimensions[:] = [len(sizes)]
    joined = _make("bitcast-convert", sizes, [pairs.id], fresh, U64)
    drawn = _make("rng-bit-generator", [], [joined.id], fresh)
    drawn.shape.CopyFrom(
        MESSAGES["Shape"](element_type=TUPLE, tuple_shapes=[joined.shape, instruction.shape])
    )
    drawn.rng_algorithm = instruction.rng_algorithm
    bits = _as(instruction, "get-tuple-element", [drawn.id])
    bits.tuple_index = 1
    return [*written, pairs, joined, drawn, bits]


def _split(instruction: Any, fresh: FreshIds) -> list[Any]:
    """Return instructions that replace a custom call for one half of 64-bit integers: convert them
    to pairs of 32-bit integers, and slice one integer of each pair."""
    upper = int(instruction.custom_call_target == "X64SplitHigh")
    sizes = list(instruction.shape.dimensions)
    pairs = _make("bitcast-convert", [*sizes, PAIR], list(instruction.operand_ids), fresh)
    half = _make("slice", [*sizes, 1], [pairs.id], fresh)
    for start, limit in [*((0, size) for size in sizes), (upper, upper + 1)]:
        half.slices.add(start=start, limit=limit, stride=1)
    return [pairs, half, _as(instruction, "reshape", [half.id])]


def _combine(instruction: Any, fresh: FreshIds) -> list[Any]:
    """Return instructions that replace a custom call: join 32-bit halves into 64-bit integers."""
    sizes = list(instruction.shape.dimensions)
    halves = [
        _make("reshape", [*sizes, 1], [operand], fresh) for operand in instruction.operand_ids
    ]
    pairs = _make("concatenate", [*sizes, PAIR], [half.id for half in halves], fresh)
    pairs.dimensions[:] = [len(sizes)]
    return [*halves, pairs, _as(instruction, "bitcast-convert", [pairs.id])]


def _make(
    opcode: str, sizes: Sequence[int], operands: Sequence[int], fresh: FreshIds, kind: int = U32
) -> Any:
    number = fresh.take()
    return MESSAGES["Instruction"](
        id=number, name=f"{opcode}.{number}", opcode=opcode, shape=make_shape(kind, sizes),
        operand_ids=operands,
    )  # fmt: skip


def _as(instruction: Any, opcode: str, operands: list[int]) -> Any:
    """Return an instruction with another opcode and operands, but the same id and shape."""
    return MESSAGES["Instruction"](
        id=instruction.id,
        name=f"{opcode}.{instruction.id}",
        opcode=opcode,
        shape=instruction.shape,
        operand_ids=operands,
    )
