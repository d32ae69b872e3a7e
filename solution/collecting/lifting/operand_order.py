"""Restore the operand order of each node, and repeat operands that are read twice.

The edges of a graph are a set: an operand that is read twice has one edge, and a node's operands
are sorted by their numbers. Mostly the types and shapes determine the order; otherwise it is
guessed, and the guess is recorded in the draft (a graph that is being turned back into a program).
"""

import math
from collections.abc import Callable, Sequence

from solution.collecting.lifting.draft import INTEGERS, PRED, TOKEN, Draft
from solution.collecting.lifting.products import order_convolution, order_dots

COMMUTATIVE = ("add", "multiply", "maximum", "minimum", "and", "or", "xor")
ORDERED_NAMES = """
    subtract divide power remainder atan2 complex compare shift-left shift-right-arithmetic
    shift-right-logical
"""
ORDERED = frozenset(ORDERED_NAMES.split())
# If a division reads a constant and the result of one of these opcodes, the constant is assumed to
# be the dividend: 1 / sqrt(x).
RECIPROCAL = ("add", "exponential", "sqrt")
CALLS = ("call", "fusion")  # opcodes that may have no operands
SEARCHED = 63  # about how many ancestors of one operand are searched for the other operand


def order_operands(draft: Draft) -> list[list[int]]:
    """Return each node's operands in HLO's order. Raises NotLiftedError if operands are missing or
    do not fit the opcode."""
    ordered = [list(operands) for operands in draft.operands]
    dots = [node for node, opcode in enumerate(draft.opcodes) if opcode == "dot"]
    for node, opcode in enumerate(draft.opcodes):
        rule = RULES.get(opcode)
        if rule is not None:
            if not ordered[node] and opcode not in CALLS:
                raise draft.refuse(node, "no edge says what it reads")
            try:
                ordered[node] = rule(draft, node, ordered[node])
            except (IndexError, KeyError) as error:
                raise draft.refuse(node, "it reads too little, or other ranks") from error
    for node, pair in order_dots(draft, dots).items():
        ordered[node] = pair
    return ordered


def _order_binary(draft: Draft, node: int, operands: list[int]) -> list[int]:
    """Return the two operands in the order that is usual in known programs; record the guess.

    * A constant is the second operand. Exceptions: it is the first operand if it is divided by a
      square or by the result of an opcode in RECIPROCAL, or if the other operand is subtracted from
      it (see _is_subtrahend).
    * In a division, a broadcast is the divisor.
    * If an operation is commutative and one operand is computed from the other, the computed one is
      first: f(x) + x. This holds for 51 of 52 such multiplications in the U-Net's tuning record.
    * Otherwise the operands are in the order of their nodes.
    """
    if len(operands) == 1:
        return operands * 2
    opcode = draft.opcodes[node]
    draft.guesses.add(f"order of the operands of {opcode}", node)
    if _has_one_constant(draft, operands):
        other, constant = sorted(operands, key=lambda one: _is_constant(draft, one))
        is_first = opcode in FROM_CONSTANT and FROM_CONSTANT[opcode](draft, other)
        return [constant, other] if is_first else [other, constant]
    if opcode in COMMUTATIVE:
        early, late = operands  # in the order of their nodes
        is_computed = early in _find_ancestors(draft, late, least=early, most=SEARCHED)
        return [late, early] if is_computed else operands
    is_last = [opcode == "divide" and draft.opcodes[one] == "broadcast" for one in operands]
    return operands[::-1] if is_last == [True, False] else operands


def _is_divisor(draft: Draft, other: int) -> bool:
    """Guess whether a division is constant / `other` (True) or `other` / constant (False)."""
    is_square = draft.opcodes[other] == "multiply" and len(draft.operands[other]) == 1
    return is_square or draft.opcodes[other] in RECIPROCAL


def _is_subtrahend(draft: Draft, other: int) -> bool:
    """Guess whether a difference is constant - `other` (True) or `other` - constant (False). It is
    False only if `other` is itself a difference with a constant, as in `n - i - 1`."""
    is_difference = draft.opcodes[other] == "subtract"
    return not (is_difference and _has_one_constant(draft, draft.operands[other]))


# {opcode: function (draft, other operand) that returns True if the constant is the first operand}
FROM_CONSTANT = {"divide": _is_divisor, "subtract": _is_subtrahend}


def _has_one_constant(draft: Draft, operands: Sequence[int]) -> bool:
    return sum(_is_constant(draft, one) for one in operands) == 1


def _is_constant(draft: Draft, node: int) -> bool:
    return draft.find_constant(node) is not None


