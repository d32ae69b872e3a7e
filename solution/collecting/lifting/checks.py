"""Check that the sizes of element-wise operations and their operands fit, before a graph is lifted.

Other operations infer their attributes from sizes, and are refused there.
"""

from math import prod

from solution.collecting.lifting.draft import TUPLE, Draft
from solution.collecting.lifting.operand_order import COMMUTATIVE, ORDERED

UNARY_NAMES = """
    abs cbrt ceil convert copy cosine count-leading-zeros exponential exponential-minus-one floor
    imag is-finite log log-plus-one logistic negate not popcnt real reduce-precision
    round-nearest-afz round-nearest-even rsqrt sign sine sqrt tan tanh
"""
UNARY = frozenset(UNARY_NAMES.split())
BINARY = frozenset([*COMMUTATIVE, *ORDERED])
REORDERS = frozenset({"reshape", "transpose", "reverse"})
SINGLE = UNARY | REORDERS | {"broadcast", "slice", "bitcast-convert", "get-tuple-element"}
# By opcode, the largest number of operands.
MOST = dict.fromkeys(SINGLE, 1) | dict.fromkeys(BINARY, 2) | {"select": 3, "clamp": 3}


def check_operands(draft: Draft) -> None:
    """Check numbers and sizes of operands.

    Raises:
        NotLiftedError: a node has too many or too few operands, or operands of other sizes.
    """
    for node, opcode in enumerate(draft.opcodes):
        most = MOST.get(opcode)
        if most is None:
            continue
        operands = draft.operands[node]
        if not operands:
            raise draft.refuse(node, "no edge says what it reads")
        if len(operands) > most:
            raise draft.refuse(node, f"it reads {len(operands)} nodes, but takes {most}")
        sizes = draft.sizes[node]
        for one in operands if draft.kinds[node] != TUPLE else ():
            read = draft.sizes[one]
            if read != sizes and not _is_fit(opcode, sizes, read):
                raise draft.refuse(
                    node, f"its sizes {sizes} do not fit {read}, those of node {one}"
                )


def _is_fit(opcode: str, sizes: tuple[int, ...], read: tuple[int, ...]) -> bool:
    """True if an operation whose operand has sizes `read` may have a result of other sizes."""
    if opcode in ("select", "clamp"):
        return not read
    if opcode in REORDERS:
        return prod(read) == prod(sizes)
    if opcode == "broadcast":
        return prod(sizes) % max(1, prod(read)) == 0
    return opcode not in UNARY and opcode not in BINARY
