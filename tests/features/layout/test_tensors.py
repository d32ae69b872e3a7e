"""Layout features against a slow loop over one tensor at a time, written from their description."""

import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from solution.domain import vocabulary
from solution.domain.codebook_encoder import encode
from solution.domain.collection import collection
from solution.domain.graph import Graph
from solution.domain.vocabulary import OPCODE_IDS
from solution.features.layout.tensors import FEATURES, TENSOR_FEATURES, describe_layouts
from solution.features.operands import find_operands
from solution.features.padding import repair_padding, tensor_ranks
from tests.made.graphs import make_nodes

OPCODES = ("parameter", "add", "dot", "convolution", "reshape")
NEVER = [-1] * 6


def random_graph(seed: int) -> Graph:
    """Tensors of rank 0 to 4 in random layouts; every dot, convolution, reshape is configurable."""
    generator = np.random.default_rng(seed)
    shapes = [
        tuple(int(size) for size in generator.integers(1, 200, generator.integers(0, 5)))
        for _ in range(12)
    ]
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
        for place, node in enumerate(graph.configurable.tolist()):
            for number, tensor in enumerate(tensors_of(graph, node)):
                rank = 0 if tensor is None else int(ranks[tensor])
                listed = generator.permutation(rank)[: generator.choice([0, 2, 6])]
                layouts[place, 6 * number : 6 * number + len(listed)] = listed
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
    place = listed.index(program[0]) if listed and program[0] in listed else len(shape) - 1
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
        "displacement": place / max(len(shape) - 1, 1) if listed else 0,
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
        slow_node(graph, int(graph.configurable[place]), layout.tolist())
        for place, layout in zip(pairs.node, pairs.layouts, strict=True)
    ]
    np.testing.assert_allclose(described, expected, rtol=1e-5, atol=1e-6)


@given(st.integers(0, 10_000))
@settings(max_examples=20, deadline=None)
def test_repaired_padding_changes_nothing(seed: int) -> None:
    graph = random_graph(seed)
    pairs = graph.layouts
    expected = describe_layouts(graph, pairs)
    np.testing.assert_array_equal(describe_layouts(repair_padding(graph), pairs), expected)


def describe_output(shape: tuple[int, ...], slots: list[int]) -> dict[str, float]:
    """Output features of one reshape in row-major order whose output is given as `slots`."""
    graph = Graph(
        name="reshape",
        collection=collection("layout:xla:random"),
        node_features=make_nodes([shape]),
        node_opcodes=np.array([OPCODE_IDS["reshape"]], np.uint8),
        edges=np.empty((0, 2), np.int64),
        configurable=np.array([0]),
        configs=encode(np.array([[[*(slots + NEVER)[:6], *NEVER, *NEVER]]], np.int8)),
        runtimes=None,
    )
    row = describe_layouts(graph, graph.layouts)[0]
    return dict(zip(TENSOR_FEATURES, row.tolist(), strict=False))


def test_a_transposed_matrix_by_hand() -> None:
    assert describe_output((100, 30), [0, 1]) == pytest.approx(
        {
            "given": 1,
            "changed": 1,
            "minor_changed": 1,
            "minor_size": math.log(100),
            "minor_ratio": math.log(100 / 30),
            "violation": 0,
            "waste": math.log(128 / 100 * 32 / 30),
            "distance": 1,
            "size": math.log(3000),
            "displacement": 1,
        }
    )


def test_an_unchanged_matrix_by_hand() -> None:
    expected = dict.fromkeys(TENSOR_FEATURES, 0.0) | {
        "minor_size": math.log(30),
        "violation": 1,
        "waste": math.log(128 / 30 * 104 / 100),
        "size": math.log(3000),
    }
    assert describe_output((100, 30), []) == pytest.approx(expected)
    assert describe_output((100, 30), [1, 0]) == pytest.approx({**expected, "given": 1})


def test_a_partial_layout_by_hand() -> None:
    """Row-major is [3, 2, 1, 0]; dimension 3 is not listed, so it is last."""
    described = describe_output((2, 7, 9, 256), [1, 2])
    assert described["distance"] == 0.5
    assert described["displacement"] == 1
    assert described["minor_changed"] == 1
    assert described["minor_ratio"] == pytest.approx(math.log(7 / 256))
    assert described["waste"] == pytest.approx(math.log(128 / 7 * 16 / 9))
