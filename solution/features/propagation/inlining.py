"""List a graph's instructions as layout assignment sees them: calls inlined, tuples resolved.

Equal instructions, such as two tanh of one tensor, are merged (HloCSE of openxla/xla) if their
features determine the result (EQUAL) and no configuration sets their layouts.

The competition's arrays do not say which operand an edge is, nor which element of a tuple is read.
Arguments are matched to parameters, and tuple elements to their readers, in order among equal
shapes.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from solution.domain import vocabulary
from solution.domain.graph import Graph
from solution.domain.vocabulary import OPCODE_IDS

CALLING = """
all-reduce call conditional custom-call fusion map reduce reduce-scatter reduce-window scatter
select-and-scatter sort while async-start
"""
CALLS = frozenset(OPCODE_IDS[name] for name in CALLING.split())
CALL, WHILE, PARAMETER, TUPLE, PART, BARRIER = (
    OPCODE_IDS[name]
    for name in ("call", "while", "parameter", "tuple", "get-tuple-element", "opt-barrier")
)
SLICES = OPCODE_IDS["dynamic-slice"], OPCODE_IDS["dynamic-update-slice"]
# assumed number of a loop's iterations if guess_iterations finds none
ITERATIONS = 10
# opcodes of pure operations: their operands and features determine the result
EQUAL = """
abs add and broadcast convert divide exponential exponential-minus-one iota log log-plus-one
logistic maximum minimum multiply negate not or power reshape rsqrt select sign sqrt subtract tanh
transpose
"""
PURE = [OPCODE_IDS[name] for name in EQUAL.split()]
# Limits of inlining: depth of nested calls, and instances (see Inlined) per node of the graph
MAX_DEPTH = 50
MAX_GROWTH = 4

Shape = tuple[float, ...]  # element type and dimensions, as in the node features
# the result of a node: the number of an instance (see Inlined), or a tuple of results
Value = int | tuple["Value", ...]


@dataclass
class Inlined:
    """The instructions after calls are inlined. An instance is a copy of a node, one for each
    call of its computation. Tuples and inlined calls have none; equal pure operations share one."""

    # the node of each instance
    node: list[int] = field(default_factory=list)
    # for each instance, the instances that it reads, sorted by node
    reads: list[list[int]] = field(default_factory=list)
    # for each instance in `reads`, the operand that the graph's edge names: the instance's node, or
    # the call or tuple whose result contains the instance
    named: list[list[int]] = field(default_factory=list)
    # instances that are results of the program
    results: list[int] = field(default_factory=list)
    # Instances that the compiler adds or changes. `orders`: {inserted transpose: its permutation}.
    # `matrices`: {dot whose operands become matrices: sizes of its result}. `reshapes`: inserted
    # after these dots, to restore the result's sizes.
    orders: dict[int, tuple[int, ...]] = field(default_factory=dict)
    matrices: dict[int, tuple[int, ...]] = field(default_factory=dict)
    reshapes: set[int] = field(default_factory=set)

    def add(self, node: int, reads: list[int], named: list[int]) -> int:
        """Add an instance and return its number."""
        self.node.append(node)
        self.reads.append(reads)
        self.named.append(named)
        return len(self.node) - 1


def inline(graph: Graph) -> Inlined:
    """Return the instructions that the program's results depend on, operands first."""
    return _Inliner(graph).run()


def count_runs(graph: Graph) -> np.ndarray:
    """Return how often each node is computed in one run of the program (nodes,) float64: the
    numbers of iterations of the loops around it, multiplied. For a computation that is called in
    several places, it is the largest such number, not their sum: each call has its own instances
    (see Inlined).

    The features do not state the iterations of a loop. They are guessed by guess_iterations, which
    works for the loops of jax.lax.scan. If it finds none, ITERATIONS is assumed.
    """
    runs = np.ones(graph.num_nodes)
    if not (graph.node_opcodes == WHILE).any():
        return runs
    operands, called = _split_edges(graph)
    # a computation comes before all that call it, so this meets its callers first
    for node in reversed(range(graph.num_nodes)):
        times = runs[node]
        if graph.node_opcodes[node] == WHILE:
            times *= guess_iterations(graph, called[node], operands, called) or ITERATIONS
        for root in called[node]:
            if times > runs[root]:
                inside = _reach([root], operands)
                runs[inside] = np.maximum(runs[inside], times)
    return runs


