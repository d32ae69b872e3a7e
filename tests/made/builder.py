"""Build a program instruction by instruction."""

import dataclasses

import numpy as np

from solution.domain import vocabulary
from solution.domain.codebook import encode
from solution.domain.graph import Graph
from solution.domain.vocabulary import OPCODE_IDS
from tests.made.graphs import make_layout_graph, make_nodes

Shape = tuple[int, ...]


class Builder:
    """A program under construction."""

    def __init__(self) -> None:
        self.opcodes: list[str] = []
        self.shapes: list[Shape] = []
        self.edges: list[tuple[int, int]] = []
        self.listed: dict[int, list[int]] = {}

    def add(self, opcode: str, shape: Shape, *reads: int, listed: list[int] | None = None) -> int:
        node = len(self.opcodes)
        self.opcodes.append(opcode)
        self.shapes.append(tuple(int(size) for size in shape))
        self.edges += [(node, read) for read in dict.fromkeys(reads)]
        if listed is not None:
            self.listed[node] = listed
        return node

    def transpose(self, read: int, order: Shape) -> int:
        """Add a transpose unless it changes nothing; return the node."""
        if order == tuple(range(len(order))):
            return read
        shape = tuple(self.shapes[read][k] for k in order)
        return self.add("transpose", shape, read, listed=list(order))

    def describe(self) -> np.ndarray:
        """Return node features (nodes, 140), padded with 0 as in npz files."""
        features = make_nodes(self.shapes)
        for node, listed in self.listed.items():
            features[node, vocabulary.DIMENSIONS][: len(listed)] = listed
        return features

    def number(self) -> np.ndarray:
        """Return the opcodes (nodes,) uint8."""
        return np.array([OPCODE_IDS[name] for name in self.opcodes], np.uint8)

    def build(self, layouts: dict[int, np.ndarray] | None = None, root: int | None = None) -> Graph:
        """Return the program with `layouts` (configs, 18) by node; by default for its first dot."""
        if layouts is None:
            layouts = {self.opcodes.index("dot"): np.full((12, 18), -1, np.int8)}
        configs = np.stack([*layouts.values()], axis=1) if layouts else np.empty((1, 0, 18))
        features = self.describe()
        if root is not None:
            features[root, vocabulary.IS_ROOT] = 1
        return dataclasses.replace(
            make_layout_graph(labelled=False),
            node_features=features,
            node_opcodes=self.number(),
            edges=np.array(self.edges, np.int64).reshape(-1, 2),
            configurable=np.array(list(layouts), np.int64),
            configs=encode(configs),
        )
