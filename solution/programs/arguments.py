"""Find a program's parameters, and draw random arguments for them.

The use of a parameter decides which numbers are drawn. Square roots, logarithms and divisors need
positive numbers: a negative variance would make every result NaN, and NaN reveals no errors.
Weights must be small if a dot or convolution sums many terms; otherwise the results of a deep
program overflow, or do not depend on its first layers.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from solution.programs.hlo.messages import instructions
from solution.programs.replies import find_type
from solution.system.errors import InputError

# the element type "tuple" in XLA's PrimitiveType
TUPLE = 13
# numpy's type names, by number of XLA's PrimitiveType; bfloat16 comes from ml_dtypes.
DTYPES = {1: "bool", 2: "int8", 3: "int16", 4: "int32", 5: "int64", 6: "uint8", 7: "uint16",
          8: "uint32", 9: "uint64", 10: "float16", 11: "float32", 12: "float64", 15: "complex64",
          16: "bfloat16", 18: "complex128"}  # fmt: skip
# Type names in XLA's text, in the order of PrimitiveType's numbers, from 0.
_NAMES = (
    "invalid pred s8 s16 s32 s64 u8 u16 u32 u64 f16 f32 f64 tuple opaque c64 bf16 token c128 "
    "f8e5m2 f8e4m3fn s4 u4 f8e4m3b11fnuz f8e5m2fnuz f8e4m3fnuz s2 u2 f8e4m3 f8e3m4 s1 u1 "
    "f4e2m1fn f8e8m0fnu"
)
TYPE_NAMES = _NAMES.split()
VERSION = 2  # version of the drawing rules; increase it if they draw other numbers
HIGHEST_INTEGER = 8  # exclusive upper bound on drawn integers, because most of them are indices
SPREAD = 0.5  # standard deviation of the logarithms of numbers that must be positive
POWERS = (-2, 3)  # range of the exponents drawn for float8_e8m0fnu, which has only powers of 2
PART = 1 << 20  # maximum number of float64 numbers drawn at once, to limit memory
# Element types that cannot be drawn: they hold no numbers, or the CPU's compiler rejects them.
WITHOUT_NUMBERS = ("invalid", "tuple", "opaque", "token", "s1", "u1")
# {opcode: positions of the operands that must be positive}
POSITIVE = {"sqrt": (0,), "rsqrt": (0,), "log": (0,), "log-plus-one": (0,), "power": (0,),
            "divide": (1,), "batch-norm-inference": (4,)}  # fmt: skip
# Opcodes whose result consists of elements of the first operand (assumed for custom calls).
_MOVES = (
    "reshape broadcast transpose copy convert slice bitcast reverse dynamic-slice gather "
    "reduce-precision optimization-barrier pad custom-call copy-start copy-done"
)
MOVES = frozenset(_MOVES.split())
# {opcode: positions of operands that must be positive to make the result positive; None: all}
KEEPS: dict[str, tuple[int, ...] | None] = {
    **dict.fromkeys(MOVES, (0,)), "reduce": (0,), "reduce-window": (0,), "subtract": (0,),
    "power": (0,), "select": (1, 2), "dynamic-update-slice": (0, 1), "add": None, "multiply": None,
    "divide": None, "maximum": None, "minimum": None, "dot": None, "convolution": None,
    "concatenate": None,
}  # fmt: skip
# Opcodes whose operands are the arguments of the computation that they call.
INSIDE = ("call", "fusion", "map", "async-start")
# a value: (id of an instruction, index of an element of its result; None: the whole result)
Value = tuple[int, int | None]


def find_parameters(module: Any) -> list[Any]:
    """Return the shapes of the entry's parameters; if the only parameter is a tuple of all
    arguments, the shapes of its elements."""
    shapes = _find_shapes(module)
    return list(shapes[0].tuple_shapes) if is_tupled(module) else shapes


def is_tupled(module: Any) -> bool:
    """Return True if the entry's single parameter is a tuple of all arguments."""
    shapes = _find_shapes(module)
    return len(shapes) == 1 and shapes[0].element_type == TUPLE


def _find_shapes(module: Any) -> list[Any]:
    parameters = [i for i in find_entry(module).instructions if i.opcode == "parameter"]
    return [i.shape for i in sorted(parameters, key=lambda i: int(i.parameter_number))]


def find_entry(module: Any) -> Any:
    """Return the entry computation; the last computation if the module names none."""
    named = [c for c in module.computations if c.id == module.entry_computation_id]
    return named[0] if named else module.computations[-1]


@dataclass(frozen=True)
class Role:
    """The use of a parameter, which decides which numbers are drawn for it."""

    # True: a root, a logarithm or a division needs positive numbers
    is_positive: bool = False
    # number of terms (multiplications) that a dot or convolution sums for each element of its
    # result, if the parameter is its weight; otherwise 1
    terms: int = 1


