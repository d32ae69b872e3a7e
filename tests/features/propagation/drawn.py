"""Small programs with consistent shapes, drawn by a seed, and layouts for their settable nodes."""

import numpy as np

from solution.domain import vocabulary
from solution.domain.graph import Graph
from solution.domain.vocabulary import CONFIGURABLE_OPCODES
from solution.features.preparation import repair_padding
from tests.made.builder import Builder, Shape

SIZES = (1, 2, 3, 4)
# shapes whose layouts differ much in padding, and as many elements with dimensions of size 1
PADDED = ((64, 2), (40, 3), (64, 1, 2), (1, 64, 2), (2, 40, 3), (64, 2, 1))
TENSOR = {"output": 0, "input": 6, "kernel": 12}


class Drawing(Builder):
    """A program that grows by one operation at a time, which a seed draws."""

    def __init__(self, seed: int, special: bool = True) -> None:
        super().__init__()
        self.random = np.random.default_rng(seed)
        self.special = special

    def pick(self) -> int:
        return int(self.random.integers(len(self.opcodes)))

    def grow(self) -> None:
        """One more operation, on tensors that are there."""
        names = ["parameter", "tanh", "add", "transpose", "reshape", "reshape", "broadcast",
                 "reduce", "concatenate", "dot", "dot"]  # fmt: skip
        names += ["special"] * 2 * self.special
        name = self.random.choice(names)
        read = self.pick()
        shape = self.shapes[read]
        if name == "special":
            grow_specially(self, read)
        elif name == "parameter":
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

    def fill(self, shape: Shape) -> int:
        """A constant or a broadcast of a scalar: an old one, if there is one, or a new one."""
        names = zip(self.opcodes, self.shapes, strict=True)
        known = [n for n, (name, own) in enumerate(names) if own == shape and (
            name == "constant" or (name == "broadcast" and not self.listed[n]))]  # fmt: skip
        if known and self.random.random() < 0.6:
            return int(self.random.choice(known))
        if self.random.random() < 0.3:
            return self.add("constant", shape)
        scalars = [n for n, own in enumerate(self.shapes) if own == ()]
        scalar = int(self.random.choice([*scalars, self.add("parameter", ())]))
        return self.add("broadcast", shape, scalar, listed=[])

    def work(self, read: int) -> int:
        """An element-wise instruction that reads no other tensor, but for filled ones."""
        shape = self.shapes[read]
        name = str(self.random.choice(["tanh", "add", "multiply", "divide", "clamp", "select"]))
        if name == "tanh":
            return self.add(name, shape, read)
        if name == "divide" and self.random.random() < 0.5:
            return self.add(name, shape, self.fill(shape), self.add("sqrt", shape, read))
        if name in ("select", "clamp") and self.random.random() < 0.7:
            name = "subtract"
        return self.add(name, shape, read, self.fill(shape))

    def change_ones(self, read: int) -> int:
        """A reshape that adds or drops dimensions of size 1."""
        sizes = [size for size in self.shapes[read] if size > 1 or self.random.random() < 0.5]
        while len(sizes) < 5 and self.random.random() < 0.6:
            sizes.insert(int(self.random.integers(len(sizes) + 1)), 1)
        return self.add("reshape", tuple(sizes), read)

    def repeat(self, read: int) -> int:
        """A broadcast into the shape of its operand."""
        shape = self.shapes[read]
        return self.add("broadcast", shape, read, listed=list(range(len(shape))))

    def sum_ones(self, read: int) -> int:
        """A reduction over dimensions of size 1."""
        shape = self.shapes[read]
        ones = [axis for axis, size in enumerate(shape) if size == 1]
        summed = [axis for axis in ones if self.random.random() < 0.7]
        kept = tuple(size for axis, size in enumerate(shape) if axis not in summed)
        return self.add("reduce", kept, read, self.add("constant", ()), listed=summed)

    def begin(self) -> int:
        """A tensor whose layouts differ much in padding."""
        shape = PADDED[self.random.integers(len(PADDED))]
        start = str(self.random.choice(["parameter", "iota", "reshape", "constant", "reduce"]))
        if start == "reshape":
            return self.add(start, shape, self.add("parameter", (int(np.prod(shape)),)))
        if start == "reduce":
            flat = self.add("parameter", (int(np.prod(shape)) * 3,))
            large = tuple(size for size in shape if size > 1)
            read = self.add("reshape", (*large, 3), flat)
            made = self.add(start, large, read, self.add("constant", ()), listed=[len(large)])
            return self.add("reshape", shape, made)
        return self.add(start, shape)

    def chain(self, read: int) -> None:
        """Many element-wise instructions on one shape, whose end is summed or not."""
        if self.random.random() < 0.7:
            read = self.begin()
        made, shape = [read], self.shapes[read]
        for _ in range(self.random.integers(3, 14)):
            read = int(self.random.choice(made)) if self.random.random() < 0.3 else made[-1]
            if self.random.random() < 0.25:
                other = int(self.random.choice(made))
                made.append(self.add("add", shape, read, other))
            elif self.random.random() < 0.1:
                made.append(self.repeat(read))
            else:
                made.append(self.work(read))
        if shape and self.random.random() < 0.6:
            start, axis = self.add("constant", ()), int(self.random.integers(len(shape)))
            kept = (*shape[:axis], *shape[axis + 1 :])
            self.add("reduce", kept, made[-1], start, listed=[axis])

    def normalize(self, read: int) -> None:
        """Divide by what is summed over one dimension, which stays as one of size 1."""
        shape = self.shapes[read]
        axis = int(self.random.integers(len(shape)))
        kept, one = (*shape[:axis], *shape[axis + 1 :]), (*shape[:axis], 1, *shape[axis + 1 :])
        others = [k for k in range(len(shape)) if k != axis]
        total = self.add("reduce", kept, read, self.add("constant", ()), listed=[axis])
        if self.random.random() < 0.5:
            total = self.add("reshape", one, total)
        else:
            total = self.add("broadcast", one, total, listed=others)
        for _ in range(self.random.integers(1, 4)):
            total = self.work(total)
        if self.random.random() < 0.3:
            total = self.repeat(total)
        for _ in range(self.random.integers(1, 3)):
            flat = self.add("reshape", kept, total)
            self.add("divide", shape, read, self.add("broadcast", shape, flat, listed=others))

    def divide(self, count: int) -> Shape:
        """A shape of so many elements, of rank 1 to 5."""
        sizes: list[int] = []
        while len(sizes) < 4 and self.random.random() < 0.7:
            factor = int(self.random.choice([k for k in (1, 2, 3, 4, 6) if count % k == 0]))
            sizes.append(factor)
            count //= factor
        return (*sizes, count)