def _order_select(draft: Draft, node: int, operands: list[int]) -> list[int]:
    """Return a select's operands: predicate, value if true, value if false."""
    flags = [one for one in operands if draft.kinds[one] == PRED]
    if not flags:
        raise draft.refuse(node, "none of its operands is a predicate")
    rest = [one for one in operands if one != flags[0]] or [flags[0]]
    if len(operands) == len(flags) > 1 or len(rest) == 2:
        draft.guesses.add("order of the operands of select", node)
        # in most programs, a constant is the second of the two values to select from
        rest.sort(key=lambda one: _is_constant(draft, one))
    return [flags[0], rest[0], rest[-1]]


def _order_clamp(draft: Draft, node: int, operands: list[int]) -> list[int]:
    """Return a clamp's operands: lower bound, value, upper bound. The value is an operand of the
    node's type, if possible not a constant."""
    fitting = [one for one in operands if draft.key(one) == draft.key(node)] or operands
    value = min(fitting, key=lambda one: _is_constant(draft, one))
    bounds = [one for one in operands if one != value] or [value]
    draft.guesses.add("order of the operands of clamp", node)
    return [bounds[0], value, bounds[-1]]


def _order_reduction(draft: Draft, node: int, operands: list[int]) -> list[int]:
    """Return a reduction's operands: the tensors, then their initial values. Several tensors are
    ordered by the types of the parameters of the called computation."""
    if len(operands) == 1:
        return operands * 2
    count = max(1, draft.parts[node])
    by_rank = sorted(operands, key=lambda one: -len(draft.sizes[one]))
    if count == 1:
        return [by_rank[0], by_rank[-1]]
    rank = len(draft.sizes[by_rank[0]])
    tensors = [one for one in operands if len(draft.sizes[one]) == rank]
    initial = [one for one in operands if one not in tensors] or tensors
    called = draft.called[node]
    kinds = [draft.kinds[one] for one in draft.parameters(called[0])] if called else []
    wanted = kinds[:count] if len(kinds) == 2 * count else [draft.kinds[one] for one in tensors]
    draft.guesses.add("order of the operands of a reduction of several tensors", node)
    return [*_match_kinds(draft, wanted, tensors), *_match_kinds(draft, wanted, initial)]


def _match_kinds(draft: Draft, wanted: Sequence[int], pool: Sequence[int]) -> list[int]:
    """Return a node of `pool` with each element type in `wanted`, see _match."""
    return _match(wanted, pool, lambda one: draft.kinds[one])[0]


def _match(
    wanted: Sequence[object], pool: Sequence[int], describe: Callable[[int], object]
) -> tuple[list[int], bool]:
    """Return a node of `pool` for each type in `wanted`, and True if two nodes of `pool` have the
    same type (`describe` returns a node's type). The n-th occurrence of a type gets the n-th node
    of this type, or of `pool` if no node has the type; if there are fewer nodes, the last one."""
    by_type: dict[object, list[int]] = {}
    for one in pool:
        by_type.setdefault(describe(one), []).append(one)
    taken: dict[object, int] = {}
    found = []
    for kind in wanted:
        fitting = by_type.get(kind) or list(pool)
        count = taken.get(kind, 0)
        found.append(fitting[min(count, len(fitting) - 1)])
        taken[kind] = count + 1
    return found, any(len(fitting) > 1 for fitting in by_type.values())


def _order_scattered_window(draft: Draft, node: int, operands: list[int]) -> list[int]:
    """Return a select-and-scatter's operands: tensor, source, initial value."""
    whole = [one for one in operands if draft.sizes[one] == draft.sizes[node]]
    initial = [one for one in operands if not draft.sizes[one]]
    if not whole or not initial:
        raise draft.refuse(node, "its operand or its initial value is missing")
    sources = [one for one in operands if one not in (whole[0], initial[0])] or whole[:1]
    # put the called computation `select`, which returns a predicate, before `scatter`
    draft.called[node].sort(key=lambda root: draft.kinds[root] != PRED)
    return [whole[0], sources[0], initial[0]]


def _order_padding(draft: Draft, node: int, operands: list[int]) -> list[int]:
    """Return a pad's operands: the tensor, then the padding value."""
    if len(operands) == 1:
        return operands * 2
    return sorted(operands, key=lambda one: -len(draft.sizes[one]))[:2]