def find_roles(module: Any) -> list[Role]:
    """Return the role of each parameter of the entry of a message Module, by parameter number."""
    flow = _Flow(module)
    positive = flow.find_parameters(_list_positive(module), _list_kept)
    terms = _find_terms(module, flow)
    count = 1 + max(flow.parameters.values(), default=-1)
    return [Role(number in positive, terms.get(number, 1)) for number in range(count)]


class _Flow:
    """Traces values of a module back to the parameters of its entry, through calls, loops,
    conditionals and tuples."""

    def __init__(self, module: Any) -> None:
        self._nodes = {i.id: i for i in instructions(module)}
        self._roots = {c.id: c.root_id for c in module.computations}
        self._home = {i.id: c.id for c in module.computations for i in c.instructions}
        self._callers: dict[int, list[Any]] = defaultdict(list)
        for instruction in instructions(module):
            for called in instruction.called_computation_ids:
                self._callers[called].append(instruction)
        entry = find_entry(module)
        self._entry = entry.id
        self._is_tupled = is_tupled(module)
        # {a parameter of the entry, or an element of a tuple parameter: parameter number}
        self.parameters: dict[Value, int] = {}
        for instruction in entry.instructions:
            if instruction.opcode == "parameter":
                self._number(instruction)

    def find_parameters(
        self, starts: Iterable[Value], follow: Callable[[Any], Iterable[int]]
    ) -> set[int]:
        """Return the numbers of the entry's parameters from which the values `starts` are computed.
        `follow(instruction)` returns the positions of the operands that are traced further."""
        waiting, seen = list(starts), set[Value]()
        while waiting:
            value = waiting.pop()
            if value not in seen and value[0] in self._nodes:
                seen.add(value)
                waiting += self._list_sources(value, follow)
        return {self.parameters[value] for value in seen & self.parameters.keys()}

    def _number(self, parameter: Any) -> None:
        if self._is_tupled:
            for number in range(len(parameter.shape.tuple_shapes)):
                self.parameters[parameter.id, number] = number
        else:
            self.parameters[parameter.id, None] = int(parameter.parameter_number)

    def _list_sources(
        self, value: Value, follow: Callable[[Any], Iterable[int]]
    ) -> Iterator[Value]:
        """Yield the values from which a value is computed, one step back."""
        number, element = value
        node = self._nodes[number]
        operands = list(node.operand_ids)
        if node.opcode == "get-tuple-element":
            yield operands[0], int(node.tuple_index)
        elif node.opcode == "tuple" and element is not None:
            yield operands[element], None
        elif node.opcode == "parameter":
            yield from self._list_given(node, element)
        elif node.opcode in (*INSIDE, "conditional", "while"):
            called = node.called_computation_ids
            # A loop calls a body and a condition; its result is the body's result.
            bodies = called[:1] if node.opcode == "while" else called
            yield from ((self._roots[body], element) for body in bodies if body in self._roots)
            if node.opcode == "while":
                yield operands[0], element
        else:
            yield from ((operands[p], None) for p in follow(node) if p < len(operands))

    def _list_given(self, parameter: Any, element: int | None) -> Iterator[Value]:
        """Yield the values that callers pass to a parameter (or to an element of it); a loop passes
        its initial state, and its body's result."""
        home = self._home[parameter.id]
        if home == self._entry:
            return
        for caller in self._callers[home]:
            operands = list(caller.operand_ids)
            if caller.opcode in INSIDE and parameter.parameter_number < len(operands):
                yield operands[parameter.parameter_number], element
            elif caller.opcode == "while":
                yield operands[0], element
                body = caller.called_computation_ids[0]
                if body in self._roots:
                    yield self._roots[body], element
            elif caller.opcode == "conditional":
                branches = list(caller.called_computation_ids)
                for branch, operand in zip(branches, operands[1:], strict=False):
                    if branch == home:
                        yield operand, element


def _list_positive(module: Any) -> Iterator[Value]:
    """Yield the values that must be positive, see POSITIVE."""
    for instruction in instructions(module):
        for operand in POSITIVE.get(instruction.opcode, ()):
            if operand < len(instruction.operand_ids):
                yield instruction.operand_ids[operand], None


def _list_kept(node: Any) -> Iterable[int]:
    """Return the positions of the operands that must be positive to make the result positive."""
    if node.opcode == "multiply" and len(set(node.operand_ids)) == 1:
        return ()  # x * x is positive for any x, so x need not be positive
    kept = KEEPS.get(node.opcode, ())
    return range(len(node.operand_ids)) if kept is None else kept


def _list_moved(node: Any) -> Iterable[int]:
    """Return the positions of the operands whose elements make up the result (see MOVES)."""
    return (0,) if node.opcode in MOVES else ()


