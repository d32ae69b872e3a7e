"""Make small graphs by hand or from a seed, and write graphs as npz files."""

import dataclasses
from pathlib import Path

import numpy as np

from solution.data.npz import write_npz
from solution.domain import vocabulary
from solution.domain.codebook import Codebook, encode
from solution.domain.collection import collection
from solution.domain.graph import Graph
from solution.domain.vocabulary import OPCODE_IDS

F32 = 13  # column of the one-hot element type


def make_nodes(shapes: list[tuple[int, ...]]) -> np.ndarray:
    """Return features (nodes, 140) of row-major float32 tensors, padded with 0 as in npz files."""
    features = np.zeros((len(shapes), vocabulary.NUM_NODE_FEATURES), np.float32)
    features[:, F32] = 1
    for row, shape in zip(features, shapes, strict=True):
        row[21 : 21 + len(shape)] = shape
        row[vocabulary.SHAPE_SUM] = sum(shape)
        row[vocabulary.SHAPE_PRODUCT] = np.prod(shape)
        row[134 : 134 + len(shape)] = range(len(shape))[::-1]
    return features


def make_layout_graph(
    seed: int = 0, configs: int = 12, *, name: str = "program", labelled: bool = True
) -> Graph:
    """Return a dot, an addition, a tanh and reshapes; random layouts of the dot and reshapes."""
    generator = np.random.default_rng(seed)
    rows, inner, columns = (int(size) for size in generator.integers(2, 40, 3))
    opcodes = ["parameter", "parameter", "dot", "parameter", "add", "reshape", "tanh", "reshape"]
    shapes: list[tuple[int, ...]] = [
        (rows, inner),
        (inner, columns),
        (rows, columns),
        (rows, columns),
        (rows, columns),
        (rows, 1, columns),
        (rows, 1, columns),
        (rows * columns,),
    ]
    edges = [[2, 0], [2, 1], [4, 2], [4, 3], [5, 4], [6, 5], [7, 6]]
    layouts = np.full((configs, 3, vocabulary.NUM_LAYOUT_FEATURES), -1, np.int8)
    cost = np.zeros(configs)
    for row, layout in enumerate(layouts):
        for node, rank in enumerate((2, 3, 1)):
            if generator.random() < 0.6:
                order = generator.permutation(rank)
                layout[node, :rank] = order
                cost[row] += (order[0] != rank - 1) * (node + 1)
    runtimes = np.round(1e6 * (1 + 0.1 * cost + 0.01 * generator.random(configs)))
    return Graph(
        name=name,
        collection=collection("layout:xla:random"),
        node_features=make_nodes(shapes),
        node_opcodes=np.array([OPCODE_IDS[opcode] for opcode in opcodes], np.uint8),
        edges=np.array(edges, np.int64),
        configurable=np.array([2, 5, 7]),
        configs=encode(layouts),
        runtimes=runtimes if labelled else None,
    )


def make_wide_graph(configs: int = 20_000, nodes: int = 60, *, name: str = "wide") -> Graph:
    """Return a chain of reshapes with three layouts each; its codes take over a megabyte."""
    generator = np.random.default_rng(0)
    layouts = np.full((3, vocabulary.NUM_LAYOUT_FEATURES), -1, np.int8)
    layouts[1, :2], layouts[2, :2] = (0, 1), (1, 0)
    codes = generator.integers(0, 3, (configs, nodes), np.uint8)
    opcodes = [OPCODE_IDS["parameter"]] + nodes * [OPCODE_IDS["reshape"]]
    return Graph(
        name=name,
        collection=collection("layout:xla:random"),
        node_features=make_nodes([(16, 8 + node) for node in range(nodes + 1)]),
        node_opcodes=np.array(opcodes, np.uint8),
        edges=np.stack([np.arange(1, nodes + 1), np.arange(nodes)], axis=1),
        configurable=np.arange(1, nodes + 1),
        configs=Codebook(
            np.tile(layouts, (nodes, 1)), 3 * np.arange(nodes + 1), codes, np.arange(configs)
        ),
        runtimes=1e6 + 1e3 * (codes == 2).sum(axis=1),
    )


