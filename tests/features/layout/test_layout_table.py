"""Rows of a layout graph's configurations against a slow sum over the nodes."""

import dataclasses
import math
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from solution.data.npz import read_graph
from solution.domain import vocabulary
from solution.domain.codebook import Codebook, encode
from solution.domain.collection import collection
from solution.domain.graph import Graph
from solution.domain.vocabulary import LAYOUT_TENSORS, OPCODE_IDS
from solution.features.layout import frequency
from solution.features.layout import layout_table as module
from solution.features.layout.layout_table import COPIES, SUMMED, count_copies
from solution.features.layout.tensors import (
    CONFLICTS,
    FEATURES,
    TENSOR_FEATURES,
    describe_layouts,
    find_constraints,
)
from solution.features.operations import find_operands, num_bytes, tensor_ranks
from solution.features.preparation import repair_padding
from solution.features.table import feature_table
from tests.features.test_contractions import search_terms
from tests.made.builder import Builder
from tests.made.graphs import make_layout_graph, make_nodes

CONFIGURABLE = {OPCODE_IDS[name]: name for name in ("convolution", "dot", "reshape")}
SEEDS = st.integers(0, 10_000)


def slow_elements(graph: Graph, node: int | None) -> float:
    """Elements of a node's tensor; 1 for a scalar and for no node."""
    if node is None:
        return 1.0
    return float(math.prod(int(size) for size in graph.node_features[node, 21:27] if size > 0))


def sizes_of(graph: Graph, node: int | None) -> list[int]:
    """The sizes of a node's dimensions, but for those of 1; none of a scalar or of no node."""
    return [] if node is None else [int(s) for s in graph.node_features[node, 21:27] if s > 1]


def slow_operations(graph: Graph, node: int) -> float:
    """Multiply-adds of a dot or convolution, elements of anything else."""
    elements, opcode = slow_elements(graph, node), CONFIGURABLE.get(int(graph.node_opcodes[node]))
    output, *operands = tensors_of(graph, node)
    contracted = 1.0
    if opcode == "dot" and None not in operands:
        sizes = (sizes_of(graph, one) for one in (*operands, output))
        contracted = search_terms(*sizes) or 1
    if opcode == "convolution":
        axis = int(graph.node_features[node, 106])
        kernel = slow_elements(graph, operands[1])
        contracted = kernel / max(float(graph.node_features[node, 21 + axis]), 1.0)
    return elements * max(contracted, 1.0)


def one_pair(layout: np.ndarray, position: int, nodes: int) -> Codebook:
    """The codebook that holds one layout, of the node at `position`."""
    starts = (np.arange(nodes + 1) > position).astype(np.int64)
    return Codebook(layout[None], starts, np.zeros((1, nodes), np.uint8), np.zeros(1, np.int64))


def slow_row(graph: Graph, config: int) -> dict[str, float]:
    """The weighted sums of one configuration, node by node."""
    nodes = graph.configurable.tolist()
    operations = [slow_operations(graph, node) for node in nodes]
    sizes = [slow_elements(graph, node) * 4 for node in nodes]  # all float32
    row: dict[str, float] = {}
    real = padded = 0.0
    for position, node in enumerate(nodes):
        pair = one_pair(graph.layouts.expand()[config, position], position, len(nodes))
        described = dict(zip(FEATURES, describe_layouts(graph, pair)[0].tolist(), strict=True))
        opcode = CONFIGURABLE[int(graph.node_opcodes[node])]
        weights = dict.fromkeys(CONFIGURABLE.values(), 0.0)
        weights[opcode] = operations[position] / sum(operations)
        weights |= {"count": 1 / len(nodes), "bytes": sizes[position] / sum(sizes)}
        for name, weight in weights.items():
            for feature in SUMMED:
                key = f"{name}_{feature}"
                row[key] = row.get(key, 0.0) + weight * described[feature]
        for tensor, one in zip(LAYOUT_TENSORS, tensors_of(graph, node), strict=True):
            if one is not None:
                real += slow_elements(graph, one)
                padded += slow_elements(graph, one) * math.exp(described[f"{tensor}_waste"])
    return row | {"moved_bytes": math.log(padded / real)}


@given(SEEDS)
@settings(max_examples=25, deadline=None)
def test_every_row_is_the_slow_sum_over_its_nodes(seed: int) -> None:
    graph = random_graph(seed)
    table = feature_table(graph)
    assert len(table) == graph.num_configs
    assert set(table.dtypes) == {pl.Float32()}
    for config, row in enumerate(table.iter_rows(named=True)):
        for name, value in slow_row(graph, config).items():
            assert row[name] == pytest.approx(value, rel=1e-4, abs=1e-5), name


