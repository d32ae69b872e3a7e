"""Choose values of constants: a graph does not contain them, but some affect compilation.

If the readers of a constant determine its value (a sum starts with 0), the constant gets this
value. Other values are chosen so that the compiler's simplifications do not remove the constant.
"""

from collections.abc import Callable, Mapping
from math import prod
from typing import Any

import numpy as np

from solution.collecting.lifting.draft import FLOATS, INTEGERS, PRED, Draft
from solution.collecting.lifting.tuple_types import TupleTypes
from solution.features.propagation.inlining import ITERATIONS, guess_iterations
from solution.programs.arguments import DTYPES
from solution.programs.hlo.messages import MESSAGES

# Neutral elements of reductions; infinity stands for the type's largest or smallest number.
NEUTRAL = {"add": 0.0, "or": 0.0, "xor": 0.0, "multiply": 1.0, "and": 1.0,
           "maximum": -np.inf, "minimum": np.inf}  # fmt: skip
# {element type: field of Literal for its numbers}. LISTS: the field is a list of numbers; BYTES: it
# is bytes, and the second entry is numpy's type name.
LISTS = {1: "preds", 4: "s32s", 5: "s64s", 8: "u32s", 9: "u64s", 11: "f32s", 12: "f64s"}
BYTES = {2: ("s8s", "<i1"), 3: ("s16s", "<i2"), 6: ("u8s", "<u1"), 7: ("u16s", "<u2"),
         10: ("f16s", "<f2"), 16: ("bf16s", "bfloat16")}  # fmt: skip
PERIOD = 53  # the numbers in an array repeat with this period


def find_values(draft: Draft, types: TupleTypes) -> dict[int, float]:
    """Return {node of a constant: its value}, for constants whose readers determine the value."""
    values: dict[int, float] = {}
    for node, opcode in enumerate(draft.opcodes):
        rule = RULES.get(opcode)
        for number, one in enumerate(types.operands[node]) if rule is not None else ():
            source = draft.find_constant(one)
            value = rule(draft, node, number) if rule and source is not None else None
            if source is not None and value is not None:
                values.setdefault(source, value)
    for node in types.loops:
        _count_loop(draft, types, node, values)
    return values


def _start_reduction(draft: Draft, node: int, number: int) -> float | None:
    """Return a reduction's initial value: the neutral element of its operation, 0 if unknown. None
    if operand `number` is a reduced tensor."""
    count = max(1, draft.parts[node])
    if number < count:
        return None
    roots = draft.called[node]
    known = [NEUTRAL[draft.opcodes[root]] for root in roots if draft.opcodes[root] in NEUTRAL]
    return known[0] if known else 0.0


def _shift(draft: Draft, node: int, number: int) -> float | None:
    return 3.0 + node % 5 if number == 1 else None


def _index(draft: Draft, node: int, number: int) -> float | None:
    return 0.0 if number else None


def _bound(draft: Draft, node: int, number: int) -> float | None:
    return float(number)


def _limit(draft: Draft, node: int, number: int) -> float | None:
    """Return the constant operand of a maximum: -infinity if another operand is a max-reduction,
    else 0; None if the result is a scalar or not a float."""
    if draft.kinds[node] not in FLOATS or not draft.sizes[node]:
        return None
    reduced = (_find_reduction(draft, one) for one in draft.operands[node])
    return NEUTRAL["maximum"] if "maximum" in reduced else 0.0


def _find_reduction(draft: Draft, node: int) -> str:
    """Return the operation, such as add, of a reduction: the node itself, or the reduction that the
    node reshapes or converts; "" if there is none."""
    while draft.opcodes[node] in ("reshape", "convert") and draft.operands[node]:
        node = draft.operands[node][0]
    called = [draft.opcodes[root] for root in draft.called[node]]
    is_one = draft.opcodes[node] == "reduce" and not draft.parts[node] and len(called) == 1
    return called[0] if is_one else ""


