"""Draw random numbers for constants whose numbers are missing in a module's text.

XLA prints such a constant as {...}; solution.programs.forms replaces it by a custom call before the
text is parsed. The drawn numbers depend only on the module, so each reading gives the same program.
"""

from typing import Any

import numpy as np

from solution.programs.arguments import HIGHEST_INTEGER, POWERS, TUPLE
from solution.programs.compiler import encode_field
from solution.programs.forms import HLO, LEFT_OUT
from solution.programs.hlo.messages import MESSAGES, instructions
from solution.system.errors import InputError

# Size limit of a protobuf message, and size of the largest type of number, both in bytes.
MAX_BYTES, BYTES = 1 << 31, 16
SCALE = 0.1  # standard deviation of the drawn floats
SHAPE, TUPLES = 1, 10  # field numbers of LiteralProto in XLA's xla_data.proto
VARINT = "varint"  # integers in protobuf's variable-length encoding
FOUR_BITS, POWERS_ONLY = "float4_e2m1fn", "float8_e8m0fnu"
# {number of XLA's PrimitiveType: (field number in LiteralProto, numpy type or VARINT)}
FIELDS = {
    1: (2, "bool"), 2: (15, "int8"), 3: (17, "<i2"), 4: (4, VARINT), 5: (5, VARINT),
    6: (3, "uint8"), 7: (16, "<u2"), 8: (6, VARINT), 9: (7, VARINT), 10: (11, "<f2"),
    11: (8, "<f4"), 12: (9, "<f8"), 15: (12, "<c8"), 16: (13, "bfloat16"), 18: (18, "<c16"),
    19: (19, "float8_e5m2"), 20: (20, "float8_e4m3fn"), 23: (23, "float8_e4m3b11fnuz"),
    21: (21, "int4"), 22: (22, "uint4"), 24: (24, "float8_e5m2fnuz"), 25: (25, "float8_e4m3fnuz"),
    26: (26, "int2"), 27: (27, "uint2"), 28: (28, "float8_e4m3"), 29: (29, "float8_e3m4"),
    32: (32, FOUR_BITS), 33: (33, POWERS_ONLY),
}  # fmt: skip
# integers below a byte: (lowest drawn number, exclusive upper bound, mask of their bits)
NARROW = {"int4": (0, 8, 15), "uint4": (0, 8, 15), "int2": (-2, 2, 3), "uint2": (0, 4, 3)}


def find_left_out(module: Any) -> list[Any]:
    """Return a message Module's custom calls that replace constants missing in its text."""
    return [
        instruction
        for instruction in instructions(module)
        if instruction.opcode == "custom-call" and instruction.custom_call_target == LEFT_OUT
    ]


def restore_constants(module: Any, name: str, *, fill: bool) -> int:
    """Turn the instructions that `find_left_out` returns into constants, in place; return how many
    numbers these hold. `fill`: draw the numbers, without which the module cannot run. Raises
    InputError if numbers of their type cannot be drawn, or if they are too many."""
    found, count = find_left_out(module), 0
    numbers = sum(_count(instruction.shape) for instruction in found)
    if fill and BYTES * numbers > MAX_BYTES:
        raise InputError(
            f"{name}: constants of {numbers:,} numbers are left out of the text, more than can be "
            f"drawn ({MAX_BYTES // BYTES:,}). Dump the module with its large constants."
        )
    for number, instruction in enumerate(found):
        kept = MESSAGES["Instruction"](
            id=instruction.id, name=instruction.name, opcode="constant", shape=instruction.shape
        )
        if fill:
            literal = _draw_literal(instruction.shape, np.random.default_rng([0, number]), name)
            kept.literal.ParseFromString(literal)
        count += _count(instruction.shape)
        instruction.CopyFrom(kept)
    return count


def describe_left_out(form: str, constants: int, numbers: int) -> str:
    """Return a sentence for the user on the constants left out of a text; "" if there are none.
    `form`: HLO or STABLEHLO; `constants`: their number; `numbers`: total number of elements."""
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
    """Return a serialized LiteralProto of a shape, with random numbers."""
    found = encode_field(SHAPE, shape.SerializeToString())
    if shape.element_type == TUPLE:
        parts = [_draw_literal(part, generator, name) for part in shape.tuple_shapes]
        return found + b"".join(encode_field(TUPLES, part) for part in parts)
    count = _count(shape)
    if shape.element_type not in FIELDS:
        raise InputError(
            f"{name}: a constant of {count:,} numbers of XLA's type {shape.element_type} is left "
            "out of the text, and cannot be drawn. Dump the module with its large constants."
        )
    field, kind = FIELDS[shape.element_type]
    return found + encode_field(field, _draw(kind, count, generator))


def _draw(kind: str, count: int, generator: np.random.Generator) -> bytes:
    if kind == "bool":
        return (generator.random(count) < 0.5).tobytes()
    if kind == VARINT:
        return generator.integers(0, HIGHEST_INTEGER, count).astype(np.uint8).tobytes()
    if kind in NARROW:
        low, high, bits = NARROW[kind]
        return (generator.integers(low, high, count) & bits).astype(np.uint8).tobytes()
    if "float" in kind:
        import ml_dtypes  # installed with jax

        if kind == POWERS_ONLY:
            drawn = 2.0 ** generator.integers(*POWERS, count)
        else:
            drawn = (1.0 if kind == FOUR_BITS else SCALE) * generator.standard_normal(count)
        return drawn.astype(np.dtype(getattr(ml_dtypes, kind))).tobytes()
    dtype = np.dtype(kind)
    if dtype.kind in "iu":
        return generator.integers(0, HIGHEST_INTEGER, count).astype(dtype).tobytes()
    return (SCALE * generator.standard_normal(count)).astype(dtype).tobytes()