@pytest.mark.parametrize("entries", [1, 4, 100])
def test_block_size_changes_nothing(entries: int, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = make_layout_graph(configs=30)
    whole = feature_table(graph)
    monkeypatch.setattr(module, "BLOCK_ENTRIES", entries)
    assert feature_table(graph).equals(whole)


@given(SEEDS)
@settings(max_examples=10, deadline=None)
def test_repaired_padding_changes_nothing(seed: int) -> None:
    graph = random_graph(seed)
    repaired = repair_padding(graph)
    assert feature_table(repaired).equals(feature_table(graph))
    described = describe_layouts(repaired, graph.layouts)
    np.testing.assert_array_equal(described, describe_layouts(graph, graph.layouts))


def test_a_graph_without_configurable_nodes_has_rows_too() -> None:
    graph = make_layout_graph()
    bare = dataclasses.replace(
        graph, configurable=graph.configurable[:0], configs=encode(graph.layouts.expand()[:, :0])
    )
    table = feature_table(bare)
    assert len(table) == graph.num_configs
    assert np.isfinite(table.to_numpy()).all()


@pytest.mark.parametrize("file", [
    "xla/default/train/unet3d.npz", "xla/random/train/openai_v0_rnn_optimized.npz",
    "xla/random/valid/unet_3d.4x4.bf16.npz", "nlp/random/test/23559853d9702baaaacbb0c83fd32266.npz",
])  # fmt: skip
def test_real_files_have_finite_rows(tpu: Path, file: str) -> None:
    name = ":".join(["layout", *Path(file).parts[:2]])
    graph = read_graph(tpu / "npz" / "layout" / file, collection(name))
    table = feature_table(graph)
    assert len(table) == graph.num_configs
    assert np.isfinite(table.to_numpy()).all()


Orders = list[dict[int, tuple[list[int], list[int]]]]
CHAIN = ("parameter", "reshape", "", "reshape")


def make_chain(
    opcode: str, middle: tuple[int, ...], orders: Orders, first: tuple[int, ...] = (4, 6, 3)
) -> Graph:
    """x -> reshape 1 -> OPCODE 2 -> reshape 3, with (output, input) orders of both reshapes."""
    layouts = np.full((2, len(orders), vocabulary.NUM_LAYOUT_FEATURES), -1)
    for row, given_orders in enumerate(orders):
        for position, node in enumerate((1, 3)):
            for slot, order in zip((0, 6), given_orders.get(node, ([], [])), strict=True):
                layouts[position, row, slot : slot + len(order)] = order
    program, size = Builder(), int(np.prod(middle))
    for name, shape in zip(CHAIN, ((size,), first, middle, (size,)), strict=True):
        reads = [len(program.opcodes) - 1] if program.opcodes else []
        program.add(name or opcode, shape, *reads)
    return program.build(dict(zip((1, 3), layouts, strict=True)))


def describe(graph: Graph, node: int) -> list[dict[str, bool]]:
    """What is said of a node's tensor, a dictionary a configuration."""
    constraints = find_constraints(graph)
    found = constraints.describe(graph.layouts.codes)[graph.layouts.rows]
    column = constraints.nodes.tolist().index(node)
    rows = found[:, column].astype(bool).tolist()
    return [dict(zip(CONFLICTS, row, strict=True)) for row in rows]


def test_an_order_is_handed_on_element_by_element() -> None:
    orders: Orders = [
        {},
        {1: ([2, 1, 0], [])},
        {1: ([2, 1, 0], []), 3: ([], [2, 1, 0])},
        {1: ([2, 1, 0], []), 3: ([], [2, 0, 1])},
        {1: ([2, 1, 0], []), 3: ([], [0, 1, 2])},
    ]
    said = describe(make_chain("tanh", (4, 6, 3), orders), node=2)
    assert [line["constrained"] for line in said] == [False, True, True, True, True]
    assert [line["minor_differs"] for line in said] == [False, False, False, False, True]
    assert [line["order_differs"] for line in said] == [False, False, False, True, True]


def test_a_dimension_of_size_one_may_stand_anywhere() -> None:
    orders: Orders = [
        {1: ([1, 2, 0], []), 3: ([], [2, 1, 0])},
        {1: ([1, 2, 0], []), 3: ([], [0, 1, 2])},
    ]
    said = describe(make_chain("tanh", (4, 1, 3), orders, first=(4, 1, 3)), node=2)
    assert [line["minor_differs"] for line in said] == [False, True]


def test_a_transpose_renames_the_dimensions() -> None:
    orders: Orders = [
        {1: ([2, 1, 0], []), 3: ([], [0, 2, 1])},  # dimension 2 is called 0, 1 is 2, 0 is 1
        {1: ([2, 1, 0], []), 3: ([], [2, 1, 0])},
    ]
    graph = make_chain("transpose", (3, 4, 6), orders)
    features = graph.node_features.copy()
    features[2, vocabulary.DIMENSIONS] = [2, 0, 1, 0, 0, 0]
    said = describe(dataclasses.replace(graph, node_features=features), node=2)
    assert [line["order_differs"] for line in said] == [False, True]


@pytest.mark.parametrize("opcode", ["fusion", "copy", "custom-call", "broadcast", "reduce"])
def test_what_may_order_its_output_anew_or_changes_the_shape_hands_nothing_on(opcode: str) -> None:
    middle = (4, 6) if opcode == "reduce" else (4, 6, 3)
    orders: Orders = [{1: ([2, 1, 0], []), 3: ([], [0, 1, 2][: len(middle)])}]
    assert 2 not in find_constraints(make_chain(opcode, middle, orders)).nodes


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10_000))
def test_a_tensor_that_is_ordered_twice(seed: int) -> None:
    """Node 4 (an add) takes the order of the dot before it, and node 5 (a reshape) reads it."""
    graph = make_layout_graph(seed, configs=30)
    sizes = graph.node_features[4, vocabulary.SHAPE_DIMENSIONS]
    for config, said in zip(graph.layouts.expand(), describe(graph, node=4), strict=True):
        constraints = [config[0, :6], config[1, 6:12]]
        orders = [[d for d in constraint if d >= 0 and sizes[d] > 1] for constraint in constraints]
        given_orders = [order for order in orders if order]
        assert said["constrained"] == bool(given_orders)
        assert said["minor_differs"] == (len({order[0] for order in given_orders}) > 1)
        assert said["order_differs"] == (len({tuple(order[:2]) for order in given_orders}) > 1)