def _find_terms(module: Any, flow: _Flow) -> dict[int, int]:
    """Return {parameter number: number of terms summed per result element}, for parameters that are
    the weight of a dot or convolution.

    The weight is the second factor, or the first one if the second is not made of a parameter. If a
    parameter is the weight of several instructions, the largest number counts."""
    shapes = {i.id: i.shape for i in instructions(module)}
    terms: dict[int, int] = {}
    for node in instructions(module):
        if node.opcode not in ("dot", "convolution") or len(node.operand_ids) < 2:
            continue
        for operand in (node.operand_ids[1], node.operand_ids[0]):
            found = flow.find_parameters([(operand, None)], _list_moved)
            if found:
                summed = _count_terms(node, shapes)
                terms |= {parameter: max(summed, terms.get(parameter, 1)) for parameter in found}
                break
    return terms


def _count_terms(node: Any, shapes: dict[int, Any]) -> int:
    left, right = (list(shapes[operand].dimensions) for operand in list(node.operand_ids)[:2])
    if node.opcode == "dot":
        return prod(left[axis] for axis in node.dot.lhs_contracting_dimensions)
    numbers = node.convolution
    axes = [numbers.kernel_input_feature_dimension, *numbers.kernel_spatial_dimensions]
    return prod(right[axis] for axis in axes)


@dataclass(frozen=True)
class Manner:
    """A way to draw random numbers; MANNERS are tried in turn until the results reveal errors."""

    # factor of normally distributed numbers (which may be negative); for weights at most 1 is used
    scale: float = 1.0
    # True: draw only positive numbers, also for parameters that do not need them
    is_positive: bool = False
    # if given: draw all numbers uniformly between these bounds
    bounds: tuple[float, float] | None = None
    seed: int = 0


MANNERS = (
    Manner(),
    # larger inputs (not weights), for training steps that change the weights only a little
    Manner(scale=100.0, seed=1),
    Manner(scale=0.1, seed=5),
    Manner(is_positive=True, seed=2),
    Manner(bounds=(0.05, 0.95), seed=3),  # for programs with 1 - x, arcsines or logits
    Manner(bounds=(1.5, 3.0), seed=4),  # for programs with x - 1
)


def make_arguments(module: Any, name: str, manner: Manner = MANNERS[0]) -> list[np.ndarray]:
    """Draw an array for each parameter of a Module's entry, in order. Floats are normally
    distributed, or log-normally if they must be positive. Weights are divided by the root of the
    number of terms summed (Role.terms), so that results neither vanish nor overflow. Raises
    InputError for tuples and types that cannot be drawn."""
    generator = np.random.default_rng(manner.seed)
    shapes, roles = find_parameters(module), find_roles(module)
    return [
        _make_array(shape, f"{name}: parameter {number}", role, manner, generator)
        for number, (shape, role) in enumerate(zip(shapes, roles, strict=True))
    ]


def check_memory(module: Any, name: str, megabytes: int) -> None:
    """Raise InputError if the arguments would take more than `megabytes`."""
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
    """Yield arguments for the program, once for each way to draw numbers in MANNERS, in order."""
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
        if array.dtype.itemsize == 1:  # clip numbers that a narrow type would turn into NaN
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
        # draw from 0 upwards; for 2-bit types, which hold only four numbers, from the lowest one
        lowest, highest = limits
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
    """Return the smallest and the largest number of an integer or float type."""
    import ml_dtypes  # installed with jax

    limits = _find_limits(dtype)
    if limits is not None:
        return limits
    if dtype.kind == "b":
        return 0, 1
    found = ml_dtypes.finfo(dtype)
    return float(found.min), float(found.max)


def _find_limits(dtype: np.dtype[Any]) -> tuple[int, int] | None:
    """Return the smallest and the largest integer of an integer type; None for other types."""
    import ml_dtypes  # installed with jax

    if dtype.kind == "c":
        return None
    try:
        found = ml_dtypes.iinfo(dtype)
    except ValueError:
        return None
    return int(found.min), int(found.max)


def find_dtype(shape: Any, name: str) -> np.dtype[Any]:
    """Return a Shape's numpy (or ml_dtypes) type; InputError, about `name`, if it has none."""
    number = shape.element_type
    kind = TYPE_NAMES[number] if 0 <= number < len(TYPE_NAMES) else str(number)
    if kind not in WITHOUT_NUMBERS:
        with suppress(AttributeError):
            return find_type(_spell(kind))
    known = ", ".join(one for one in TYPE_NAMES if one not in WITHOUT_NUMBERS)
    raise InputError(
        f"{name} is of type {kind}, which is not supported. Write the program so that its "
        f"parameters are arrays of {known}."
    )


def _spell(kind: str) -> str:
    """Return numpy's or ml_dtypes' name of XLA's type: f32 is float32, f8e4m3fn float8_e4m3fn."""
    if kind in ("pred", "bf16"):
        return {"pred": "bool", "bf16": "bfloat16"}[kind]
    words = {"s": "int", "u": "uint", "f": "float", "c": "complex"}
    letter, rest = kind[0], kind[1:]
    width, e, form = rest.partition("e")
    return f"{words.get(letter, letter)}{width}" + (f"_{e}{form}" if e else "")