def _reach(roots: Sequence[int], *edges: Sequence[Sequence[int]]) -> list[int]:
    """Return the nodes that can be reached from `roots` along `edges`, and the roots themselves."""
    seen, waiting = set(roots), [*roots]
    while waiting:
        node = waiting.pop()
        for one in (one for each in edges for one in each[node]):
            if one not in seen:
                seen.add(one)
                waiting.append(one)
    return sorted(seen)


def guess_iterations(
    graph: Graph,
    roots: Sequence[int],
    operands: Sequence[Sequence[int]],
    called: Sequence[Sequence[int]],
) -> int | None:
    """Return a guess of a loop's iterations: the most frequent length of the dimensions along which
    its nodes read or write one element; None without such nodes.

    The nodes are those of the computations with these `roots`, and of what they `call`, because jax
    puts the body of a scan into a called computation. Those of loops inside are left out.
    `operands`, `called`: for each node, the nodes that it reads, and the roots that it calls.
    """
    opcodes = graph.node_opcodes.tolist()
    calls = [own if opcode == CALL else () for opcode, own in zip(opcodes, called, strict=True)]
    body = _reach(roots, operands, calls)
    sizes = graph.node_features[:, vocabulary.SHAPE_DIMENSIONS]
    lengths: list[int] = []
    for node in body:
        if graph.node_opcodes[node] not in SLICES:
            continue
        # sizes of the larger tensor: the operand of a slice, or the result of a slice update
        for other in operands[node]:
            part, whole = np.sort([sizes[node], sizes[other]], axis=0)
            if ((sizes[node] > 0) == (sizes[other] > 0)).all():
                lengths += whole[(part == 1) & (whole > 1)].astype(int).tolist()
    return max(sorted(set(lengths)), key=lengths.count) if lengths else None


def _split_edges(graph: Graph) -> tuple[list[list[int]], list[list[int]]]:
    """Return for each node the operands that it reads, and the roots of the computations that it
    calls."""
    opcodes = graph.node_opcodes.tolist()
    is_root = graph.node_features[:, vocabulary.IS_ROOT] > 0
    operands: list[list[int]] = [[] for _ in opcodes]
    called: list[list[int]] = [[] for _ in opcodes]
    # operands come first: drop edges whose producer comes after its consumer
    forward = graph.edges[graph.edges[:, 0] > graph.edges[:, 1]]
    for consumer, producer in forward[np.lexsort(forward.T[::-1])].tolist():
        calls = opcodes[consumer] in CALLS and is_root[producer]
        (called if calls else operands)[consumer].append(producer)
    return operands, called