@given(SEEDS)
@settings(max_examples=25, deadline=None)
def test_copies_are_counted_tensor_by_tensor(seed: int) -> None:
    graph = random_graph(seed)
    constraints = find_constraints(graph)
    found = count_copies(graph)
    assert found.shape == (len(graph.layouts.codes), len(COPIES))
    described = constraints.describe(graph.layouts.codes)
    sizes = num_bytes(graph)[constraints.nodes]
    for config, tensors in enumerate(described):
        count = sum(int(order) for _, _, order in tensors)
        moved = sum(size * int(order) for size, (_, _, order) in zip(sizes, tensors, strict=True))
        row = dict(zip((f.name for f in COPIES), found[config], strict=True))
        assert row["copies_count"] == pytest.approx(np.log1p(count), abs=1e-5)
        assert row["copies_bytes"] == pytest.approx(np.log1p(moved), rel=1e-5)
        if len(sizes):
            assert row["copies_order"] == pytest.approx(count / len(sizes), abs=1e-6)


@given(SEEDS)
@settings(max_examples=25, deadline=None)
def test_frequencies_are_shares_of_all_candidates(seed: int) -> None:
    graph = random_graph(seed)
    layouts = graph.layouts.expand()  # (configs, nodes, 18)
    found = frequency.measure_frequency(graph.layouts)[graph.layouts.rows]
    for config, row in enumerate(found):
        same = (layouts == layouts[config]).all(axis=2)  # (configs, nodes)
        share = same.mean(axis=0)
        top = [
            max((layouts[:, n] == layouts[c, n]).all(axis=1).mean() for c in range(len(layouts)))
            for n in range(layouts.shape[1])
        ]
        expected = [share.mean(), np.log(share).mean(), share.min(), np.isclose(share, top).mean()]
        np.testing.assert_allclose(row, expected, rtol=1e-9)


OPCODES = ("parameter", "add", "dot", "convolution", "reshape")