def _order_slice(draft: Draft, node: int, operands: list[int]) -> list[int]:
    """Return a dynamic slice's operands: tensor, update (of a dynamic-update-slice), one index per
    dimension. If indices are missing, a constant index is repeated; the other indices are used for
    dimensions that the slice shortens, then for the others."""
    is_update = draft.opcodes[node] == "dynamic-update-slice"
    rank = len(draft.sizes[node])
    kind = draft.kinds[node], rank
    tensors = [one for one in operands if (draft.kinds[one], len(draft.sizes[one])) == kind]
    if is_update:
        tensors.sort(key=lambda one: draft.sizes[one] != draft.sizes[node])
    tensors = (tensors * 2 if len(tensors) == 1 else tensors)[: 1 + is_update]
    indices = [one for one in operands if one not in tensors] or operands[:1]
    if not tensors:
        raise draft.refuse(node, "none of its operands has its rank")
    if len(draft.sizes[indices[0]]) == 1 and rank != 0:
        return [*tensors, indices[0]]  # older form of the operation: one vector holds all indices
    whole = draft.sizes[tensors[0]]
    part = draft.sizes[tensors[1]] if is_update else draft.sizes[node]
    return [*tensors, *_spread_indices(draft, node, indices, whole, part)]


def _spread_indices(
    draft: Draft, node: int, indices: list[int], whole: Sequence[int], part: Sequence[int]
) -> list[int]:
    """Return one index per dimension, see _order_slice. `whole`, `part`: sizes of tensor, slice."""
    rank = len(whole)
    if len(indices) == rank:
        if rank > 1:
            draft.guesses.add(f"order of the indices of {draft.opcodes[node]}", node)
        return indices
    draft.guesses.add(f"which index of {draft.opcodes[node]} is read twice", node)
    fixed = [one for one in indices if draft.opcodes[one] == "constant"] or indices
    moving = [one for one in indices if one is not fixed[0]]
    found = [fixed[0]] * rank
    cut = [axis for axis in range(rank) if whole[axis] != part[axis]]
    others = [axis for axis in range(rank) if axis not in cut]
    for axis, one in zip([*cut, *others], moving, strict=False):
        found[axis] = one
    return found


def _order_gather(draft: Draft, node: int, operands: list[int]) -> list[int]:
    """Return a gather's operands: tensor (of the node's element type), indices (integers)."""
    if len(operands) == 1:
        return operands * 2
    indices = [one for one in operands if draft.kinds[one] in INTEGERS]
    tensors = [one for one in operands if draft.kinds[one] == draft.kinds[node]]
    if not indices or not tensors:
        raise draft.refuse(node, "it reads no integers, or no tensor of its type")
    if len(indices) == len(tensors) == 2:
        draft.guesses.add("order of the operands of gather", node)
        tensors.sort(key=lambda one: -len(draft.sizes[one]))
    return [tensors[0], next(one for one in indices[::-1] if one != tensors[0])]


def _order_scatter(draft: Draft, node: int, operands: list[int]) -> list[int]:
    """Return a scatter's operands: tensor, indices, updates."""
    whole = [one for one in operands if draft.key(one) == draft.key(node)]
    if not whole or draft.parts[node]:
        raise draft.refuse(node, "it scatters into several tensors, or into none of its shape")
    rest = [one for one in operands if one != whole[0]] or whole
    indices = [one for one in rest if draft.kinds[one] in INTEGERS] or rest
    updates = [one for one in rest if one != indices[0]] or [indices[0]]
    if draft.kinds[node] in INTEGERS:
        draft.guesses.add("order of the operands of scatter", node)
    return [whole[0], indices[0], updates[0]]


def _order_arguments(draft: Draft, node: int, operands: list[int]) -> list[int]:
    """Return a call's arguments, ordered by the types of the called computation's parameters."""
    called = draft.called[node]
    if not called:
        return operands
    wanted = [draft.key(one) for one in draft.parameters(called[0])]
    if wanted and not operands:
        raise draft.refuse(node, "no edge says what it is called with")
    if draft.opcodes[node] == "map":
        return _match_kinds(draft, [kind for kind, _, _ in wanted], operands)
    # The first arguments of a gradient are values that the forward pass kept (see Draft.is_kept).
    kept_first = sorted(operands, key=lambda one: not draft.is_kept(one))
    found, is_guess = _match(wanted, kept_first, draft.key)
    if is_guess:
        draft.guesses.add(f"order of the arguments of {draft.opcodes[node]}", node)
    return found


def _order_sort(draft: Draft, node: int, operands: list[int]) -> list[int]:
    """Return a sort's tensors, ordered by the types of the comparator's parameters (two each)."""
    called = draft.called[node]
    kinds = [draft.kinds[one] for one in draft.parameters(called[0])][::2] if called else []
    count = max(1, draft.parts[node])
    if len(kinds) != count:
        return (operands * count)[:count]
    if count > 1:
        draft.guesses.add("order of the operands of sort", node)
    return _match_kinds(draft, kinds, operands)


def _order_outfeed(draft: Draft, node: int, operands: list[int]) -> list[int]:
    """Return an outfeed's operands: the values, then the token."""
    return sorted(operands, key=lambda one: draft.kinds[one] == TOKEN)


