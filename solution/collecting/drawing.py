"""Draw arguments for a program without any: random numbers in its parameters' types and sizes."""

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from solution.collecting.arguments import NAMES, find_parameters
from solution.collecting.roles import Role, find_roles
from solution.system.errors import InputError

VERSION = 2  # of the drawing rules: other numbers make another program of the same module
HIGHEST_INTEGER = 8  # exclusive bound of integers, which are mostly indices
SPREAD = 0.5  # standard deviation of the logarithms of numbers that must be positive
POWERS = (-2, 3)  # exponents of 2 for the one type that has only powers of 2
PART = 1 << 20  # numbers drawn at once as float64, to limit memory
# Types that cannot be drawn: they hold no numbers, or the CPU's compiler rejects them.
WITHOUT_NUMBERS = ("invalid", "tuple", "opaque", "token", "s1", "u1")


@dataclass(frozen=True)
class Manner:
    """A way to draw numbers; others than the first are tried if its results are useless."""

    scale: float = 1.0  # factor of numbers that may be negative; below 1 of weights too
    is_positive: bool = False  # draw all numbers positive, not only where a root needs it
    bounds: tuple[float, float] | None = None  # draw all numbers between these
    seed: int = 0


MANNERS = (
    Manner(),
    Manner(scale=100.0, seed=1),  # for a training step, which changes its weights only a little
    Manner(scale=0.1, seed=5),
    Manner(is_positive=True, seed=2),
    Manner(bounds=(0.05, 0.95), seed=3),  # for 1 - x, arcsines and logits
    Manner(bounds=(1.5, 3.0), seed=4),  # for x - 1
)


def make_arguments(module: Any, name: str, manner: Manner = MANNERS[0]) -> list[np.ndarray]:
    """Return an array for each parameter of the entry of a message Module, in order.

    Numbers are normal, or log-normal if the program needs positive ones. Weights are divided by the
    root of the number of summed products, so that results neither vanish nor overflow.

    Raises InputError if a parameter is a tuple among others, or of an unknown type.
    """
    generator = np.random.default_rng(manner.seed)
    shapes, roles = find_parameters(module), find_roles(module)
    return [
        _make_array(shape, f"{name}: parameter {number}", role, manner, generator)
        for number, (shape, role) in enumerate(zip(shapes, roles, strict=True))
    ]


def check_memory(module: Any, name: str, megabytes: int) -> None:
    """Raise InputError if the arguments would exceed the program's memory limit."""
    sizes = [
        prod(shape.dimensions) * dtype.itemsize
        for number, shape in enumerate(find_parameters(module))
        for dtype in [find_dtype(shape, f"{name}: parameter {number}")]
    ]
    if sum(sizes) > megabytes * 2**20:
        largest = max(range(len(sizes)), key=sizes.__getitem__)
        raise InputError(
            f"{name}: its arguments take {sum(sizes) / 2**20:,.0f} MB (parameter {largest} alone "
            f"{sizes[largest] / 2**20:,.0f} MB), more than the {megabytes:,} MB that it may take. "
            "Give more with --megabytes, or write the program for smaller arrays."
        )


def list_draws(module: Any, name: str) -> Iterator[list[np.ndarray]]:
    """Yield arguments drawn in one manner after the other."""
    for manner in MANNERS:
        yield make_arguments(module, name, manner)


def _make_array(
    shape: Any, name: str, role: Role, manner: Manner, generator: np.random.Generator
) -> np.ndarray:
    array = np.empty(tuple(shape.dimensions), find_dtype(shape, name))
    flat = array.reshape(-1)
    for begin in range(0, len(flat), PART):
        part = flat[begin : begin + PART]
        drawn = _draw(array.dtype, len(part), role, manner, generator)
        if array.dtype.itemsize == 1:  # numbers beyond a narrow type's range would become NaN
            drawn = np.clip(drawn, *_find_ends(array.dtype))
        part[:] = drawn
    return array


def _draw(
    dtype: np.dtype[Any], count: int, role: Role, manner: Manner, generator: np.random.Generator
) -> np.ndarray:
    if dtype.kind == "b":
        return generator.random(count) < 0.5
    limits = _find_limits(dtype)
    if limits is not None:
        lowest, highest = limits  # of the two narrowest types, draw from the full range
        begin = lowest if highest < HIGHEST_INTEGER // 2 else 0
        return generator.integers(begin, min(HIGHEST_INTEGER, highest + 1), count)
    if dtype.name == "float8_e8m0fnu":
        return 2.0 ** generator.integers(*POWERS, count)
    if manner.bounds is not None:
        return generator.uniform(*manner.bounds, count)
    drawn = generator.standard_normal(count)
    if role.is_positive or manner.is_positive:
        return np.exp(SPREAD * drawn) / np.sqrt(role.terms)
    scale = (manner.scale if role.terms == 1 else min(1.0, manner.scale)) / np.sqrt(role.terms)
    if dtype.kind == "c":
        return scale * (drawn + 1j * generator.standard_normal(count))
    return scale * drawn


def _find_ends(dtype: np.dtype[Any]) -> tuple[float, float]:
    """Return the smallest and the largest number of a type."""
    import ml_dtypes  # comes with jax

    limits = _find_limits(dtype)
    if limits is not None:
        return limits
    if dtype.kind == "b":
        return 0, 1
    found = ml_dtypes.finfo(dtype)
    return float(found.min), float(found.max)


def _find_limits(dtype: np.dtype[Any]) -> tuple[int, int] | None:
    """Return the smallest and the largest integer of a type; None if it is no integer type."""
    import ml_dtypes  # comes with jax

    if dtype.kind == "c":
        return None
    try:
        found = ml_dtypes.iinfo(dtype)
    except ValueError:
        return None
    return int(found.min), int(found.max)


def find_dtype(shape: Any, name: str) -> np.dtype[Any]:
    """Return the numpy type of an array's shape; ml_dtypes has those that numpy lacks."""
    import ml_dtypes

    number = shape.element_type
    names = NAMES.split()
    kind = names[number] if 0 <= number < len(names) else str(number)
    spelled = _spell(kind)
    if kind not in WITHOUT_NUMBERS and hasattr(ml_dtypes, spelled):
        return np.dtype(getattr(ml_dtypes, spelled))
    try:
        if kind in WITHOUT_NUMBERS:
            raise TypeError
        return np.dtype(spelled)
    except TypeError as error:
        known = ", ".join(one for one in names if one not in WITHOUT_NUMBERS)
        raise InputError(
            f"{name} is of type {kind}, which is not supported. Write the program so that its "
            f"parameters are arrays of {known}."
        ) from error


def _spell(kind: str) -> str:
    """Return a type's name in numpy or ml_dtypes: f32 is float32, f8e4m3fn float8_e4m3fn."""
    if kind in ("pred", "bf16"):
        return {"pred": "bool", "bf16": "bfloat16"}[kind]
    words = {"s": "int", "u": "uint", "f": "float", "c": "complex"}
    letter, rest = kind[0], kind[1:]
    width, e, form = rest.partition("e")
    return f"{words.get(letter, letter)}{width}" + (f"_{e}{form}" if e else "")
