"""Which dots are gradients of others: where weights are square, their shapes do not say it.

Of y = x w, the gradient of x is a product of the gradient of y and w, that of w one of the gradient
of y and x: three dots that read three tensors in pairs. What the first of them sums its shapes tell
mostly; operands and sums of the others follow. A gradient has the dimensions of what it is the
gradient of, in their order, if it is not transposed afterwards.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from solution.domain import vocabulary
from solution.domain.graph import Graph
from solution.domain.neighbours import Neighbours
from solution.domain.vocabulary import OPCODE_IDS
from solution.features.einsum import Dimensions, Einsum

TRANSPOSE = OPCODE_IDS["transpose"]


class Dot(NamedTuple):
    """A dot, what it reads, and which of their dimensions are one."""

    node: int
    left: int
    right: int
    letters: Einsum


Label = Callable[[int, int, int], Einsum | None]  # of a dot and its operands, by shapes alone


def find_gradients(
    graph: Graph, ranks: np.ndarray, guess: dict[int, tuple[int, int]], label: Label
) -> dict[int, Dot]:
    """The dots that are gradients of other ones.

    Args:
        ranks: (nodes,) of their tensors.
        guess: the operands of each dot, as its shapes have them.
        label: which of their dimensions are one, as its shapes have it.
    """
    dots = Dots(graph, ranks, guess, label)
    found: dict[int, Dot] = {}
    for node in sorted(guess):
        letters = label(node, *guess[node]) if node not in found else None
        if letters is not None:
            for gradient in dots.list_gradients(Dot(node, *guess[node], letters)):
                found.setdefault(gradient.node, gradient)  # of several products, the first one's
    return found


def find_told(graph: Graph, node: int) -> tuple[Dimensions, Dimensions] | None:
    """What a dot sums of its left and its right operand, ascending, where a module says it."""
    if graph.summed is None:
        return None
    left, right = (tuple(sorted(row[row >= 0].tolist())) for row in graph.summed[node])
    return left, right


class Dots:
    """The dots of a graph and what they read."""

    def __init__(
        self, graph: Graph, ranks: np.ndarray, guess: dict[int, tuple[int, int]], label: Label
    ) -> None:
        self._features = graph.node_features
        self._opcodes = graph.node_opcodes
        self._graph = graph
        self._ranks = ranks
        self._guess = guess
        self._label = label
        self._producers = Neighbours.operands(graph.edges, graph.num_nodes)
        self._consumers = Neighbours.consumers(graph.edges, graph.num_nodes)
        self._reading: dict[int, set[int]] = defaultdict(set)  # the dots that read a tensor
        for node, pair in guess.items():
            for tensor in pair:
                self._reading[tensor].add(node)

    def list_gradients(self, dot: Dot) -> Iterator[Dot]:
        """Those of the operands of a dot: of both, or of one where its shapes leave no doubt."""
        if dot.left == dot.right:
            return
        # By the gradient of the dot itself, and by what they are the gradients of.
        later: dict[int, dict[int, list[Dot]]] = defaultdict(lambda: defaultdict(list))
        for kept, wanted in ((dot.left, dot.right), (dot.right, dot.left)):
            for node in self._reading[kept]:
                left, right = self._guess[node]
                slope = right if left == kept else left
                if node > dot.node and self._shape(slope) == self._shape(dot.node):
                    gradient = self._match(dot, node, slope, wanted)
                    if gradient is not None:
                        later[slope][wanted].append(gradient)
        for slope, by_wanted in later.items():
            gradients = [gradient for own in by_wanted.values() for gradient in own]
            is_sure = len(by_wanted) == 2 or all(map(self._is_certain, gradients))
            if is_sure and self._follows(slope, dot.node):
                yield from gradients

    def _match(self, dot: Dot, node: int, slope: int, wanted: int) -> Dot | None:
        """A later dot as the gradient of `wanted`; None if its shape is another's.

        Args:
            slope: what it reads that is the gradient of `dot`; beside it the other operand.
        """
        letters = dot.letters
        own, kept, other = letters.left, letters.right, dot.right
        if wanted == dot.right:
            own, kept, other = kept, own, dot.left
        sizes = dict(zip(letters.output, self._shape(dot.node), strict=True))
        sizes |= dict(zip(kept, self._shape(other), strict=True))
        batch = letters.batch
        of_slope = [one for one in letters.output if one in own and one not in kept]
        of_kept = [one for one in kept if one in own and one not in letters.output]
        ways = [
            Dot(
                node,
                slope,
                other,
                Einsum(letters.output, kept, (*batch, *of_slope, *of_kept)),
            ),
            Dot(
                node,
                other,
                slope,
                Einsum(kept, letters.output, (*batch, *of_kept, *of_slope)),
            ),
        ]
        shape = self._shape(node)
        fitting = [
            way
            for way in ways
            if tuple(sizes[one] for one in way.letters.output) == shape and self._is_allowed(way)
        ]
        goals = [own, self._undo(wanted, own)]  # the better one last
        return max(fitting, key=lambda way: self._rank(way, goals), default=None)

    def _rank(self, way: Dot, goals: list[Dimensions]) -> int:
        """Which of the orders that a gradient should have it gets in the end; -1: none."""
        found = self._follow(way.node, way.letters.output)
        return max((place for place, goal in enumerate(goals) if goal == found), default=-1)

    def _is_allowed(self, way: Dot) -> bool:
        """Whether its module says the same of what it sums, where a module says anything."""
        told = find_told(self._graph, way.node)
        return told is None or told == way.letters.summed

    def _is_certain(self, gradient: Dot) -> bool:
        """Whether shapes alone say the same of what it sums."""
        told = self._label(gradient.node, gradient.left, gradient.right)
        return told is not None and told.summed == gradient.letters.summed

    def _follows(self, slope: int, dot: int) -> bool:
        """Whether a tensor depends on what a dot makes, as the gradient of that does mostly."""
        seen, waiting = {slope}, [slope]
        while waiting:
            for read in self._producers.at(waiting.pop()).tolist():
                if read == dot:
                    return True
                if read > dot and read not in seen:
                    seen.add(read)
                    waiting.append(read)
        return False

    def _undo(self, node: int, letters: Dimensions) -> Dimensions:
        """The letters of what was transposed into a tensor."""
        while self._opcodes[node] == TRANSPOSE and len(self._producers.at(node)) == 1:
            order, (read,) = self._order_of(node), self._producers.at(node).tolist()
            if read >= node or sorted(order) != list(range(len(letters))):
                break
            letters = tuple(letters[order.index(place)] for place in range(len(order)))
            node = read
        return letters

    def _follow(self, node: int, letters: Dimensions) -> Dimensions:
        """The letters of what a tensor is transposed into, if nothing else becomes of it."""
        while len(self._consumers.at(node)) == 1:
            (reader,) = self._consumers.at(node).tolist()
            order = self._order_of(reader)
            if reader <= node or self._opcodes[reader] != TRANSPOSE:
                break
            if sorted(order) != list(range(len(letters))):
                break
            letters, node = tuple(letters[place] for place in order), reader
        return letters

    def _shape(self, node: int) -> Dimensions:
        sizes = self._features[node, vocabulary.SHAPE_DIMENSIONS][: self._ranks[node]]
        return tuple(sizes.astype(int).tolist())

    def _order_of(self, node: int) -> Dimensions:
        """The dimensions that a transposition puts into a new order."""
        order = self._features[node, vocabulary.DIMENSIONS][: self._ranks[node]]
        return tuple(order.astype(int).tolist())