def _order_random(draft: Draft, node: int, operands: list[int]) -> list[int]:
    """Return an rng's operands: lower bound, upper bound (guessed: in the order of the nodes)."""
    if len(operands) > 1:
        draft.guesses.add("order of the operands of rng", node)
    return [operands[0], operands[-1]]


def _order_normalization(draft: Draft, node: int, operands: list[int]) -> list[int]:
    """Return a batch normalization's operands: tensor, vectors (the last one is repeated if some
    are missing), and the second tensor of a batch-norm-grad."""
    counts = {"batch-norm-training": 3, "batch-norm-inference": 5, "batch-norm-grad": 5}
    tensors = [one for one in operands if len(draft.sizes[one]) > 1]
    vectors = [one for one in operands if one not in tensors]
    if not tensors or not vectors:
        raise draft.refuse(node, "its tensor or its scale is missing")
    is_gradient = draft.opcodes[node] == "batch-norm-grad"
    number = counts[draft.opcodes[node]] - 1 - is_gradient
    filled = [*vectors, *[vectors[-1]] * number][:number]
    draft.guesses.add(f"order of the operands of {draft.opcodes[node]}", node)
    return [tensors[0], *filled, *tensors[-1:][:is_gradient]]


def _order_concatenation(draft: Draft, node: int, operands: list[int]) -> list[int]:
    """Return a concatenation's operands; repeat one if the result is longer than all together."""
    axis = int(draft.features[node, 31])
    missing = draft.sizes[node][axis] - sum(draft.sizes[one][axis] for one in operands)
    found = list(operands)
    while missing > 0:
        fitting = [one for one in operands if missing % draft.sizes[one][axis] == 0]
        if not fitting:
            raise draft.refuse(node, "the sizes of its parts do not add up to its size")
        found += [fitting[0]] * (missing // draft.sizes[fitting[0]][axis])
        draft.guesses.add("repeated part of concatenate", node)
        missing = 0
    if len(found) > 1:
        draft.guesses.add("order of the parts of concatenate", node)
    return found


def _order_solver(draft: Draft, node: int, operands: list[int]) -> list[int]:
    """Return a triangular solve's operands: matrix, right-hand sides (of the node's type)."""
    other = [one for one in operands if draft.key(one) == draft.key(node)] or operands
    matrix = [one for one in operands if one != other[-1]] or operands
    return [matrix[0], other[-1]]


def order_results(draft: Draft, results: list[int]) -> None:
    """Sort, in place, the elements of the tuple that a called computation returns, in jax's order:
    results, then values kept for the gradient: derivatives, intermediates, arguments or constants.
    """
    is_derivative = {one: _is_derivative(draft, one) for one in results}
    inner: set[int] = set()
    for one in results:
        if not is_derivative[one]:
            inner |= _find_ancestors(draft, one)
    results.sort(
        key=lambda one: (
            draft.opcodes[one] == "parameter" or _is_constant(draft, one),
            one in inner and not is_derivative[one],
            is_derivative[one],
        )
    )


def _is_derivative(draft: Draft, node: int) -> bool:
    """Return True if a node has the form `1 - y` or `y * (1 - y)`, like derivatives of sigmoids."""
    return any(
        draft.opcodes[one] == "subtract" and _has_one_constant(draft, draft.operands[one])
        for one in (node, *draft.operands[node])
    )


def _find_ancestors(draft: Draft, node: int, least: int = 0, most: float = math.inf) -> set[int]:
    """Return the ancestors of a node: nodes, with numbers from `least` on, from which its value is
    computed. The search stops after `most` ancestors. Operands have smaller numbers than readers.
    """
    found: set[int] = set()
    waiting = [node]
    while waiting and len(found) < most:
        for one in draft.operands[waiting.pop()]:
            if one >= least and one not in found:
                found.add(one)
                waiting.append(one)
    return found


# {opcode: function (draft, node, sorted operands) that returns the operands in HLO's order}
RULES: dict[str, Callable[[Draft, int, list[int]], list[int]]] = {
    **dict.fromkeys([*COMMUTATIVE, *ORDERED], _order_binary),
    **dict.fromkeys(["reduce", "reduce-window"], _order_reduction),
    **dict.fromkeys(["dynamic-slice", "dynamic-update-slice"], _order_slice),
    **dict.fromkeys(["call", "fusion", "map"], _order_arguments),
    **dict.fromkeys(
        ["batch-norm-training", "batch-norm-inference", "batch-norm-grad"], _order_normalization
    ),
    "select": _order_select,
    "clamp": _order_clamp,
    "convolution": order_convolution,
    "select-and-scatter": _order_scattered_window,
    "pad": _order_padding,
    "gather": _order_gather,
    "scatter": _order_scatter,
    "sort": _order_sort,
    "outfeed": _order_outfeed,
    "rng": _order_random,
    "concatenate": _order_concatenation,
    "triangular-solve": _order_solver,
}
