"""List the custom calls that request layouts: one for each tensor whose layout is configurable.

For a TPU, the calls are the same as in a module that solution.collecting.tpu.asking writes. They
stand behind convolutions, dots and reshapes, and before reshapes. A configuration's layouts of the
operands of a convolution or dot have no effect, unless the operand comes from an infeed. Requested
layouts of results are propagated forward through instructions with the opcodes PROPAGATES. A call
stands behind each instruction that a propagated layout reaches, if a configurable node or a pooling
(WINDOWS) reads the instruction, or if its opcode is one of WRITES_FIXED.

An instance is an instruction after calls are inlined (solution.features.propagation.inlining).
"""

import numpy as np

from solution.domain import vocabulary
from solution.domain.graph import Graph
from solution.domain.vocabulary import LAYOUT_TENSORS, MAX_RANK, OPCODE_IDS
from solution.features.layout.tensors import INPUT, KERNEL, OUTPUT
from solution.features.operations import NONE, find_operands, tensor_ranks
from solution.features.propagation.backend import Backend
from solution.features.propagation.inlining import Inlined

ELEMENTWISE = """
abs add and atan2 bitcast-convert cbrt ceil clamp compare complex convert copy cosine
count-leading-zeros divide exponential exponential-minus-one floor imag is-finite log log-plus-one
logistic maximum minimum multiply negate not or popcnt power real reduce-precision remainder
round-nearest-afz round-nearest-even rsqrt select shift-left shift-right-arithmetic
shift-right-logical sign sine sqrt subtract tan tanh xor
"""
WINDOWS = frozenset({"reduce-window", "select-and-scatter"})
WRITES_FIXED = WINDOWS | {"concatenate", "compare", "transpose"}
PROPAGATES = WINDOWS | {*ELEMENTWISE.split(), "slice", "concatenate", "pad", "reverse", "transpose"}
INFEED, PART, RESHAPE = (OPCODE_IDS[name] for name in ("infeed", "get-tuple-element", "reshape"))


def _mark(names: frozenset[str]) -> np.ndarray:
    """Return a mask (opcodes,) of the opcodes in `names`; names without an opcode are left out."""
    marks = np.zeros(vocabulary.NUM_OPCODES, bool)
    marks[[OPCODE_IDS[name] for name in names if name in OPCODE_IDS]] = True
    return marks


IS_ELEMENTWISE = _mark(frozenset(ELEMENTWISE.split()))
IS_PROPAGATING, IS_POOLING, IS_FIXED = _mark(PROPAGATES), _mark(WINDOWS), _mark(WRITES_FIXED)

# operand number of a custom call that requests the layout of a result
BEHIND = -1
# A custom call: instance, operand number (or BEHIND), and the node and tensor whose layout it
# requests, as indices into graph.configurable and LAYOUT_TENSORS (NONE for propagated layouts).
Call = tuple[int, int, int, int]


def list_calls(graph: Graph, inlined: Inlined, backend: Backend) -> list[Call]:
    """Return a custom call for each tensor of rank >= 2 whose layout any configuration sets."""
    nodes, reads, named = inlined.node, inlined.reads, inlined.named
    operands, pairs = find_operands(graph), graph.layouts
    given = pairs.layouts[:, ::MAX_RANK] >= 0  # (pairs, tensors)
    used = np.zeros((len(graph.configurable), len(LAYOUT_TENSORS)), bool)
    np.logical_or.at(used, pairs.node, given)
    positions = {int(node): operand for operand, node in enumerate(graph.configurable)}
    if backend.device_layouts:
        _drop_operands(graph, used)
    ranks = tensor_ranks(graph)
    calls: list[Call] = []
    for instance, node in enumerate(nodes):
        position = positions.get(node, NONE)
        if position == NONE or instance in inlined.orders:
            continue
        for tensor, maker in ((INPUT, operands.input[node]), (KERNEL, operands.kernel[node])):
            matching = [
                operand
                for operand, (read, name) in enumerate(
                    zip(reads[instance], named[instance], strict=True)
                )
                if name == maker and ranks[nodes[read]] == ranks[maker]
            ]
            if used[position, tensor] and matching and 2 <= ranks[maker] <= MAX_RANK:
                operand = matching[-1 if tensor == KERNEL else 0]
                read = reads[instance][operand]
                reader = (read, 0) if read in inlined.orders else (instance, operand)
                calls.append((*reader, position, tensor))
        is_whole = instance not in inlined.matrices
        if used[position, OUTPUT] and is_whole and 2 <= ranks[node] <= MAX_RANK:
            calls.append((instance, BEHIND, position, OUTPUT))
    if backend.device_layouts:
        calls += _list_propagated(graph, inlined, {call[0] for call in calls if call[1] == BEHIND})
    return calls