def make_tile_graph(
    seed: int = 0, configs: int = 12, *, name: str = "kernel", labelled: bool = True
) -> Graph:
    """Return a matrix product and a tanh, with random tiles of the output."""
    generator = np.random.default_rng(seed)
    rows, inner, columns = (int(size) for size in generator.integers(16, 200, 3))
    shapes: list[tuple[int, ...]] = [(rows, inner), (inner, columns), (rows, columns)]
    opcodes = ("parameter", "parameter", "dot", "tanh")
    tiles = np.zeros((configs, vocabulary.NUM_TILE_FEATURES), np.float32)
    tiles[:, 8] = generator.integers(1, rows, configs)
    tiles[:, 9] = generator.integers(1, columns, configs)
    tiles[:, 14] = tiles[:, 8:14].sum(axis=1)
    tiles[:, 15] = tiles[:, 8] * tiles[:, 9]
    count = np.ceil(rows / tiles[:, 8]) * np.ceil(columns / tiles[:, 9])
    return Graph(
        name=name,
        collection=collection("tile:xla"),
        node_features=make_nodes([*shapes, (rows, columns)]),
        node_opcodes=np.array([OPCODE_IDS[opcode] for opcode in opcodes], np.uint8),
        edges=np.array([[2, 0], [2, 1], [3, 2]]),
        configurable=np.empty(0, np.int64),
        configs=tiles,
        runtimes=count / count.mean() if labelled else None,
    )


def renumber_nodes(graph: Graph, seed: int) -> tuple[Graph, np.ndarray]:
    """The same graph with its nodes in a random order, and the old number (nodes,) of each.

    Operands stay in order, which is the order of the edges.
    """
    old = np.random.default_rng(seed).permutation(graph.num_nodes)
    new = np.argsort(old)
    renumbered = dataclasses.replace(
        graph,
        node_features=graph.node_features[old],
        node_opcodes=graph.node_opcodes[old],
        edges=new[graph.edges],
        configurable=new[graph.configurable],
    )
    return renumbered, old


def find_difference(left: Graph, right: Graph) -> str | None:
    """Return the first field that differs in its values or its dtype; None: there is none."""
    for field in dataclasses.fields(Graph):
        values = [getattr(graph, field.name) for graph in (left, right)]
        if all(isinstance(value, Codebook) for value in values):
            values = [codebook.expand() for codebook in values]
        if not np.array_equal(*values) or len({getattr(v, "dtype", None) for v in values}) > 1:
            return field.name
    return None


def to_arrays(graph: Graph) -> dict[str, np.ndarray]:
    """Return the arrays of the competition's npz file, with its dtypes."""
    labels = np.zeros(graph.num_configs) if graph.runtimes is None else graph.runtimes
    arrays = {
        "node_feat": graph.node_features,
        "node_opcode": graph.node_opcodes.astype(np.uint8),
        "edge_index": graph.edges,
    }
    if graph.label_source:
        arrays["label_source"] = np.array(graph.label_source)
    if graph.options is not None:
        arrays["config_options"] = graph.options
        arrays["config_option_names"] = np.array(graph.option_names)
    if graph.collection.kind == "layout":
        return arrays | {
            "node_splits": np.array([[0, graph.num_nodes]]),
            "node_config_ids": graph.configurable,
            "node_config_feat": graph.layouts.expand().astype(np.float32),
            "config_runtime": labels.astype(np.int64),
        }
    normalizer = 1_000_000
    return arrays | {
        "config_feat": graph.tiles,
        "config_runtime": np.round(labels * normalizer).astype(np.int64),
        "config_runtime_normalizers": np.full(graph.num_configs, normalizer),
    }


def write_graph(graph: Graph, folder: Path, split: str = "train") -> Path:
    """Write the graph below `folder` at its path in the competition's download."""
    path = folder / "npz" / graph.collection.folder / split / f"{graph.name}.npz"
    return write_npz(to_arrays(graph), path)