class _Inliner:
    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._opcodes = graph.node_opcodes.tolist()
        self._shapes = [tuple(row) for row in graph.node_features[:, 2:27].tolist()]
        self._operands, self._called = _split_edges(graph)
        self._inlined = Inlined()
        # {(id of a tuple, shape of an element): (the tuple, kept so that its id stays unique, and
        # the number of its elements of that shape that are taken so far)}
        self._taken: dict[tuple[int, Shape], tuple[Value, int]] = {}
        self._is_pure = np.isin(graph.node_opcodes, PURE)
        self._is_pure[graph.configurable] = False
        self._features = graph.node_features[:, vocabulary.IS_ROOT + 1 :]
        # instances of pure operations by scope (program or loop body), opcode, features, operands
        self._known: dict[tuple[int, int, bytes, tuple[int, ...]], int] = {}
        self._scope, self._scopes = 0, 1

    def run(self) -> Inlined:
        known: dict[int, Value] = {}
        for root in self._find_results():
            value = self._evaluate(root, known, 0)
            self._inlined.results += flatten(value)
        return self._inlined

    def _find_results(self) -> list[int]:
        """Return the roots that no node reads or calls; if there are none, all unread nodes."""
        is_root = self._graph.node_features[:, vocabulary.IS_ROOT] > 0
        read = np.zeros(len(is_root), bool)
        read[self._graph.edges[:, 1]] = True
        found = np.flatnonzero(is_root & ~read)
        return (found if len(found) else np.flatnonzero(~read)).tolist()

    def _evaluate(self, root: int, known: dict[int, Value], depth: int) -> Value:
        """Return the value of the node `root`; add it, and the values of nodes that it depends on,
        to `known`. `depth`: the number of calls around the node."""
        waiting = [root]
        while waiting:
            node = waiting[-1]
            missing = [read for read in self._operands[node] if read not in known]
            if missing and node not in known:
                waiting += missing
                continue
            waiting.pop()
            if node not in known:
                known[node] = self._compute(node, [known[k] for k in self._operands[node]], depth)
        return known[root]

    def _compute(self, node: int, values: list[Value], depth: int) -> Value:
        opcode = self._opcodes[node]
        if opcode == TUPLE:
            return tuple(values)
        if opcode == BARRIER and len(values) == 1:
            return values[0]
        if opcode == PART and len(values) == 1 and isinstance(values[0], tuple):
            return self._take(node, values[0])
        inlines = depth < MAX_DEPTH and len(self._inlined.node) < MAX_GROWTH * len(self._opcodes)
        if opcode == CALL and len(self._called[node]) == 1 and inlines:
            return self._call(self._called[node][0], values, depth)
        # add the results of a loop body to the program's results: both have fixed layouts
        if opcode == WHILE and inlines:
            for root in self._called[node]:
                self._inlined.results += flatten(self._evaluate_body(root, depth + 1))
        return self._add(node, values)

    def _evaluate_body(self, root: int, depth: int) -> Value:
        """Return the result of a loop body, which shares no instructions with its caller."""
        outside, self._scope = self._scope, self._scopes
        self._scopes += 1
        value = self._evaluate(root, {}, depth)
        self._scope = outside
        return value

    def _add(self, node: int, values: list[Value]) -> int:
        read = [(one, name) for name, value in zip(self._operands[node], values, strict=False)
                for one in flatten(value)]  # fmt: skip
        reads = tuple(one for one, _ in read)
        if not self._is_pure[node]:
            return self._inlined.add(node, [*reads], [name for _, name in read])
        key = self._scope, self._opcodes[node], self._features[node].tobytes(), reads
        if key not in self._known:
            self._known[key] = self._inlined.add(node, [*reads], [name for _, name in read])
        return self._known[key]

    def _call(self, root: int, values: list[Value], depth: int) -> Value:
        """Return the result of the computation of `root` for the arguments `values`, which are
        matched to parameters by shape."""
        left = list(values)
        known: dict[int, Value] = {}
        for parameter in self._parameters(root):
            fitting = [v for v in left if self._shape(v) == self._shapes[parameter]]
            if not fitting:  # reuse an argument: one that is passed twice has only one edge
                fitting = [v for v in values if self._shape(v) == self._shapes[parameter]]
            if fitting:
                known[parameter] = fitting[0]
                left = [v for v in left if v is not fitting[0]]
        return self._evaluate(root, known, depth + 1)

    def _parameters(self, root: int) -> list[int]:
        """Return the parameters of the computation with that root, sorted by parameter number."""
        numbers = self._graph.node_features[:, vocabulary.PARAMETER_NUMBER]
        reached = _reach([root], self._operands)
        found = [node for node in reached if self._opcodes[node] == PARAMETER]
        return sorted(found, key=lambda node: float(numbers[node]))

    def _shape(self, value: Value) -> Shape:
        return () if isinstance(value, tuple) else self._shapes[self._inlined.node[value]]

    def _take(self, node: int, parts: tuple[Value, ...]) -> Value:
        """Return the tuple element with the node's shape; the n-th reader of that shape gets the
        n-th such element."""
        fitting = [part for part in parts if self._shape(part) == self._shapes[node]]
        if not fitting:
            return self._add(node, [parts])
        key = (id(parts), self._shapes[node])
        _, taken = self._taken.get(key, (parts, 0))
        self._taken[key] = (parts, taken + 1)
        return fitting[taken % len(fitting)]


def flatten(value: Value) -> list[int]:
    """Return all instances in a value, which may be a nested tuple of instances."""
    if isinstance(value, tuple):
        return [one for part in value for one in flatten(part)]
    return [value]
