"""Which dots are gradients of others: where weights are square, their shapes do not say it.

Of y = x w, the gradient of x is a product of the gradient of y and w, that of w one of the gradient
of y and x: three dots that read three tensors in pairs. What the first of them sums its shapes tell
mostly; operands and sums of the others follow. A gradient has the dimensions of what it is the
gradient of, in their order, if it is not transposed afterwards.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from solution.domain import vocabulary
from solution.domain.graph import Graph
from solution.domain.neighbours import Neighbours
from solution.domain.vocabulary import OPCODE_IDS
from solution.features.einsum import Dimensions, Einsum

TRANSPOSE = OPCODE_IDS["transpose"]
BLOCK = 2048  # dots whose descendants are found at once


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
                dots.close(gradient.node)
    return found


def find_told(graph: Graph, node: int) -> tuple[Dimensions, Dimensions] | None:
    """What a dot sums of its left and its right operand, ascending, where a module says it."""
    if graph.summed is None:
        return None
    left, right = (tuple(sorted(row[row >= 0].tolist())) for row in graph.summed[node])
    return left, right


class Alike:
    """Dots that read one tensor and look alike: what is decided of one holds for all of them.

    The other tensors that they read have one shape and are made alike, too.
    """

    def __init__(self, kept: int) -> None:
        self.kept = kept
        self.nodes = np.empty(0, np.int64)  # ascending
        self.slopes = np.empty(0, np.int64)  # what each of them reads beside the tensor
        self.labels: dict[bool, Einsum | None] = {}  # by whether the slope is the left operand

    def drop(self, is_kept: np.ndarray) -> None:
        """Keep only the dots where `is_kept` (dots,) is True."""
        if not is_kept.all():
            self.nodes, self.slopes = self.nodes[is_kept], self.slopes[is_kept]


class Dots:
    """The dots of a graph and what they read.

    Time grows about as their number, also where thousands read one tensor: dots that look alike are
    compared as one group, and those whose gradients are found leave it.
    """

    def __init__(
        self, graph: Graph, ranks: np.ndarray, guess: dict[int, tuple[int, int]], label: Label
    ) -> None:
        self._features = graph.node_features
        self._opcodes = graph.node_opcodes
        self._graph = graph
        self._ranks = ranks
        self._guess = guess
        self._label = label
        self._shapes: dict[int, Dimensions] = {}
        self._producers = Neighbours.operands(graph.edges, graph.num_nodes)
        self._consumers = Neighbours.consumers(graph.edges, graph.num_nodes)
        self._ancestors = Ancestors(graph, guess)
        self._is_open = np.ones(graph.num_nodes, bool)  # whose gradients are still looked for
        self._is_marked = np.zeros(graph.num_nodes, bool)
        # The dots that read a tensor and a slope, and all the slopes of a tensor.
        self._pairs: dict[tuple[int, int], list[int]] = defaultdict(list)
        slopes: dict[int, list[int]] = defaultdict(list)
        for node in sorted(guess):
            left, right = guess[node]
            for kept, slope in {(left, right), (right, left)}:
                self._pairs[kept, slope].append(node)
                slopes[kept].append(slope)
        self._slopes = {kept: np.unique(own) for kept, own in slopes.items()}
        self._groups = self._group()

    def close(self, node: int) -> None:
        """Look for the dot no longer: it is known of what it is the gradient."""
        self._is_open[node] = False

    def list_gradients(self, dot: Dot) -> Iterator[Dot]:
        """Those of the operands of a dot: of both, or of one where its shapes leave no doubt.

        Dots are asked for in ascending order. Those that are closed are listed only beside others.
        """
        if dot.left == dot.right:
            return
        for slope in self._list_slopes(dot):
            by_wanted = [
                [
                    gradient
                    for node in self._pairs.get((kept, slope), ())
                    if node > dot.node
                    and (gradient := self._match(dot, node, slope, wanted)) is not None
                ]
                for kept, wanted in ((dot.left, dot.right), (dot.right, dot.left))
            ]
            gradients = [gradient for own in by_wanted for gradient in own]
            if all(by_wanted) or all(map(self._is_certain, gradients)):
                yield from gradients

    def _group(self) -> dict[tuple[int, Dimensions], list[Alike]]:
        """The groups of each tensor, by the shape of their slopes."""
        members: dict[tuple[Any, ...], list[tuple[int, int]]] = defaultdict(list)
        for (kept, slope), nodes in self._pairs.items():
            made = self._opcodes[slope], self._features[slope, vocabulary.DIMENSIONS].tobytes()
            for node in nodes:
                told = find_told(self._graph, node)
                looks = (self._shape(node), told, *made, slope == kept)
                members[kept, self._shape(slope), looks].append((node, slope))
        groups: dict[tuple[int, Dimensions], list[Alike]] = defaultdict(list)
        for (kept, shape, _), dots in members.items():
            group = Alike(kept)
            group.nodes, group.slopes = np.array(sorted(dots), np.int64).T
            groups[kept, shape].append(group)
        return groups

    def _list_slopes(self, dot: Dot) -> list[int]:
        """What may be the gradient of a dot, and shows gradients that are not closed: ascending.

        It depends on the dot, later dots read it that fit, and these are of both operands, or one
        of them can be certain.
        """
        certain, others = [], []
        for kept, wanted in ((dot.left, dot.right), (dot.right, dot.left)):
            for group in self._groups.get((kept, self._shape(dot.node)), ()):
                group.drop(self._is_open[group.nodes] & (group.nodes > dot.node))
                ways = self._list_ways(dot, group, wanted) if len(group.nodes) else []
                if any(self._is_alike_certain(group, way) for way in ways):
                    certain.append(group.slopes)
                elif ways:
                    others.append(self._keep_marked(group.slopes, self._slopes[wanted]))
        found = [*certain, *others]
        slopes = np.unique(np.concatenate(found)) if found else np.empty(0, np.int64)
        return self._ancestors.keep(slopes, dot.node).tolist() if len(slopes) else []

    def _keep_marked(self, slopes: np.ndarray, listed: np.ndarray) -> np.ndarray:
        """The slopes (k,) that are listed, too."""
        self._is_marked[listed] = True
        kept = slopes[self._is_marked[slopes]]
        self._is_marked[listed] = False
        return kept

    def _list_ways(self, dot: Dot, group: Alike, wanted: int) -> list[Dot]:
        """The first dot of a group as the gradient of `wanted`, in each way that fits."""
        node, slope = int(group.nodes[0]), int(group.slopes[0])
        return [
            way for way in self._order(dot, node, slope, wanted) if self._fits(dot, way, wanted)
        ]

    def _is_alike_certain(self, group: Alike, way: Dot) -> bool:
        """Whether shapes alone say the same of what the dots of a group sum."""
        is_left = way.left != group.kept
        if is_left not in group.labels:
            group.labels[is_left] = self._label(way.node, way.left, way.right)
        told = group.labels[is_left]
        return told is not None and told.summed == way.letters.summed

    def _match(self, dot: Dot, node: int, slope: int, wanted: int) -> Dot | None:
        """A later dot as the gradient of `wanted`; None if its shape is another's.

        Args:
            slope: what it reads that is the gradient of `dot`; beside it the other operand.
        """
        ways = self._order(dot, node, slope, wanted)
        fitting = [way for way in ways if self._fits(dot, way, wanted)]
        if len(fitting) < 2:
            return fitting[0] if fitting else None
        own = dot.letters.right if wanted == dot.right else dot.letters.left
        goals = [own, self._undo(wanted, own)]  # the better one last
        return max(fitting, key=lambda way: self._rank(way, goals))

    def _order(self, dot: Dot, node: int, slope: int, wanted: int) -> list[Dot]:
        """A later dot as the gradient of `wanted`, in both orders of what it reads."""
        letters = dot.letters
        own, kept, other = letters.left, letters.right, dot.right
        if wanted == dot.right:
            own, kept, other = kept, own, dot.left
        batch = letters.batch
        of_slope = [one for one in letters.output if one in own and one not in kept]
        of_kept = [one for one in kept if one in own and one not in letters.output]
        return [
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

    def _fits(self, dot: Dot, way: Dot, wanted: int) -> bool:
        """Whether a dot has the shape of the gradient, and its module says nothing else."""
        kept, other = dot.letters.left, dot.left
        if wanted == dot.left:
            kept, other = dot.letters.right, dot.right
        sizes = dict(zip(dot.letters.output, self._shape(dot.node), strict=True))
        sizes |= dict(zip(kept, self._shape(other), strict=True))
        shape = tuple(sizes[one] for one in way.letters.output)
        return shape == self._shape(way.node) and self._is_allowed(way)

    def _rank(self, way: Dot, goals: list[Dimensions]) -> int:
        """Which of the orders that a gradient should have it gets in the end; -1: none."""
        found = self._follow(way.node, way.letters.output)
        return max((place for place, goal in enumerate(goals) if goal == found), default=-1)

    def _is_allowed(self, way: Dot) -> bool:
        """Tell if a module that states the contracted dimensions states the same ones."""
        told = find_told(self._graph, way.node)
        return told is None or told == way.letters.summed

    def _is_certain(self, gradient: Dot) -> bool:
        """Whether shapes alone say the same of what it sums."""
        told = self._label(gradient.node, gradient.left, gradient.right)
        return told is not None and told.summed == gradient.letters.summed

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
        if node not in self._shapes:
            sizes = self._features[node, vocabulary.SHAPE_DIMENSIONS][: self._ranks[node]]
            self._shapes[node] = tuple(sizes.astype(int).tolist())
        return self._shapes[node]

    def _order_of(self, node: int) -> Dimensions:
        """The dimensions that a transposition puts into a new order."""
        order = self._features[node, vocabulary.DIMENSIONS][: self._ranks[node]]
        return tuple(order.astype(int).tolist())


class Ancestors:
    """Which tensors depend on a dot, as the gradient of what it makes does mostly.

    What depends on the dots of a block is found in one sweep over all nodes, in which a number has
    a bit for each of them.
    """

    def __init__(self, graph: Graph, guess: dict[int, tuple[int, int]]) -> None:
        self._dots = np.array(sorted(guess), np.int64)
        self._places = {node: place for place, node in enumerate(self._dots.tolist())}
        self._slopes = np.unique(np.array(list(guess.values()), np.int64).reshape(-1))
        self._producers = Neighbours.operands(graph.edges, graph.num_nodes)
        # Of a program they do; a file may hold edges of any kind.
        self._come_first = bool((graph.edges[:, 1] < graph.edges[:, 0]).all())
        self._block = -1
        self._depends = np.empty((0, 0), bool)  # (dots of the block, slopes)

    def keep(self, slopes: np.ndarray, dot: int) -> np.ndarray:
        """Those of the slopes (k,) that depend on a dot."""
        if not self._come_first:
            return np.array([s for s in slopes.tolist() if self._follows(s, dot)], np.int64)
        block, place = divmod(self._places[dot], BLOCK)
        if block != self._block:
            self._block, self._depends = block, self._sweep(self._dots[block * BLOCK :][:BLOCK])
        return np.asarray(slopes[self._depends[place, np.searchsorted(self._slopes, slopes)]])

    def _sweep(self, dots: np.ndarray) -> np.ndarray:
        """Whether each slope (dots, slopes) depends on each of the dots, which ascend."""
        first, number = int(dots[0]), len(self._producers.starts) - 1
        starts, nodes = self._producers.starts.tolist(), self._producers.nodes.tolist()
        bits = {node: 1 << place for place, node in enumerate(dots.tolist())}
        wanted = set(self._slopes.tolist())
        kept: dict[int, int] = {}
        reached = [0] * (number - first)  # of each node from the first dot on: itself with it
        for node in range(first, number):
            found = 0
            for read in nodes[starts[node] : starts[node + 1]]:
                if read >= first:
                    found |= reached[read - first]
            if node in wanted:
                kept[node] = found
            reached[node - first] = found | bits.get(node, 0)
        size = -(-len(dots) // 8)
        packed = b"".join(
            kept.get(slope, 0).to_bytes(size, "little") for slope in self._slopes.tolist()
        )
        rows = np.frombuffer(packed, np.uint8).reshape(len(self._slopes), size)
        unpacked = np.unpackbits(rows, axis=1, count=len(dots), bitorder="little")
        return np.ascontiguousarray(unpacked.T).astype(bool)

    def _follows(self, slope: int, dot: int) -> bool:
        """The same by a search backwards, over edges of any kind."""
        seen, waiting = {slope}, [slope]
        while waiting:
            for read in self._producers.at(waiting.pop()).tolist():
                if read == dot:
                    return True
                if read > dot and read not in seen:
                    seen.add(read)
                    waiting.append(read)
        return False
