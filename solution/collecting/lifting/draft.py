"""Represent a graph as a draft: lists with an entry per node, and the computations of the program.

A draft is the input of lifting, which turns a graph back into a program.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from solution.domain import vocabulary
from solution.domain.graph import Graph
from solution.domain.vocabulary import MAX_RANK, OPCODES
from solution.features.operations import tensor_ranks
from solution.features.preparation import repair_padding
from solution.features.propagation.inlining import CALLING
from solution.programs.hlo.nodes import ELEMENT_TYPES
from solution.system.errors import InputError

# opcodes that call computations
CALLERS = frozenset([*CALLING.split(), "custom-call"])
# Columns of the node features for which the vocabulary has no name.
TUPLE_COUNT = 29  # number of elements of a tuple
WINDOW_COUNTS = slice(91, 93)  # number of reversed window dimensions, number of the others
PRED, S32, S64, U32, U64 = 1, 4, 5, 8, 9  # numbers of element types in XLA's PrimitiveType
TUPLE, OPAQUE, TOKEN = 13, 14, 17
INTEGERS = frozenset(range(2, 10))
FLOATS = frozenset({10, 11, 12, 16})
UNKNOWN_TYPE = -1


class NotLiftedError(InputError):
    """The graph cannot be turned into a program; the message names the node and the reason."""


@dataclass
class Guesses:
    """The facts that the graph lacks and that lifting guesses."""

    # {name of a fact: nodes for which it is guessed}
    nodes: dict[str, list[int]] = field(default_factory=dict)

    def add(self, kind: str, node: int) -> None:
        self.nodes.setdefault(kind, []).append(node)


@dataclass(frozen=True)
class Draft:
    """The nodes of a graph as lists; lists have an entry per node unless stated otherwise."""

    graph: Graph  # the graph; unused slots of dimension numbers are -1 (see repair_padding)
    features: np.ndarray  # (nodes, 140) int64: node features of `graph`
    listed: np.ndarray  # (nodes, 6) int64: attribute `dimensions` as in the file, padded with 0
    opcodes: list[str]
    kinds: list[int]  # element types, as numbers of XLA's PrimitiveType
    sizes: list[tuple[int, ...]]  # sizes of a tensor's dimensions; () for a tuple
    layouts: list[tuple[int, ...]]  # layouts of tensors, minor to major
    parts: list[int]  # number of elements of a tuple; 0 for a tensor
    numbers: list[int]  # parameter number: position among its computation's parameters
    operands: list[list[int]]  # nodes that a node reads: distinct, ascending
    called: list[list[int]]  # root nodes of the computations that a node calls, ascending
    users: list[list[int]]  # nodes of the same computation that read a node
    roots: list[int]  # root node of each computation
    ranges: list[range]  # nodes of each computation
    computation: list[int]  # number of the computation that contains a node
    callers: dict[int, int]  # {number of a computation: the first node that calls it}
    guesses: Guesses

    def key(self, node: int) -> tuple[int, tuple[int, ...], int]:
        """Return a node's type without layout: element type, sizes, number of tuple elements."""
        return self.kinds[node], self.sizes[node], self.parts[node]

    def refuse(self, node: int, reason: str) -> NotLiftedError:
        return NotLiftedError(
            f"{self.graph.name}: node {node} ({self.opcodes[node]}) cannot be lifted: {reason}."
        )

    def find_constant(self, node: int) -> int | None:
        """Return the node itself if it is a constant, or the constant that it broadcasts, converts
        or reshapes; None if there is none."""
        while self.opcodes[node] in ("broadcast", "convert", "reshape") and self.operands[node]:
            node = self.operands[node][0]
        return node if self.opcodes[node] == "constant" else None

    def is_kept(self, node: int) -> bool:
        """Return True if a node is an element of a call's result, and only calls and tuples read
        it. Such values are taken to be kept by the forward pass for the backward pass."""
        return (
            self.opcodes[node] == "get-tuple-element"
            and self.opcodes[self.operands[node][0]] == "call"
            and all(self.opcodes[one] in ("call", "tuple") for one in self.users[node])
        )

    def parameters(self, root: int) -> list[int]:
        """Return the parameters of the computation of `root`, by parameter number."""
        nodes = self.ranges[self.computation[root]]
        found = [node for node in nodes if self.opcodes[node] == "parameter"]
        return sorted(found, key=self.numbers.__getitem__)


