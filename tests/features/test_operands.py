"""Input and kernel are told apart by their shapes, whatever the order of the edges."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from solution.data.folders import find_files
from solution.data.npz import read_graph
from solution.domain.codebook_encoder import encode
from solution.domain.collection import collection
from solution.domain.graph import Graph
from solution.domain.vocabulary import OPCODE_IDS
from solution.features.operands import find_operands
from solution.features.padding import tensor_ranks
from tests.made.graphs import make_layout_graph, make_nodes


def make_program(
    opcode: str, shapes: list[tuple[int, ...]], edges: list[list[int]], node: int
) -> Graph:
    opcodes = np.full(len(shapes), OPCODE_IDS["parameter"], np.uint8)
    opcodes[node] = OPCODE_IDS[opcode]
    return dataclasses.replace(
        make_layout_graph(),
        node_features=make_nodes(shapes),
        node_opcodes=opcodes,
        edges=np.array(edges),
        configurable=np.array([node]),
        configs=encode(np.full((12, 1, 18), -1, np.int8)),
    )


@pytest.mark.parametrize("edges", [[[2, 0], [2, 1]], [[2, 1], [2, 0]]])
@pytest.mark.parametrize(
    ("first", "second", "left"),
    [((3, 4), (4, 5), 0), ((4, 5), (3, 4), 1), ((2, 3, 4), (4, 5), 0), ((4, 5), (2, 3, 4), 1)],
)
def test_a_dot_reads_the_tensor_with_its_first_dimension_on_the_left(
    edges: list[list[int]], first: tuple[int, ...], second: tuple[int, ...], left: int
) -> None:
    output = (*(first if left == 0 else second)[:-1], 5)
    operands = find_operands(make_program("dot", [first, second, output], edges, node=2))
    assert operands.input.tolist() == [-1, -1, left]
    assert operands.kernel.tolist() == [-1, -1, 1 - left]


@pytest.mark.parametrize("swapped", [False, True])
def test_operands_are_told_by_all_dimensions(swapped: bool) -> None:
    """Both have the output's first and its last dimension: (batch, 64, 8) x (batch, 4, 8)."""
    shapes = [(4, 64, 8), (64, 64, 4), (4, 8, 64)]
    edges = [[2, 0], [2, 1]]
    if swapped:
        shapes[:2] = shapes[1::-1]
    operands = find_operands(make_program("dot", shapes, edges, node=2))
    assert shapes[operands.input[2]] == (4, 64, 8)


def test_a_product_with_itself_has_one_edge() -> None:
    operands = find_operands(make_program("dot", [(4, 4), (4, 4)], [[1, 0]], node=1))
    assert operands.input[1] == operands.kernel[1] == 0


def test_a_reshape_has_no_kernel_and_a_parameter_has_no_input() -> None:
    operands = find_operands(make_program("reshape", [(4, 3), (12,)], [[1, 0]], node=1))
    assert operands.input.tolist() == [-1, 0]
    assert operands.kernel.tolist() == [-1, -1]


@pytest.mark.parametrize("kernel_first", [True, False])
def test_a_convolution_knows_its_kernel_by_window_and_features(kernel_first: bool) -> None:
    source, kernel, output = (8, 12, 12, 16), (3, 3, 16, 32), (8, 12, 12, 32)
    shapes = [kernel, source, output] if kernel_first else [source, kernel, output]
    graph = make_program("convolution", shapes, [[2, 0], [2, 1]], node=2)
    features = graph.node_features.copy()
    features[2, 37:39] = 3  # window
    features[2, 93:107] = [0, 3, 1, 2, 0, 0, 2, 3, 0, 1, 0, 0, 0, 3]
    operands = find_operands(dataclasses.replace(graph, node_features=features))
    assert operands.kernel[2] == (0 if kernel_first else 1)
    assert operands.input[2] == (1 if kernel_first else 0)


def count_impossible_orders(folder: Path) -> int:
    """Operands whose configurations order more dimensions than the operand has."""
    found = 0
    for file in find_files(folder):
        if file.collection.kind == "tile":
            continue
        graph = read_graph(file.path, file.collection)
        operands, configs = find_operands(graph), graph.layouts.expand()
        for first, nodes in ((6, operands.input), (12, operands.kernel)):
            operand = nodes[graph.configurable]
            ranks = np.where(operand >= 0, tensor_ranks(graph)[operand], 0)
            highest = configs[:, :, first : first + 6].max(axis=(0, 2))
            found += int((highest >= np.maximum(ranks, 0)).sum())
    return found


def test_operands_of_the_sample_have_the_dimensions_that_are_ordered(sample: Path) -> None:
    assert count_impossible_orders(sample) == 0


def test_operands_of_the_real_files_have_the_dimensions_that_are_ordered(tpu: Path) -> None:
    assert count_impossible_orders(tpu) == 0


def test_the_kernel_of_a_real_convolution_has_the_features_of_its_output(tpu: Path) -> None:
    """Column 100 of the kernel's shape is column 106 of the output's."""
    path = tpu / "npz" / "layout" / "xla" / "default" / "train" / "unet3d.npz"
    graph = read_graph(path, collection("layout:xla:default"))
    nodes = np.flatnonzero(graph.node_opcodes == OPCODE_IDS["convolution"])
    numbers, shapes = graph.node_features.astype(int), graph.node_features[:, 21:27]
    kernels = find_operands(graph).kernel[nodes]
    wanted = shapes[nodes, numbers[nodes, 106]]
    np.testing.assert_array_equal(shapes[kernels, numbers[nodes, 100]], wanted)