def grow_specially(drawing: Drawing, read: int) -> None:
    """A few operations at once that a TPU's compiler moves or removes."""
    name = drawing.random.choice(
        ["ones", "same", "sum", "chain", "chain", "norm", "twin", "window"]
    )
    shape = drawing.shapes[read]
    if name == "ones":  # added and dropped between element-wise instructions
        for _ in range(drawing.random.integers(1, 4)):
            if drawing.random.random() < 0.7:
                read = drawing.work(drawing.change_ones(read))
            else:
                read = drawing.change_ones(read)
    elif name == "same":
        drawing.repeat(read)
    elif name == "sum":  # over dimensions of size 1 alone
        drawing.sum_ones(drawing.change_ones(read))
    elif name == "chain":
        drawing.chain(read)
    elif name == "norm" and len(shape) > 1:
        drawing.normalize(read)
    elif name == "twin":  # a broadcast that tensors with and without dimensions of size 1 read
        one = drawing.work(drawing.change_ones(read))
        filled = drawing.fill(drawing.shapes[one])
        other = drawing.add("parameter", drawing.shapes[one])
        for reader in (one, other)[:: drawing.random.choice((1, -1))]:
            drawing.add("maximum", drawing.shapes[one], reader, filled)
    elif name == "window" and len(shape) > 1:
        drawing.add("reduce-window", shape, read, drawing.add("constant", ()))


def draw_graph(seed: int, operations: int = 25, configs: int = 6, *, special: bool = True) -> Graph:
    """A program with a root that nobody else reads, and random layouts. `special`: also with what a
    TPU's compiler moves or removes."""
    drawing = Drawing(seed, special)
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
