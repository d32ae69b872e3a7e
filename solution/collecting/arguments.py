"""Find the parameters of a program's entry computation: their shapes and types."""

from typing import Any

TUPLE = 13  # in XLA's PrimitiveType
# numpy's type names by the numbers of PrimitiveType; bfloat16 comes from ml_dtypes.
DTYPES = {1: "bool", 2: "int8", 3: "int16", 4: "int32", 5: "int64", 6: "uint8", 7: "uint16",
          8: "uint32", 9: "uint64", 10: "float16", 11: "float32", 12: "float64", 15: "complex64",
          16: "bfloat16", 18: "complex128"}  # fmt: skip
# Type names in XLA's text, by the numbers of PrimitiveType.
NAMES = (
    "invalid pred s8 s16 s32 s64 u8 u16 u32 u64 f16 f32 f64 tuple opaque c64 bf16 token c128 "
    "f8e5m2 f8e4m3fn s4 u4 f8e4m3b11fnuz f8e5m2fnuz f8e4m3fnuz s2 u2 f8e4m3 f8e3m4 s1 u1 "
    "f4e2m1fn f8e8m0fnu"
)


def find_parameters(module: Any) -> list[Any]:
    """Return the shapes of the entry's parameters; if the only one is a tuple, of its elements."""
    shapes = _find_shapes(module)
    return list(shapes[0].tuple_shapes) if is_tupled(module) else shapes


def is_tupled(module: Any) -> bool:
    """Return True if the entry has one parameter, a tuple of all arguments."""
    shapes = _find_shapes(module)
    return len(shapes) == 1 and shapes[0].element_type == TUPLE


def _find_shapes(module: Any) -> list[Any]:
    parameters = [i for i in find_entry(module).instructions if i.opcode == "parameter"]
    return [i.shape for i in sorted(parameters, key=lambda i: int(i.parameter_number))]


def find_entry(module: Any) -> Any:
    """Return the entry computation; the last one if the module does not name it."""
    named = [c for c in module.computations if c.id == module.entry_computation_id]
    return named[0] if named else module.computations[-1]
