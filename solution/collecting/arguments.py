"""Arguments for a program that brings none: random numbers of its parameters' types and sizes."""

from typing import Any

import numpy as np

from solution.system.errors import InputError

TUPLE = 13  # of XLA's PrimitiveType
SCALE = 0.1  # of random numbers: products of many layers stay finite
HIGHEST_INTEGER = 8  # integers are below: mostly they are positions in something
# By the numbers of XLA's PrimitiveType. bfloat16 is not one of numpy's own.
DTYPES = {1: "bool", 2: "int8", 3: "int16", 4: "int32", 5: "int64", 6: "uint8", 7: "uint16",
          8: "uint32", 9: "uint64", 10: "float16", 11: "float32", 12: "float64", 15: "complex64",
          16: "bfloat16", 18: "complex128"}  # fmt: skip
# In XLA's text, in the order of the numbers.
NAMES = (
    "invalid pred s8 s16 s32 s64 u8 u16 u32 u64 f16 f32 f64 tuple opaque c64 bf16 token c128 "
    "f8e5m2 f8e4m3fn s4 u4 f8e4m3b11fnuz f8e5m2fnuz f8e4m3fnuz s2 u2 f8e4m3 f8e3m4 s1 u1 "
    "f4e2m1fn f8e8m0fnu"
)
PART = 1 << 20  # numbers drawn at once: they are float64, which all of them need not fit into


def make_arguments(module: Any, name: str, seed: int = 0) -> list[np.ndarray]:
    """An array for each parameter of the entry of a message Module, in order.

    Raises InputError where a parameter is a tuple among others, or of a type that is not known.
    """
    generator = np.random.default_rng(seed)
    return [
        _make_array(shape, f"{name}: parameter {number}", generator)
        for number, shape in enumerate(find_parameters(module))
    ]


def find_parameters(module: Any) -> list[Any]:
    """The shapes of what the entry computation is called with; of an only tuple, its parts."""
    shapes = _find_shapes(module)
    return list(shapes[0].tuple_shapes) if is_tupled(module) else shapes


def is_tupled(module: Any) -> bool:
    """Whether the entry has one parameter, a tuple of all that it is called with."""
    shapes = _find_shapes(module)
    return len(shapes) == 1 and shapes[0].element_type == TUPLE


def _find_shapes(module: Any) -> list[Any]:
    parameters = [i for i in find_entry(module).instructions if i.opcode == "parameter"]
    return [i.shape for i in sorted(parameters, key=lambda i: int(i.parameter_number))]


def find_entry(module: Any) -> Any:
    """The entry computation; where the module does not name it, the last."""
    named = [c for c in module.computations if c.id == module.entry_computation_id]
    return named[0] if named else module.computations[-1]


def _make_array(shape: Any, name: str, generator: np.random.Generator) -> np.ndarray:
    kind = DTYPES.get(shape.element_type)
    if kind is None:
        names = dict(enumerate(NAMES.split()))
        known = ", ".join(names[number] for number in DTYPES)
        raise InputError(
            f"{name} is of type {names.get(shape.element_type, shape.element_type)}, which is not "
            f"supported. Write the program so that its parameters are arrays of {known}."
        )
    array = np.empty(tuple(shape.dimensions), _find_dtype(kind))
    flat = array.reshape(-1)
    for begin in range(0, len(flat), PART):
        part = flat[begin : begin + PART]
        part[:] = _draw(kind, len(part), generator)
    return array


def _draw(kind: str, count: int, generator: np.random.Generator) -> np.ndarray:
    if kind == "bool":
        return generator.random(count) < 0.5
    if "int" in kind:
        return generator.integers(0, HIGHEST_INTEGER, count)
    return SCALE * generator.standard_normal(count)


def _find_dtype(kind: str) -> np.dtype[Any]:
    if kind != "bfloat16":
        return np.dtype(kind)
    import ml_dtypes  # comes with jax

    return np.dtype(ml_dtypes.bfloat16)
