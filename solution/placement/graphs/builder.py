"""Build a model's graph from operations; add its backward pass and updates automatically.

Gradients follow the graph backwards. The gradient of a dot or convolution is one dot or convolution
per operand, with as many arithmetic operations; the gradient of a reduction is a broadcast; an
element-wise operation has one multiplication per operand, or a reduction if the operand was
broadcast. Slices and concatenations turn into each other, and the gradient of a gather is a copy of
rows. Gradients of one tensor are added.
"""

import math
from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from solution.domain.vocabulary import OPCODE_IDS
from solution.placement.graphs import cost_graph

FLOAT_BYTES = 4
FLOAT_TYPE = 11  # f32: its index in vocabulary.ELEMENT_BYTES
COPIES = 3  # tensors held per trained parameter: its value, its gradient and its momentum
UNREACHED = -1  # marks a tensor without a gradient
SLICE = OPCODE_IDS["slice"]
Shape = tuple[int, ...]


class ProgramBuilder:
    """A program under construction. A tensor is the index of the node that computes it."""

    def __init__(self) -> None:
        self.opcodes: list[int] = []
        self.shapes: list[Shape] = []
        self.operations: list[float] = []
        self.inputs: list[tuple[int, ...]] = []
        self.stages: list[int] = []
        self.trained: list[bool] = []
        self.ties: list[int] = []
        self.stage = 0  # layer or cell of the operations added next

    def add(
        self, opcode: str, shape: Shape, inputs: Sequence[int] = (), operations: float | None = None
    ) -> int:
        """Add a node and return its index. `operations`: by default one per element of the output,
        and none if the node runs no kernel."""
        number = OPCODE_IDS[opcode]
        is_data = cost_graph.FUSION_KINDS[number] == cost_graph.DATA
        work = 0.0 if is_data else float(math.prod(shape)) if operations is None else operations
        self.opcodes.append(number)
        self.shapes.append(shape)
        self.operations.append(work)
        self.inputs.append(tuple(inputs))
        self.stages.append(self.stage)
        self.trained.append(False)
        self.ties.append(len(self.ties))
        return len(self.opcodes) - 1

    def parameter(self, *shape: int) -> int:
        """Add a trained parameter and return its index."""
        node = self.add("parameter", shape)
        self.trained[node] = True
        return node

    def data(self, *shape: int) -> int:
        """Add an input tensor, which is not trained, and return its index."""
        return self.add("parameter", shape)

    def dot(self, left: int, right: int) -> int:
        """Add a matrix product: (..., m, k) times (k, n), or times another batch of matrices."""
        *batch, terms = self.shapes[left]
        width = self.shapes[right][-1]
        shape = (*batch, width)
        return self.add("dot", shape, (left, right), 2.0 * math.prod(shape) * terms)

    def apply(self, opcode: str, *inputs: int) -> int:
        """Add an element-wise operation with the first input's shape."""
        return self.add(opcode, self.shapes[inputs[0]], inputs)

    def dense(self, tensor: int, width: int, activation: str | None = None) -> int:
        """Add a dense layer: a dot with new weights, a bias, and the activation."""
        weights = self.parameter(self.shapes[tensor][-1], width)
        summed = self.apply("add", self.dot(tensor, weights), self.parameter(width))
        return summed if activation is None else self.apply(activation, summed)

    def softmax(self, tensor: int) -> int:
        """Add a softmax over the last dimension."""
        shape = self.shapes[tensor]
        highest = self.add("reduce", shape[:-1], (tensor,), math.prod(shape))
        powers = self.apply("exponential", self.apply("subtract", tensor, highest))
        total = self.add("reduce", shape[:-1], (powers,), math.prod(shape))
        return self.apply("divide", powers, total)

    def normalise(self, tensor: int) -> int:
        """Add a layer normalisation over the last dimension, with scale and offset."""
        shape = self.shapes[tensor]
        centre = self.add("reduce", shape[:-1], (tensor,), math.prod(shape))
        moved = self.apply("subtract", tensor, centre)
        squares = self.apply("multiply", moved, moved)
        spread = self.add("reduce", shape[:-1], (squares,), math.prod(shape))
        scaled = self.apply("multiply", moved, self.apply("rsqrt", spread))
        scaled = self.apply("multiply", scaled, self.parameter(shape[-1]))
        return self.apply("add", scaled, self.parameter(shape[-1]))

    def cross_entropy(self, logits: int) -> int:
        """Add the cross-entropy loss, a scalar."""
        chances = self.apply("log", self.softmax(logits))
        picked = self.apply("multiply", chances, self.data(*self.shapes[logits]))
        return self.add("reduce", (1,), (picked,), math.prod(self.shapes[logits]))

    def train(self, losses: Sequence[int]) -> None:
        """Add gradients of the losses, and an update of every parameter that affects a loss."""
        forward = len(self.opcodes)
        gradients = [UNREACHED] * forward
        slices: dict[int, list[int]] = defaultdict(list)  # tensor -> gradients of its slices
        needed = self._find_needed(forward)
        for loss in losses:
            gradients[loss] = self.add("constant", self.shapes[loss])
        for node in range(forward - 1, -1, -1):
            self.stage = self.stages[node]
            if slices[node]:
                found = self.add("concatenate", self.shapes[node], slices[node])
                gradients[node] = self._sum(found, gradients[node])
            if gradients[node] == UNREACHED:
                continue
            for operand, read in enumerate(self.inputs[node]):
                if needed[read] and self.opcodes[node] == SLICE:
                    slices[read].append(gradients[node])
                elif needed[read]:
                    found = self._differentiate(node, operand, gradients[node])
                    gradients[read] = self._sum(found, gradients[read])
            if self.trained[node]:
                self._update(node, gradients[node])

    def _sum(self, found: int, known: int) -> int:
        return found if known == UNREACHED else self.apply("add", found, known)

    def _update(self, node: int, gradient: int) -> None:
        """Add the update of a parameter; if its rows were gathered, only these rows are updated."""
        opcode = "scatter" if self.shapes[gradient] != self.shapes[node] else "subtract"
        update = self.add(opcode, self.shapes[gradient], (node, gradient))
        self.ties[update] = self.ties[node]

    def _find_needed(self, count: int) -> list[bool]:
        """Return a list of `count` bools: True for tensors that depend on a trained parameter."""
        needed = list(self.trained)
        for node in range(count):
            needed[node] = needed[node] or any(needed[read] for read in self.inputs[node])
        return needed

    def _differentiate(self, node: int, operand: int, gradient: int) -> int:
        """Add the gradient of the node's input number `operand`, given the node's `gradient`."""
        read = self.inputs[node][operand]
        shape, kind = self.shapes[read], cost_graph.FUSION_KINDS[self.opcodes[node]]
        others = [other for at, other in enumerate(self.inputs[node]) if at != operand]
        if kind == cost_graph.PRODUCT:
            opcode = "dot" if self.opcodes[node] == OPCODE_IDS["dot"] else "convolution"
            return self.add(opcode, shape, (gradient, *others), self.operations[node])
        if kind == cost_graph.REDUCTION:
            return self.add("broadcast", shape, (gradient,))
        if self.opcodes[node] == OPCODE_IDS["concatenate"]:
            return self.add("slice", shape, (gradient,))
        # a gather: the gradient has the shape of the gathered rows, not of the whole table
        if kind == cost_graph.ALONE:
            rows = min(shape, self.shapes[node], key=math.prod)
            return self.add("copy", rows, (gradient,))
        size = math.prod(self.shapes[node])
        if math.prod(shape) < size:  # the operand was broadcast: sum its gradient
            return self.add("reduce", shape, (gradient, *others), size)
        return self.add("multiply", shape, (gradient, read))

    def finish(self, name: str) -> cost_graph.CostGraph:
        """Return the graph of all added operations, with their costs."""
        count = len(self.opcodes)
        size = np.array([math.prod(shape) for shape in self.shapes], float) * FLOAT_BYTES
        is_parameter = np.array(self.opcodes) == OPCODE_IDS["parameter"]
        shapes = np.zeros((count, 6), np.float32)
        for node, shape in enumerate(self.shapes):
            shapes[node, : len(shape)] = shape
        opcodes = np.array(self.opcodes, np.uint8)
        columns = cost_graph.Columns(
            opcodes, cost_graph.FUSION_KINDS[opcodes], np.array(self.operations), size,
            size * np.where(self.trained, COPIES, is_parameter), shapes,
            np.full(count, FLOAT_TYPE, np.uint8), np.array(self.stages, np.int64),
        )  # fmt: skip
        edges = [(node, read) for node, inputs in enumerate(self.inputs) for read in inputs]
        return cost_graph.build_cost_graph(
            name, columns, np.array(edges, np.int64), np.array(self.ties)
        )
