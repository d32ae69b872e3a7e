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


def make_arguments(module: Any, name: str, seed: int = 0) -> list[np.ndarray]:
    """An array for each parameter of the entry of a message Module, in order.

    Raises InputError where a parameter is a tuple among others, or of a type that is not known.
    """
    generator = np.random.default_rng(seed)
    return [_make_array(shape, name, generator) for shape in find_parameters(module)]


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
        raise InputError(
            f"{name}: a parameter has XLA's element type {shape.element_type}, expected an array "
            "of numbers. Write the program so that its parameters are arrays."
        )
    sizes = tuple(shape.dimensions)
    if kind == "bool":
        return generator.random(sizes) < 0.5
    if "int" in kind:
        return generator.integers(0, HIGHEST_INTEGER, sizes).astype(kind)
    values = SCALE * generator.standard_normal(sizes)
    if kind == "bfloat16":
        import ml_dtypes  # comes with jax

        return values.astype(ml_dtypes.bfloat16)
    return values.astype(kind)
