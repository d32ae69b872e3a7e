"""Small programs with consistent shapes, drawn by a seed, and layouts for their settable nodes."""

import numpy as np

from solution.domain import vocabulary
from solution.domain.graph import Graph
from solution.domain.vocabulary import CONFIGURABLE_OPCODES
from solution.features.preparation import repair_padding
from tests.made.builder import Builder, Shape

SIZES = (1, 2, 3, 4)
TENSOR = {"output": 0, "input": 6, "kernel": 12}


class Drawing(Builder):
    """A program that grows by one operation at a time, which a seed draws."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.random = np.random.default_rng(seed)

    def pick(self) -> int:
        return int(self.random.integers(len(self.opcodes)))

    def grow(self) -> None:
        """One more operation, on tensors that are there."""
        name = self.random.choice(
            ["parameter", "tanh", "add", "transpose", "reshape", "reshape", "broadcast", "reduce",
             "concatenate", "dot", "dot"]
        )  # fmt: skip
        read = self.pick()
        shape = self.shapes[read]
        if name == "parameter":
            rank = int(self.random.integers(1, 5))
            self.add(name, tuple(self.random.choice(SIZES, rank)))
        elif name == "tanh":
            self.add(name, shape, read)
        elif name == "add":
            same = [n for n, other in enumerate(self.shapes) if other == shape]
            self.add(name, shape, read, int(self.random.choice(same)))
        elif name == "transpose":
            order = self.random.permutation(len(shape)).tolist()
            self.add(name, tuple(shape[k] for k in order), read, listed=order)
        elif name == "reshape":
            self.add(name, self.divide(int(np.prod(shape))), read)
        elif name == "broadcast" and len(shape) < 5:
            place, size = int(self.random.integers(len(shape) + 1)), int(self.random.choice(SIZES))
            kept = [k for k in range(len(shape) + 1) if k != place]
            self.add(name, (*shape[:place], size, *shape[place:]), read, listed=kept)
        elif name == "reduce" and len(shape) > 1:
            place = int(self.random.integers(len(shape)))
            start = self.add("constant", ())
            self.add(name, (*shape[:place], *shape[place + 1 :]), read, start, listed=[place])
        elif name == "concatenate" and shape:
            along = int(self.random.integers(len(shape)))
            other = [n for n, own in enumerate(self.shapes) if len(own) == len(shape) and all(
                own[k] == shape[k] for k in range(len(shape)) if k != along)]  # fmt: skip
            second = int(self.random.choice(other))
            size = shape[along] + (self.shapes[second][along] if second != read else 0)
            grown = (*shape[:along], size, *shape[along + 1 :])
            self.add(name, grown, read, second, listed=[along])
        elif name == "dot" and len(shape) == 2:
            columns = int(self.random.choice(SIZES))
            weights = self.add("parameter", (shape[1], columns))
            made = self.add(name, (shape[0], columns), read, weights)
            if self.random.random() < 0.3:
                self.add("transpose", (columns, shape[0]), made, listed=[1, 0])
        elif name == "dot" and len(shape) > 2:
            self.multiply(read, shape)

    def multiply(self, read: int, shape: Shape) -> None:
        """By weights, or by as many matrices as there are; some of its dimensions are summed."""
        size = int(self.random.choice(SIZES))
        if self.random.random() < 0.5:
            weights = self.add("parameter", (shape[-1], size))
            self.add("dot", (*shape[:-1], size), read, weights)
        else:
            weights = self.add("parameter", (shape[0], size, shape[-1]))
            self.add("dot", (*shape[:-1], size), read, weights)

    def divide(self, count: int) -> Shape:
        """A shape of so many elements, of rank 1 to 5."""
        sizes: list[int] = []
        while len(sizes) < 4 and self.random.random() < 0.7:
            factor = int(self.random.choice([k for k in (1, 2, 3, 4, 6) if count % k == 0]))
            sizes.append(factor)
            count //= factor
        return (*sizes, count)


def draw_graph(seed: int, operations: int = 25, configs: int = 6) -> Graph:
    """A program with a root that nobody else reads, and random layouts."""
    drawing = Drawing(seed)
    for size in ((2, 3, 4), (4, 3)):
        drawing.add("parameter", size)
    for _ in range(operations):
        drawing.grow()
    unread = set(range(len(drawing.opcodes))) - {producer for _, producer in drawing.edges}
    root = drawing.add("tuple", (), *sorted(unread))
    nodes = [n for n, name in enumerate(drawing.opcodes) if name in CONFIGURABLE_OPCODES]
    layouts = draw_layouts(drawing, nodes, configs)
    return repair_padding(drawing.build(dict(zip(nodes, layouts, strict=True)), root))


def draw_layouts(drawing: Drawing, configurable: list[int], configs: int) -> np.ndarray:
    """Random orders for a random share of the tensors at the configurable nodes."""
    layouts = np.full((len(configurable), configs, vocabulary.NUM_LAYOUT_FEATURES), -1, np.int8)
    for rows, node in zip(layouts, configurable, strict=True):
        read = [producer for consumer, producer in drawing.edges if consumer == node]
        tensors = dict(zip(TENSOR.values(), [node, *read], strict=False))
        for row in rows:
            for slot, tensor in tensors.items():
                rank = len(drawing.shapes[tensor])
                if rank > 1 and drawing.random.random() < 0.5:
                    row[slot : slot + rank] = drawing.random.permutation(rank)
    return layouts
