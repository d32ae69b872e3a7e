"""Find the dots that are gradients of other dots, to infer which dimensions they contract.

If weights are square, the shapes of a dot do not tell which dimensions it contracts. But the
gradients of y = x w are dots as well: dx = dy w' and dw = x' dy. Each of the three dots reads two
of the tensors x, w and dy. The shapes of y = x w mostly tell which dimensions it contracts; the
operands and contracted dimensions of dx and dw follow. A gradient has the dimensions of its tensor,
in the same order, unless it is transposed afterwards.

Names in this file, for a dot: `wanted` is the operand whose gradient is searched, `kept` the other
operand, and `slope` a candidate for dy, the gradient of the dot's output.
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
BLOCK = 2048  # number of dots whose dependent nodes are found in one sweep over the graph


class Dot(NamedTuple):
    """A dot, its operands, and the einsum letters of their dimensions."""

    node: int
    left: int
    right: int
    letters: Einsum


# (node, left operand, right operand) -> the dot's einsum letters by shapes; None if none fit
Label = Callable[[int, int, int], Einsum | None]


def find_gradients(
    graph: Graph, ranks: np.ndarray, guess: dict[int, tuple[int, int]], label: Label
) -> dict[int, Dot]:
    """Return {node: dot} for the dots that are gradients of other dots. `ranks`: (nodes,) ranks of
    outputs. `guess`: {dot: its operands, inferred from shapes}. `label`: returns a dot's letters,
    inferred from shapes."""
    dots = Dots(graph, ranks, guess, label)
    found: dict[int, Dot] = {}
    for node in sorted(guess):
        letters = label(node, *guess[node]) if node not in found else None
        if letters is not None:
            for gradient in dots.list_gradients(Dot(node, *guess[node], letters)):
                found.setdefault(gradient.node, gradient)  # if several dots fit, the first one wins
                dots.close(gradient.node)
    return found


def find_told(graph: Graph, node: int) -> tuple[Dimensions, Dimensions] | None:
    """Return the contracted dimensions of a dot's left and right operand, each ascending, as a
    module states them; None if no module does."""
    if graph.summed is None:
        return None
    left, right = (tuple(sorted(row[row >= 0].tolist())) for row in graph.summed[node])
    return left, right


class Alike:
    """A group of similar dots, which are decided together: they have equal shapes, read the
    tensor `kept`, and their other operands (slopes) have equal shapes and equal operations."""

    def __init__(self, kept: int) -> None:
        self.kept = kept
        self.nodes = np.empty(0, np.int64)  # the dots, ascending
        self.slopes = np.empty(0, np.int64)  # for each dot, its operand other than `kept`
        # {True if the slope is the left operand: the dots' letters, inferred from shapes}
        self.labels: dict[bool, Einsum | None] = {}

    def drop(self, is_kept: np.ndarray) -> None:
        """Keep only the dots where `is_kept` (dots,) is True."""
        if not is_kept.all():
            self.nodes, self.slopes = self.nodes[is_kept], self.slopes[is_kept]


class Dots:
    """A graph's dots, indexed by the tensors that they read. The time is about linear in the number
    of dots, even if thousands read one tensor: similar dots form a group (Alike), and recognised
    gradients leave their group."""

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
        # (nodes,) True until the dot is recognised as a gradient
        self._is_open = np.ones(graph.num_nodes, bool)
        # `_pairs`: {(tensor, other tensor): dots that read both}
        # `slopes`: {tensor: the other tensors that dots read together with it}
        self._pairs: dict[tuple[int, int], list[int]] = defaultdict(list)
        slopes: dict[int, list[int]] = defaultdict(list)
        for node in sorted(guess):
            left, right = guess[node]
            for kept, slope in {(left, right), (right, left)}:
                self._pairs[kept, slope].append(node)
                slopes[kept].append(slope)
        self._slopes = {kept: np.unique(others) for kept, others in slopes.items()}
        self._groups = self._group()

    def close(self, node: int) -> None:
        """Mark a dot as a recognised gradient, which leaves its group."""
        self._is_open[node] = False

    def list_gradients(self, dot: Dot) -> Iterator[Dot]:
        """Yield the gradients of a dot's operands, if both operands have one, or if shapes alone
        determine the dimensions that the gradients contract. Call this for dots in ascending order.
        A closed dot (recognised as a gradient before) is yielded only if an open dot reads the same
        candidate for the gradient of the output."""
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
            gradients = [gradient for found in by_wanted for gradient in found]
            if all(by_wanted) or all(map(self._is_certain, gradients)):
                yield from gradients

    def _group(self) -> dict[tuple[int, Dimensions], list[Alike]]:
        """Return groups of similar dots (Alike), by a tensor that the dots read, and the shape of
        their other operand."""
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
        """List the tensors that may be the gradient of a dot's output, in ascending order.

        Such a tensor depends on the dot and has the shape of its output. A later open dot (one not
        yet recognised as a gradient) reads the tensor and one operand of the dot, and its shape
        fits the gradient of the other operand. If shapes alone do not determine the dimensions that
        the later dot contracts, some dot must also read the tensor and the other operand.
        """
        certain, others = [], []
        for kept, wanted in ((dot.left, dot.right), (dot.right, dot.left)):
            for group in self._groups.get((kept, self._shape(dot.node)), ()):
                group.drop(self._is_open[group.nodes] & (group.nodes > dot.node))
                ways = self._list_ways(dot, group, wanted) if len(group.nodes) else []
                if any(self._is_alike_certain(group, way) for way in ways):
                    certain.append(group.slopes)
                elif ways:
                    others.append(group.slopes[np.isin(group.slopes, self._slopes[wanted])])
        found = [*certain, *others]
        slopes = np.unique(np.concatenate(found)) if found else np.empty(0, np.int64)
        return self._ancestors.keep(slopes, dot.node).tolist() if len(slopes) else []

    def _list_ways(self, dot: Dot, group: Alike, wanted: int) -> list[Dot]:
        """Label a group's first dot as the gradient of `wanted`, an operand of `dot`. Return the
        labelled dots that fit: at most one for each order of its operands."""
        node, slope = int(group.nodes[0]), int(group.slopes[0])
        return [
            way for way in self._order(dot, node, slope, wanted) if self._fits(dot, way, wanted)
        ]

    def _is_alike_certain(self, group: Alike, way: Dot) -> bool:
        """Return True if shapes alone tell that the dots of a group contract the dimensions that
        `way`, a labelled dot of the group, contracts."""
        is_left = way.left != group.kept
        if is_left not in group.labels:
            group.labels[is_left] = self._label(way.node, way.left, way.right)
        told = group.labels[is_left]
        return told is not None and told.summed == way.letters.summed

    def _match(self, dot: Dot, node: int, slope: int, wanted: int) -> Dot | None:
        """Return the dot `node` labelled as the gradient of `wanted`, an operand of the earlier
        `dot`; None if it does not fit. `slope`: the operand of `node` that is taken for the
        gradient of the output of `dot`."""
        ways = self._order(dot, node, slope, wanted)
        fitting = [way for way in ways if self._fits(dot, way, wanted)]
        if len(fitting) < 2:
            return fitting[0] if fitting else None
        letters = dot.letters.right if wanted == dot.right else dot.letters.left
        # possible orders of the gradient's dimensions, the preferred order last
        goals = [letters, self._undo(wanted, letters)]
        return max(fitting, key=lambda way: self._rank(way, goals))

    def _order(self, dot: Dot, node: int, slope: int, wanted: int) -> list[Dot]:
        """Return `node`, labelled as gradient of `wanted`, with its operands in both orders."""
        letters = dot.letters
        goal, kept, other = letters.left, letters.right, dot.right
        if wanted == dot.right:
            goal, kept, other = kept, goal, dot.left
        batch, output = letters.batch, letters.output
        of_slope = [one for one in output if one in goal and one not in kept]
        of_kept = [one for one in kept if one in goal and one not in output]
        return [
            Dot(node, slope, other, Einsum(output, kept, (*batch, *of_slope, *of_kept))),
            Dot(node, other, slope, Einsum(kept, output, (*batch, *of_kept, *of_slope))),
        ]

    def _fits(self, dot: Dot, way: Dot, wanted: int) -> bool:
        """Return True if `way`, a labelled dot, has the shape that its letters give, and contracts
        the dimensions that the module states, if there is a module."""
        kept, other = dot.letters.left, dot.left
        if wanted == dot.left:
            kept, other = dot.letters.right, dot.right
        sizes = dict(zip(dot.letters.output, self._shape(dot.node), strict=True))
        sizes |= dict(zip(kept, self._shape(other), strict=True))
        shape = tuple(sizes[one] for one in way.letters.output)
        return shape == self._shape(way.node) and self._is_allowed(way)

    def _rank(self, way: Dot, goals: list[Dimensions]) -> int:
        """Compare the dimensions of `way`, a gradient, after the transposes that read it, with
        `goals`; return the index of the last equal goal, -1 if none is equal."""
        found = self._follow(way.node, way.letters.output)
        return max((rank for rank, goal in enumerate(goals) if goal == found), default=-1)

    def _is_allowed(self, way: Dot) -> bool:
        """Return False if a module states other contracted dimensions for `way`, a labelled dot."""
        told = find_told(self._graph, way.node)
        return told is None or told == way.letters.summed

    def _is_certain(self, gradient: Dot) -> bool:
        """Return True if shapes alone give a dot the contracted dimensions of `gradient`."""
        told = self._label(gradient.node, gradient.left, gradient.right)
        return told is not None and told.summed == gradient.letters.summed

    def _undo(self, node: int, letters: Dimensions) -> Dimensions:
        """Return the letters that the dimensions of `node` had before the transposes that compute
        it; `letters`: the letters after the transposes."""
        while self._opcodes[node] == TRANSPOSE and len(self._producers.at(node)) == 1:
            order, (read,) = self._order_of(node), self._producers.at(node).tolist()
            if read >= node or sorted(order) != list(range(len(letters))):
                break
            letters = tuple(letters[order.index(axis)] for axis in range(len(order)))
            node = read
        return letters

    def _follow(self, node: int, letters: Dimensions) -> Dimensions:
        """Return the letters of the dimensions after the transposes that follow `node`; each must
        be the only reader of its operand."""
        while len(self._consumers.at(node)) == 1:
            (reader,) = self._consumers.at(node).tolist()
            order = self._order_of(reader)
            if reader <= node or self._opcodes[reader] != TRANSPOSE:
                break
            if sorted(order) != list(range(len(letters))):
                break
            letters, node = tuple(letters[axis] for axis in order), reader
        return letters

    def _shape(self, node: int) -> Dimensions:
        if node not in self._shapes:
            sizes = self._features[node, vocabulary.SHAPE_DIMENSIONS][: self._ranks[node]]
            self._shapes[node] = tuple(sizes.astype(int).tolist())
        return self._shapes[node]

    def _order_of(self, node: int) -> Dimensions:
        """Return the permutation of a transpose."""
        order = self._features[node, vocabulary.DIMENSIONS][: self._ranks[node]]
        return tuple(order.astype(int).tolist())


class Ancestors:
    """An index of the tensors that depend on each dot, as the gradient of the dot's output mostly
    does. One sweep over the graph serves a block of dots: every node has an integer with a bit for
    each dot."""

    def __init__(self, graph: Graph, guess: dict[int, tuple[int, int]]) -> None:
        self._dots = np.array(sorted(guess), np.int64)
        self._positions = {node: k for k, node in enumerate(self._dots.tolist())}
        self._slopes = np.unique(np.array(list(guess.values()), np.int64).reshape(-1))
        self._producers = Neighbours.operands(graph.edges, graph.num_nodes)
        # Operands precede their readers in a program, but a file may hold any edges.
        self._come_first = bool((graph.edges[:, 1] < graph.edges[:, 0]).all())
        self._block = -1
        # (dots, slopes): True if the slope depends on the dot
        self._depends = np.empty((0, 0), bool)

    def keep(self, slopes: np.ndarray, dot: int) -> np.ndarray:
        """Return the tensors among `slopes` (k,) that depend on a dot."""
        if not self._come_first:
            return np.array([s for s in slopes.tolist() if self._follows(s, dot)], np.int64)
        block, row = divmod(self._positions[dot], BLOCK)
        if block != self._block:
            self._block, self._depends = block, self._sweep(self._dots[block * BLOCK :][:BLOCK])
        return np.asarray(slopes[self._depends[row, np.searchsorted(self._slopes, slopes)]])

    def _sweep(self, dots: np.ndarray) -> np.ndarray:
        """Return a mask (dots, slopes): True if a slope depends on a dot; `dots` are ascending."""
        first, number = int(dots[0]), len(self._producers.starts) - 1
        starts, nodes = self._producers.starts.tolist(), self._producers.nodes.tolist()
        bits = {node: 1 << k for k, node in enumerate(dots.tolist())}
        wanted = set(self._slopes.tolist())
        kept: dict[int, int] = {}
        # reached[n]: an integer with a bit for each dot that node n depends on, itself included
        reached = [0] * (number - first)
        for node in range(first, number):
            found = 0
            for read in nodes[starts[node] : starts[node + 1]]:
                if read >= first:
                    found |= reached[read - first]
            if node in wanted:
                kept[node] = found
            reached[node - first] = found | bits.get(node, 0)
        # write the integers as rows of bytes, then unpack their bits into a mask (slopes, dots)
        size = -(-len(dots) // 8)
        packed = b"".join(
            kept.get(slope, 0).to_bytes(size, "little") for slope in self._slopes.tolist()
        )
        rows = np.frombuffer(packed, np.uint8).reshape(len(self._slopes), size)
        unpacked = np.unpackbits(rows, axis=1, count=len(dots), bitorder="little")
        return np.ascontiguousarray(unpacked.T).astype(bool)

    def _follows(self, slope: int, dot: int) -> bool:
        """Return True if a slope depends on a dot, by a backward search."""
        seen, waiting = {slope}, [slope]
        while waiting:
            for read in self._producers.at(waiting.pop()).tolist():
                if read == dot:
                    return True
                if read > dot and read not in seen:
                    seen.add(read)
                    waiting.append(read)
        return False
