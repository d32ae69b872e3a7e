"""Which opcodes run a kernel, and how they may be fused."""

import numpy as np

from solution.domain.vocabulary import NUM_OPCODES, OPCODE_IDS
from solution.placement.graphs.cost_graph import ALONE, DATA, ELEMENTWISE, PRODUCT, REDUCTION

_OPCODES = {
    ELEMENTWISE: """
        abs add and atan2 bitcast-convert broadcast cbrt ceil clamp compare complex convert cosine
        divide exponential exponential-minus-one floor imag is-finite log log-plus-one logistic map
        maximum minimum multiply negate not or popcnt power real reduce-precision remainder reshape
        reverse round-nearest-afz round-nearest-even rsqrt select shift-left shift-right-arithmetic
        shift-right-logical sign sine slice sqrt stochastic-convert subtract tan tanh transpose xor
        """,
    REDUCTION: "reduce",
    PRODUCT: "dot convolution",
    DATA: """
        add-dependency after-all bitcast constant get-tuple-element iota opt-barrier parameter
        partition-id replica-id tuple
        """,
}


def _make_table() -> np.ndarray:
    table = np.full(NUM_OPCODES, ALONE, np.uint8)
    for kind, names in _OPCODES.items():
        table[[OPCODE_IDS[name] for name in names.split()]] = kind
    return table


FUSION_KINDS = _make_table()  # (opcodes,) uint8; an unknown opcode runs alone