def make_draft(graph: Graph) -> Draft:
    """Return the draft of a graph. Raises NotLiftedError if an opcode or element type is unknown,
    no node is a root, or a node reads a later node or a node of another computation."""
    # keep the file's features, because repair_padding drops dimension numbers above 5
    listed = np.rint(graph.node_features).astype(np.int64)
    graph = repair_padding(graph)
    features = np.rint(graph.node_features).astype(np.int64)
    opcodes = [OPCODES.get(number, "virtual") for number in graph.node_opcodes.tolist()]
    sizes, layouts = _read_shapes(features, listed[:, vocabulary.NODE_LAYOUT], tensor_ranks(graph))
    types = features[:, vocabulary.ELEMENT_TYPE]
    codes = np.where(types.any(axis=1), np.array(ELEMENT_TYPES)[types.argmax(axis=1)], UNKNOWN_TYPE)
    operands, called = _divide_edges(graph, features[:, vocabulary.IS_ROOT], opcodes)
    roots = np.flatnonzero(features[:, vocabulary.IS_ROOT]).tolist()
    if not roots:
        raise NotLiftedError(f"{graph.name}: cannot be lifted: no node is the root of a program.")
    numbers = features[:, vocabulary.PARAMETER_NUMBER].tolist()
    ranges = find_computations(roots, operands, opcodes, numbers)
    computation = [number for number, nodes in enumerate(ranges) for _ in nodes]
    draft = Draft(
        graph, features, listed[:, vocabulary.DIMENSIONS], opcodes, codes.tolist(), sizes, layouts,
        features[:, TUPLE_COUNT].tolist(), numbers, operands, called, [[] for _ in opcodes], roots,
        ranges, computation, {}, Guesses(),
    )  # fmt: skip
    _link(draft)
    _check(draft)
    return draft


def _link(draft: Draft) -> None:
    """Fill `users` and `callers`, in place. If a node's `called` contains the root of the node's
    own computation, move this root to `operands`, because no computation calls itself."""
    computation = draft.computation
    for node, (operands, called) in enumerate(zip(draft.operands, draft.called, strict=True)):
        for root in [one for one in called if computation[one] == computation[node]]:
            called.remove(root)
            operands.append(root)
        for producer in operands:
            draft.users[producer].append(node)
        for root in called:
            draft.callers.setdefault(computation[root], node)


def _check(draft: Draft) -> None:
    """Raise NotLiftedError for an unknown opcode or element type, or if an operand does not stand
    before its reader in the same computation."""
    for node, (opcode, kind) in enumerate(zip(draft.opcodes, draft.kinds, strict=True)):
        if opcode in ("unknown", "virtual"):
            raise draft.refuse(node, "its opcode is unknown to the competition")
        if kind == UNKNOWN_TYPE:
            raise draft.refuse(node, "the graph does not say its element type")
        for producer in draft.operands[node]:
            if producer >= node or draft.computation[producer] != draft.computation[node]:
                reason = f"it reads node {producer}, which is not before it in its computation"
                raise draft.refuse(node, reason)


