"""Make a dumped module one that another backend compiles as well.

A dump of a TPU holds fusions of its own kinds, layouts in tiles, and 64-bit integers as pairs of
32-bit ones, which other backends refuse. All of these only say how, not what, so they are written
as the plain program that they stand for. Instructions keep their ids.
"""

from typing import Any

from solution.collecting.arguments import find_entry, is_tupled
from solution.data.hlo.messages import MESSAGES
from solution.data.hlo.nodes import find_places

TUPLE, OPAQUE, TOKEN = 13, 14, 17  # of XLA's PrimitiveType: they have no layout
U32 = 8
PAIR = 2
LOCAL_BITS = 32  # of an instruction's id


def make_portable(module: Any, *, keeps_boundary: bool = False) -> Any:
    """Return a copy of a message Module without anything that belongs to one backend.

    Args:
        keeps_boundary: keep the layouts of what crosses the program's boundary, the entry's
            parameters and infeeds, as the module has them; by default all layouts are row-major.
            Tiles are dropped in any case.
    """
    copy = MESSAGES["Module"].FromString(module.SerializeToString())
    for name in ("schedule", "input_output_alias", "buffer_donor"):
        copy.ClearField(name)
    fresh = FreshIds(copy)
    entry = find_entry(copy).id
    for computation in copy.computations:
        rewritten = []
        boundary = ("infeed", "parameter") if computation.id == entry else ("infeed",)
        for instruction in computation.instructions:
            _lay_out(instruction.shape, keeps=keeps_boundary and instruction.opcode in boundary)
            if instruction.opcode == "fusion":
                instruction.opcode = "call"
            rewritten += _join_halves(instruction, fresh)
        replace_instructions(computation, _write_old_forms(rewritten, fresh))
    if is_tupled(copy):
        _take_apart(copy, fresh)
    return copy


class FreshIds:
    """Numbers that no instruction of a module has.

    XLA keeps only the lower half of a number inside a computation, the upper one names the
    computation. So a new number's lower half is above all others, whichever computation it joins.
    """

    def __init__(self, module: Any) -> None:
        taken = list(find_places(module))
        lower = max(number % 2**LOCAL_BITS for number in taken)
        self._last = max(taken) - max(taken) % 2**LOCAL_BITS + lower

    def take(self) -> int:
        self._last += 1
        return self._last


def replace_instructions(computation: Any, instructions: list[Any]) -> None:
    """Give a computation other instructions."""
    copies = [MESSAGES["Instruction"].FromString(i.SerializeToString()) for i in instructions]
    del computation.instructions[:]
    computation.instructions.extend(copies)


def lay_out(shape: Any) -> list[int]:
    """Row-major, minor to major."""
    return list(range(len(shape.dimensions)))[::-1]


def _take_apart(module: Any, fresh: FreshIds) -> None:
    """A parameter for each part of the tuple that is the entry's only one."""
    entry = find_entry(module)
    (whole,) = (i for i in entry.instructions if i.opcode == "parameter")
    parts = [
        _make_parameter(place, shape, fresh) for place, shape in enumerate(whole.shape.tuple_shapes)
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


def _make_parameter(place: int, shape: Any, fresh: FreshIds) -> Any:
    number = fresh.take()
    return MESSAGES["Instruction"](
        id=number,
        name=f"parameter.{number}",
        opcode="parameter",
        shape=shape,
        parameter_number=place,
    )


def _lay_out(shape: Any, *, keeps: bool = False) -> None:
    """Make a shape row-major, or keep the order of its dimensions where `keeps`; drop its tiles."""
    for part in shape.tuple_shapes:
        _lay_out(part, keeps=keeps)
    if shape.element_type not in (TUPLE, OPAQUE, TOKEN):
        order = list(shape.layout.minor_to_major)
        shape.ClearField("layout")  # with its tiles
        is_kept = keeps and sorted(order) == list(range(len(shape.dimensions)))
        shape.layout.minor_to_major[:] = order if is_kept else lay_out(shape)


def _write_old_forms(instructions: list[Any], fresh: FreshIds) -> list[Any]:
    """Write forms that only the compiler of the time took as what they stand for.

    A copy changes the layout alone, so it is a reshape to the same sizes. A reshape that also
    changes the element type is a reshape, and a conversion of what that gives.
    """
    types = {instruction.id: instruction.shape.element_type for instruction in instructions}
    written = []
    for instruction in instructions:
        is_array = instruction.shape.element_type not in (TUPLE, OPAQUE, TOKEN)
        if instruction.opcode == "copy" and is_array:
            instruction = _as(instruction, "reshape", list(instruction.operand_ids))
        elif instruction.opcode == "reshape":
            before = types[instruction.operand_ids[0]]
            if before != instruction.shape.element_type:
                shape = MESSAGES["Shape"](
                    element_type=before, dimensions=instruction.shape.dimensions
                )
                _lay_out(shape)
                number = fresh.take()
                reshaped = MESSAGES["Instruction"](
                    id=number,
                    name=f"reshape.{number}",
                    opcode="reshape",
                    shape=shape,
                    operand_ids=instruction.operand_ids,
                )
                written.append(reshaped)
                instruction = _as(instruction, "convert", [number])
        written.append(instruction)
    return written


def _join_halves(instruction: Any, fresh: FreshIds) -> list[Any]:
    """64-bit integers cut into halves and joined again, by conversions that all backends have."""
    write = {"X64SplitLow": _split, "X64SplitHigh": _split, "X64Combine": _combine}
    if instruction.opcode != "custom-call" or instruction.custom_call_target not in write:
        return [instruction]
    return write[instruction.custom_call_target](instruction, fresh)


def _split(instruction: Any, fresh: FreshIds) -> list[Any]:
    """The lower or the upper half: bits as pairs of 32, one of each pair, its dimension dropped."""
    place = int(instruction.custom_call_target == "X64SplitHigh")
    sizes = list(instruction.shape.dimensions)
    pairs = _make("bitcast-convert", [*sizes, PAIR], list(instruction.operand_ids), fresh)
    half = _make("slice", [*sizes, 1], [pairs.id], fresh)
    for start, limit in [*((0, size) for size in sizes), (place, place + 1)]:
        half.slices.add(start=start, limit=limit, stride=1)
    return [pairs, half, _as(instruction, "reshape", [half.id])]


def _combine(instruction: Any, fresh: FreshIds) -> list[Any]:
    sizes = list(instruction.shape.dimensions)
    halves = [
        _make("reshape", [*sizes, 1], [operand], fresh) for operand in instruction.operand_ids
    ]
    pairs = _make("concatenate", [*sizes, PAIR], [half.id for half in halves], fresh)
    pairs.dimensions[:] = [len(sizes)]
    return [*halves, pairs, _as(instruction, "bitcast-convert", [pairs.id])]


def _make(opcode: str, sizes: list[int], operands: list[int], fresh: FreshIds) -> Any:
    shape = MESSAGES["Shape"](element_type=U32, dimensions=sizes)
    _lay_out(shape)
    number = fresh.take()
    return MESSAGES["Instruction"](
        id=number, name=f"{opcode}.{number}", opcode=opcode, shape=shape, operand_ids=operands
    )


def _as(instruction: Any, opcode: str, operands: list[int]) -> Any:
    """The instruction with its id and shape, but another operation."""
    return MESSAGES["Instruction"](
        id=instruction.id,
        name=f"{opcode}.{instruction.id}",
        opcode=opcode,
        shape=instruction.shape,
        operand_ids=operands,
    )