def random_graph(seed: int) -> Graph:
    """Tensors of rank 0 to 4 in random layouts; every dot, convolution, reshape is configurable."""
    generator = np.random.default_rng(seed)
    shapes = [tuple(generator.integers(1, 200, generator.integers(0, 5))) for _ in range(12)]
    features = make_nodes(shapes)
    for row, shape in zip(features, shapes, strict=True):
        row[134 : 134 + len(shape)] = generator.permutation(len(shape))
        row[vocabulary.CONVOLUTION_OUTPUT_FEATURE] = generator.integers(0, max(1, len(shape)))
    opcodes = [str(generator.choice(OPCODES)) for _ in shapes[1:]] + ["dot"]
    edges = [
        (node, int(generator.integers(0, node)))
        for node in range(1, len(shapes))
        for _ in range(generator.integers(0, 3))
    ]
    configurable = [node for node, opcode in enumerate(opcodes) if opcode in OPCODES[2:]]
    graph = Graph(
        name="random",
        collection=collection("layout:xla:random"),
        node_features=features,
        node_opcodes=np.array([OPCODE_IDS[opcode] for opcode in opcodes], np.uint8),
        edges=np.array(edges, np.int64).reshape(-1, 2),
        configurable=generator.permutation(configurable),
        configs=encode(np.full((8, len(configurable), 18), -1, np.int8)),
        runtimes=None,
    )
    return dataclasses.replace(graph, configs=encode(random_layouts(graph, generator)))


def tensors_of(graph: Graph, node: int) -> list[int | None]:
    """The node itself, its input and its kernel."""
    operands = find_operands(graph)
    found = (int(operands.input[node]), int(operands.kernel[node]))
    return [node, *(tensor if tensor >= 0 else None for tensor in found)]


def random_layouts(graph: Graph, generator: np.random.Generator) -> np.ndarray:
    """Nothing, a whole permutation, or only its first two dimensions, for each tensor."""
    configs = graph.layouts.expand()
    ranks = tensor_ranks(graph)
    for layouts in configs:
        for position, node in enumerate(graph.configurable.tolist()):
            for number, tensor in enumerate(tensors_of(graph, node)):
                rank = 0 if tensor is None else int(ranks[tensor])
                listed = generator.permutation(rank)[: generator.choice([0, 2, 6])]
                layouts[position, 6 * number : 6 * number + len(listed)] = listed
    return configs


def slow_tensor(shape: list[int], program: list[int], slots: list[int]) -> dict[str, float]:
    """What TENSOR_FEATURES says of a tensor of `shape` in the layout `program` under `slots`."""
    listed = [slot for slot in slots if slot >= 0]
    order = (listed + [axis for axis in program if axis not in listed]) if listed else program
    sizes = [shape[axis] for axis in order] or [1]
    contiguous = sizes[0]
    rows = sizes[1] if len(sizes) > 1 else 1
    before = shape[program[0]] if program else 1
    different = [axis != old for axis, old in zip(listed, program, strict=False)]
    position = listed.index(program[0]) if listed and program[0] in listed else len(shape) - 1
    padded = math.ceil(contiguous / 128) * 128 * math.ceil(rows / 8) * 8
    return {
        "given": bool(listed),
        "changed": any(different),
        "minor_changed": bool(listed) and listed[0] != program[0],
        "minor_size": math.log(contiguous),
        "minor_ratio": math.log(contiguous / before),
        "violation": bool(shape) and max(shape) > contiguous,
        "waste": math.log(padded / (contiguous * rows)),
        "distance": sum(different) / len(listed) if listed else 0,
        "size": math.log(math.prod(shape)),
        "displacement": position / max(len(shape) - 1, 1) if listed else 0,
    }


def slow_node(graph: Graph, node: int, layout: list[int]) -> list[float]:
    """All features of one pair of a configurable node and a layout."""
    row: list[float] = []
    ranks = tensor_ranks(graph)
    for number, tensor in enumerate(tensors_of(graph, node)):
        shape: list[int] = []
        program: list[int] = []
        if tensor is not None:
            features = graph.node_features[tensor].astype(int).tolist()
            shape = features[21 : 21 + ranks[tensor]]
            program = features[134 : 134 + ranks[tensor]]
        described = slow_tensor(shape, program, layout[6 * number : 6 * number + 6])
        row += [described[name] for name in TENSOR_FEATURES]
    return row


@given(st.integers(0, 10_000))
@settings(max_examples=60, deadline=None)
def test_features_equal_the_slow_reference(seed: int) -> None:
    graph = random_graph(seed)
    pairs = graph.layouts
    described = describe_layouts(graph, pairs)
    assert described.dtype == np.float32
    assert described.shape == (len(pairs.node), len(FEATURES))
    expected = [
        slow_node(graph, int(graph.configurable[position]), layout.tolist())
        for position, layout in zip(pairs.node, pairs.layouts, strict=True)
    ]
    np.testing.assert_allclose(described, expected, rtol=1e-5, atol=1e-6)
