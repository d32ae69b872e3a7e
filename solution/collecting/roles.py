"""Find how a program uses its parameters, as far as it matters for drawing their numbers.

Square roots, logarithms and divisors need positive numbers: a negative variance would make every
result NaN, and a comparison of NaN shows nothing. Weights must be small where many products are
summed, or a deep program's results overflow, or do not depend on its first layers.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from math import prod
from typing import Any

from solution.collecting.arguments import find_entry, is_tupled
from solution.data.hlo.messages import instructions

# Positions of operands that must be positive, by opcode.
POSITIVE = {"sqrt": (0,), "rsqrt": (0,), "log": (0,), "log-plus-one": (0,), "power": (0,),
            "divide": (1,), "batch-norm-inference": (4,)}  # fmt: skip
# Opcodes whose result consists of the first operand's numbers, as far as it matters here.
_MOVES = (
    "reshape broadcast transpose copy convert slice bitcast reverse dynamic-slice gather "
    "reduce-precision optimization-barrier pad custom-call copy-start copy-done"
)
MOVES = frozenset(_MOVES.split())
# Opcodes whose result is positive if these operands are; None: all of them.
KEEPS: dict[str, tuple[int, ...] | None] = {
    **dict.fromkeys(MOVES, (0,)), "reduce": (0,), "reduce-window": (0,), "subtract": (0,),
    "power": (0,), "select": (1, 2), "dynamic-update-slice": (0, 1), "add": None, "multiply": None,
    "divide": None, "maximum": None, "minimum": None, "dot": None, "convolution": None,
    "concatenate": None,
}  # fmt: skip
# their operands become the called computation's parameters
INSIDE = ("call", "fusion", "map", "async-start")
Value = tuple[int, int | None]  # an instruction, and an element of its tuple


@dataclass(frozen=True)
class Role:
    """How the numbers of a parameter are used."""

    is_positive: bool = False  # a root, a logarithm or a division needs it
    terms: int = 1  # number of summed products in which the parameter is a factor


def find_roles(module: Any) -> list[Role]:
    """Return the role of each array parameter of a message Module's entry."""
    flow = _Flow(module)
    positive = flow.find_parameters(_list_positive(module), _list_kept)
    terms = _find_terms(module, flow)
    count = 1 + max((place for place in flow.parameters.values()), default=-1)
    return [Role(place in positive, terms.get(place, 1)) for place in range(count)]


class _Flow:
    """Traces values back to parameters, through operands, calls, loops, conditionals and tuples."""

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
        self.parameters: dict[Value, int] = {}  # the entry's parameters, by value
        for instruction in entry.instructions:
            if instruction.opcode == "parameter":
                self._number(instruction)

    def find_parameters(
        self, starts: Iterable[Value], follow: Callable[[Any], Iterable[int]]
    ) -> set[int]:
        """Return the numbers of the parameters from which values are computed.

        Args:
            follow: returns the positions of the operands through which to trace an instruction
                back.
        """
        waiting, seen = list(starts), set[Value]()
        while waiting:
            value = waiting.pop()
            if value not in seen and value[0] in self._nodes:
                seen.add(value)
                waiting += self._list_sources(value, follow)
        return {self.parameters[value] for value in seen & self.parameters.keys()}

    def _number(self, parameter: Any) -> None:
        if self._is_tupled:
            for place in range(len(parameter.shape.tuple_shapes)):
                self.parameters[parameter.id, place] = place
        else:
            self.parameters[parameter.id, None] = int(parameter.parameter_number)

    def _list_sources(
        self, value: Value, follow: Callable[[Any], Iterable[int]]
    ) -> Iterator[Value]:
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
            # The condition's result is not the loop's result.
            bodies = called[:1] if node.opcode == "while" else called
            yield from ((self._roots[body], element) for body in bodies if body in self._roots)
            if node.opcode == "while":
                yield operands[0], element
        else:
            yield from ((operands[p], None) for p in follow(node) if p < len(operands))

    def _list_given(self, parameter: Any, element: int | None) -> Iterator[Value]:
        """Return the values that callers pass to a parameter of their called computation."""
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
                given = operands[1:]
                yield from (
                    (given[place], element)
                    for place, branch in enumerate(branches)
                    if branch == home and place < len(given)
                )


def _list_positive(module: Any) -> Iterator[Value]:
    for instruction in instructions(module):
        for place in POSITIVE.get(instruction.opcode, ()):
            if place < len(instruction.operand_ids):
                yield instruction.operand_ids[place], None


def _list_kept(node: Any) -> Iterable[int]:
    if node.opcode == "multiply" and len(set(node.operand_ids)) == 1:
        return ()  # x * x is positive for any x, so x need not be
    kept = KEEPS.get(node.opcode, ())
    return range(len(node.operand_ids)) if kept is None else kept


def _list_moved(node: Any) -> Iterable[int]:
    return (0,) if node.opcode in MOVES else ()


def _find_terms(module: Any, flow: _Flow) -> dict[int, int]:
    """Return, by parameter number, how many products are summed where it is a factor.

    Of two factors the second counts as the weight; the first only if the second depends on no
    parameter.
    """
    shapes = {i.id: i.shape for i in instructions(module)}
    terms: dict[int, int] = {}
    for node in instructions(module):
        if node.opcode not in ("dot", "convolution") or len(node.operand_ids) < 2:
            continue
        for operand in (node.operand_ids[1], node.operand_ids[0]):
            found = flow.find_parameters([(operand, None)], _list_moved)
            if found:
                summed = _count_terms(node, shapes)
                terms |= {place: max(summed, terms.get(place, 1)) for place in found}
                break
    return terms


def _count_terms(node: Any, shapes: dict[int, Any]) -> int:
    left, right = (list(shapes[operand].dimensions) for operand in list(node.operand_ids)[:2])
    if node.opcode == "dot":
        return prod(left[axis] for axis in node.dot.lhs_contracting_dimensions)
    numbers = node.convolution
    axes = [numbers.kernel_input_feature_dimension, *numbers.kernel_spatial_dimensions]
    return prod(right[axis] for axis in axes)
