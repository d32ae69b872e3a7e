"""Replace constants that a text was printed without by drawn numbers.

The numbers depend on the module alone, so a program is the same each time it is read.
"""

from typing import Any

import numpy as np

from solution.programs.forms import HLO, LEFT_OUT
from solution.programs.hlo.messages import MESSAGES, instructions
from solution.system.errors import InputError

MAX_BYTES = 1 << 31  # limit of a protobuf message
SCALE = 0.1  # standard deviation of floats, as of drawn arguments
HIGHEST_INTEGER = 8  # exclusive bound of integers
SHAPE, TUPLES = 1, 10  # fields of LiteralProto, in xla_data.proto of XLA
TUPLE = 13  # in XLA's PrimitiveType
# By number of XLA's PrimitiveType: the field of LiteralProto that holds the numbers, and their
# numpy type. Integers of 32 and 64 bits are written as varints: small ones in a byte.
VARINT = "varint"
FIELDS = {
    1: (2, "bool"), 2: (15, "int8"), 3: (17, "<i2"), 4: (4, VARINT), 5: (5, VARINT),
    6: (3, "uint8"), 7: (16, "<u2"), 8: (6, VARINT), 9: (7, VARINT), 10: (11, "<f2"),
    11: (8, "<f4"), 12: (9, "<f8"), 15: (12, "<c8"), 16: (13, "bfloat16"), 18: (18, "<c16"),
    19: (19, "float8_e5m2"), 20: (20, "float8_e4m3fn"), 23: (23, "float8_e4m3b11fnuz"),
    24: (24, "float8_e5m2fnuz"), 25: (25, "float8_e4m3fnuz"), 28: (28, "float8_e4m3"),
    29: (29, "float8_e3m4"),
}  # fmt: skip


def find_left_out(module: Any) -> list[Any]:
    """Return the instructions of a message Module that replace left-out constants."""
    return [
        instruction
        for instruction in instructions(module)
        if instruction.opcode == "custom-call" and instruction.custom_call_target == LEFT_OUT
    ]


def restore_constants(module: Any, name: str, *, fill: bool) -> int:
    """Turn these instructions into constants, in place; return how many numbers they have.

    Args:
        name: of the program, for messages.
        fill: draw the numbers; they are not needed if nothing is run.

    Raises InputError if numbers of a type cannot be drawn, or are too many.
    """
    count = 0
    for place, instruction in enumerate(find_left_out(module)):
        kept = MESSAGES["Instruction"](
            id=instruction.id, name=instruction.name, opcode="constant", shape=instruction.shape
        )
        if fill:
            literal = _draw_literal(instruction.shape, np.random.default_rng([0, place]), name)
            kept.literal.ParseFromString(literal)
        count += _count(instruction.shape)
        instruction.CopyFrom(kept)
    return count


def describe_left_out(form: str, constants: int, numbers: int) -> str:
    """Return a sentence for the user; "" if nothing was left out."""
    if not constants:
        return ""
    how = (
        "Dump it with --xla_dump_large_constants in XLA_FLAGS, or with --xla_dump_hlo_as_proto"
        if form == HLO
        else "Print it with its large constants"
    )
    what = "constant is" if constants == 1 else "constants are"
    return (
        f"{constants} {what} left out of the text; {numbers:,} numbers drawn at random, the same "
        f"in every run, stand for them. {how}, if the true ones matter."
    )


def _count(shape: Any) -> int:
    if shape.element_type == TUPLE:
        return sum(map(_count, shape.tuple_shapes))
    return int(np.prod(np.array(shape.dimensions, np.float64)))


def _draw_literal(shape: Any, generator: np.random.Generator, name: str) -> bytes:
    """Draw a serialized LiteralProto of the shape."""
    found = _field(SHAPE, shape.SerializeToString())
    if shape.element_type == TUPLE:
        parts = [_draw_literal(part, generator, name) for part in shape.tuple_shapes]
        return found + b"".join(_field(TUPLES, part) for part in parts)
    count = _count(shape)
    if shape.element_type not in FIELDS or 16 * count > MAX_BYTES:
        raise InputError(
            f"{name}: a constant of {count:,} numbers of XLA's type {shape.element_type} is left "
            "out of the text, and cannot be drawn. Dump the module with its large constants."
        )
    field, kind = FIELDS[shape.element_type]
    return found + _field(field, _draw(kind, count, generator))


def _draw(kind: str, count: int, generator: np.random.Generator) -> bytes:
    if kind == "bool":
        return (generator.random(count) < 0.5).tobytes()
    if kind == VARINT:
        return generator.integers(0, HIGHEST_INTEGER, count).astype(np.uint8).tobytes()
    if "float" in kind:
        import ml_dtypes  # comes with jax

        drawn = SCALE * generator.standard_normal(count)
        return drawn.astype(np.dtype(getattr(ml_dtypes, kind))).tobytes()
    dtype = np.dtype(kind)
    if dtype.kind in "iu":
        return generator.integers(0, HIGHEST_INTEGER, count).astype(dtype).tobytes()
    return (SCALE * generator.standard_normal(count)).astype(dtype).tobytes()


def _field(number: int, data: bytes) -> bytes:
    """Encode a protobuf field that holds bytes."""
    return _varint(number << 3 | 2) + _varint(len(data)) + data


def _varint(number: int) -> bytes:
    found = bytearray()
    while number > 127:
        found.append(number & 127 | 128)
        number >>= 7
    return bytes([*found, number])