def _average(draft: Draft, node: int, number: int) -> float | None:
    """Return the number of summed elements if a division turns a sum into a mean, with operand
    `number` as divisor; None if it does not divide a sum."""
    others = [one for one in draft.operands[node] if draft.find_constant(one) is None]
    if number == 0 or len(others) != 1:
        return None
    total = others[0]
    if _find_reduction(draft, total) != "add":
        return None
    while draft.opcodes[total] != "reduce":
        total = draft.operands[total][0]
    whole = max(prod(draft.sizes[one]) for one in draft.operands[total])
    return float(whole // max(1, prod(draft.sizes[total])))


def _let_through(draft: Draft, node: int, number: int) -> float | None:
    return 1.0 if draft.kinds[node] == PRED else None


# {opcode: function (draft, node, operand's number)}. The function returns the value that the node
# needs if this operand is a constant; None if the node does not determine the value.
RULES: dict[str, Callable[[Draft, int, int], float | None]] = {
    **dict.fromkeys(["reduce", "reduce-window"], _start_reduction),
    "select-and-scatter": lambda draft, node, number: 0.0 if number == 2 else None,
    "pad": _index,  # pad with 0
    **dict.fromkeys(["dynamic-slice", "dynamic-update-slice"], _index),  # start at 0
    **dict.fromkeys(["shift-left", "shift-right-logical", "shift-right-arithmetic"], _shift),
    "rng": _bound,  # from 0 to 1
    "maximum": _limit,
    "divide": _average,
    "and": _let_through,  # True, so that the other operand passes
}


def _count_loop(draft: Draft, types: TupleTypes, node: int, values: dict[int, float]) -> None:
    """Set the constants of a loop in `values` so that its counter grows from 0 to the number of
    iterations in steps of 1."""
    loop = types.loops[node]
    trips = find_trips(draft, types, node)
    for one in types.operands[loop.condition]:
        if draft.opcodes[one] == "constant":
            values[one] = trips
    if loop.counter is None:
        return
    (start,) = types.operands[node]
    if draft.opcodes[start] == "tuple":
        first = types.operands[start][loop.counter]
        if draft.opcodes[first] == "constant":
            values[first] = 0.0
    result = types.operands[loop.body][loop.counter]
    for one in types.operands[result]:
        if draft.opcodes[one] == "constant":
            values[one] = 1.0


def find_trips(draft: Draft, types: TupleTypes, node: int) -> int:
    """Guess a loop's number of iterations from the slices in its body and in what this
    calls; default: ITERATIONS."""
    root = types.loops[node].body
    found = guess_iterations(draft.graph, [root], draft.operands, draft.called)
    draft.guesses.add(
        "iterations of a loop, by its slices" if found else f"iterations of a loop: {ITERATIONS}",
        node,
    )
    return found or ITERATIONS


def make_literal(draft: Draft, node: int, shape: Any, values: Mapping[int, float]) -> Any:
    """Return a constant's Literal: filled with the node's value in `values`, or with varied numbers
    if it has none. Raises NotLiftedError if constants of the element type are not supported."""
    kind, sizes = draft.kinds[node], draft.sizes[node]
    count = int(np.prod(sizes, dtype=np.int64))
    literal = MESSAGES["Literal"](shape=shape)
    if kind in (15, 18):  # a complex number is a pair of floats
        numbers = _draw(node, 2 * count, 11, None).tolist()
        (literal.c64s if kind == 15 else literal.c128s).extend(numbers)
        return literal
    if kind not in DTYPES:
        raise draft.refuse(node, f"constants of XLA's element type {kind} cannot be written")
    drawn = _draw(node, count, kind, values.get(node))
    if kind in LISTS:
        getattr(literal, LISTS[kind]).extend(drawn.tolist())
    else:
        name, dtype = BYTES[kind]
        setattr(literal, name, _to_bytes(drawn, dtype))
    return literal


def _draw(node: int, count: int, kind: int, value: float | None) -> np.ndarray:
    """Return numbers (count,) of an element type: all `value`, or varied numbers if it is None."""
    steps = (np.arange(count) + node) % PERIOD
    if value is not None:
        numbers = np.full(count, value)
    elif kind == PRED:
        numbers = steps % 2 if count > 1 else np.zeros(count)
    elif kind in INTEGERS:
        numbers = 2 + steps % 7
    else:
        numbers = 0.11 + 0.0137 * steps
    if kind == PRED:
        return numbers.astype(bool)
    if kind in INTEGERS:
        limits = np.iinfo(DTYPES[kind])
        if not np.isfinite(numbers).all():
            return np.full(count, limits.min if numbers[0] < 0 else limits.max, DTYPES[kind])
        return numbers.astype(DTYPES[kind])
    return numbers.astype(np.float32)


def _to_bytes(numbers: np.ndarray, dtype: str) -> bytes:
    """Return numbers as little-endian bytes; bfloat16 is the upper half of a float32."""
    if dtype == "bfloat16":
        return (numbers.astype("<f4").view("<u4") >> 16).astype("<u2").tobytes()
    return numbers.astype(dtype).tobytes()