def _drop_operands(graph: Graph, used: np.ndarray) -> None:
    """Set `used` (configurable, 3: output, input, kernel) to False for operands whose layouts have
    no effect on a TPU: operands of convolutions and dots, unless they come from an infeed."""
    operands, opcodes = find_operands(graph), graph.node_opcodes
    reads_infeed = np.zeros(graph.num_nodes, bool)
    reads_infeed[graph.edges[opcodes[graph.edges[:, 1]] == INFEED, 0]] = True
    is_fed = (opcodes == INFEED) | (reads_infeed & (opcodes == PART))
    node = graph.configurable
    for tensor, makers in ((INPUT, operands.input[node]), (KERNEL, operands.kernel[node])):
        is_kept = (opcodes[node] == RESHAPE) | ((makers != NONE) & is_fed[makers])
        used[:, tensor] &= is_kept


def _list_propagated(graph: Graph, inlined: Inlined, asked: set[int]) -> list[Call]:
    """Return the calls for tensors that are not configurable. Layouts requested for results of the
    instances `asked` are propagated forward. An instance that such a layout may reach gets a
    call if its opcode or one of its readers needs a fixed layout (see the module docstring)."""
    ranks, is_settable = tensor_ranks(graph), np.zeros(graph.num_nodes, bool)
    is_settable[graph.configurable] = True
    opcodes = graph.node_opcodes[inlined.node]
    propagates = IS_PROPAGATING[opcodes]
    # (instances,) True if a configurable node or a pooling reads the instance
    is_read = np.zeros(len(inlined.node), bool)
    reached = np.zeros(len(inlined.node), bool)
    calls: list[Call] = []
    for instance, (node, reads) in enumerate(zip(inlined.node, inlined.reads, strict=True)):
        is_read[reads] |= bool(is_settable[node] or IS_POOLING[opcodes[instance]])
        if is_settable[node]:
            reached[instance] = instance in asked
        elif propagates[instance] and 2 <= ranks[node] <= MAX_RANK:
            same = [one for one in reads if ranks[inlined.node[one]] == ranks[node]]
            reached[instance] = reached[same].any()
    is_fixed = reached & ~is_settable[inlined.node] & (is_read | IS_FIXED[opcodes])
    calls += [(int(instance), BEHIND, NONE, NONE) for instance in np.flatnonzero(is_fixed)]
    return calls


def find_forwarding(graph: Graph, node: np.ndarray) -> np.ndarray:
    """Return a mask (instances,) of instances that propagate requested layouts on a TPU. `node`:
    (instances,) the node of each instance."""
    is_settable = np.zeros(graph.num_nodes, bool)
    is_settable[graph.configurable] = True
    return np.asarray(IS_PROPAGATING[graph.node_opcodes[node]] & ~is_settable[node])


def attach_calls(
    calls: list[Call], count: int, starts: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the fields `behind`, `before` and `asked` of Instructions. Instructions are `count`
    instances, then the calls, then one reader of the results. `starts`: the field `use_starts`."""
    behind, before = np.full(len(starts) - 1, NONE), np.full(int(starts[-1]), NONE)
    asked = np.full((len(behind), 2), NONE)
    for call, (instance, operand, *site) in enumerate(calls, start=count):
        asked[call] = site
        if operand == BEHIND:
            behind[instance] = call
        else:
            before[starts[instance] + operand] = call
    return behind, before, asked