def _read_shapes(
    features: np.ndarray, layouts: np.ndarray, ranks: np.ndarray
) -> tuple[list[tuple[int, ...]], list[tuple[int, ...]]]:
    """Return the sizes and the layouts (minor to major) of all nodes. Equal rows of features are
    read only once."""
    shapes = features[:, vocabulary.SHAPE_DIMENSIONS]
    rest = features[:, vocabulary.SHAPE_SUM] - shapes.sum(axis=1)
    table = np.column_stack([ranks, rest, features[:, vocabulary.SHAPE_PRODUCT], shapes, layouts])
    rows, inverse = np.unique(table, axis=0, return_inverse=True)
    read = [_read_shape(row.tolist()) for row in rows]
    distinct = inverse.reshape(-1).tolist()
    return [read[row][0] for row in distinct], [read[row][1] for row in distinct]


def _read_shape(row: list[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return a tensor's sizes and layout, minor to major. `row`: rank, sum of the sizes beyond the
    sixth, product of all sizes, the first six sizes, six entries of the layout."""
    rank, rest, product = row[:3]
    sizes, order = row[3 : 3 + MAX_RANK], row[3 + MAX_RANK :]
    if rank < MAX_RANK or rest <= 0:
        return tuple(sizes[:rank]), tuple(order[:rank])
    beyond = complete(rest, product // max(1, int(np.prod(sizes, dtype=object))))
    missing = [axis for axis in range(MAX_RANK + len(beyond)) if axis not in order]
    return (*sizes, *beyond), (*order, *missing[::-1])


def complete(total: int, product: int) -> list[int]:
    """Return one or two sizes (of dimensions beyond the sixth) with this sum and product."""
    root = math.isqrt(max(0, total * total - 4 * product))
    first, second = (total - root) // 2, (total + root) // 2
    if total != product and first > 0 and first * second == product:
        return [first, second]
    return [total]


def _divide_edges(
    graph: Graph, is_root: np.ndarray, opcodes: Sequence[str]
) -> tuple[list[list[int]], list[list[int]]]:
    """Return each node's operands, and the roots of the computations that it calls, both ascending.
    An edge to a root is a call if it comes from a node with an opcode in CALLERS."""
    operands: list[list[int]] = [[] for _ in opcodes]
    called: list[list[int]] = [[] for _ in opcodes]
    calls = np.array([opcode in CALLERS for opcode in opcodes])
    order = np.lexsort(graph.edges.T[::-1])
    edges = graph.edges[order]
    is_call = calls[edges[:, 0]] & (is_root[edges[:, 1]] > 0)
    for (consumer, producer), names in zip(edges.tolist(), is_call.tolist(), strict=True):
        (called if names else operands)[consumer].append(producer)
    return operands, called


def find_computations(
    roots: Sequence[int],
    operands: Sequence[Sequence[int]],
    opcodes: Sequence[str],
    numbers: Sequence[int],
) -> list[range]:
    """Return the range of nodes of each computation; each has one root. The first of two
    computations ends with its root, or with the last node before the next root that reads one of
    its nodes. See _take_unread for exceptions."""
    starts = [0]
    for root, following in zip(roots, roots[1:], strict=False):
        last = root
        for node in range(root + 1, following):
            if any(producer <= last for producer in operands[node]):
                last = node
        last = _take_unread(last, following, operands, opcodes, numbers)
        starts.append(last + 1)
    return [
        range(begin, end) for begin, end in zip(starts, [*starts[1:], len(opcodes)], strict=True)
    ]


def _take_unread(
    last: int,
    following: int,
    operands: Sequence[Sequence[int]],
    opcodes: Sequence[str],
    numbers: Sequence[int],
) -> int:
    """Return the last node of a computation, which may end with parameters that no node reads. It
    is `last`, unless two parameters after `last`, up to the next root `following`, have equal
    parameter `numbers`: then they belong to different computations, and the first one is the last
    node."""
    later = [node for node in range(last + 1, following + 1) if opcodes[node] == "parameter"]
    seen: dict[int, int] = {}
    for node in later:
        if numbers[node] in seen:
            return seen[numbers[node]]
        seen[numbers[node]] = node
    return last
