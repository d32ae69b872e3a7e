"""Convert a module to the competition's graph: opcodes, 140 node features, edges.

Source: featurizers.h and hlo_encoder.cc of google-research-datasets/tpu_graphs define the arrays
(Phothilimthana et al., "TpuGraphs", NeurIPS 2023). All numbers are integers; sums and products wrap
around like 64-bit integers, and become float32 at the end.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from solution.domain.graph import InvalidGraphError
from solution.domain.vocabulary import CONFIGURABLE_OPCODES, MAX_RANK, OPCODE_IDS, SUMMED
from solution.programs.hlo.messages import instructions

# Element types in the order of the one-hot encoding, as numbers of XLA's PrimitiveType.
ELEMENT_TYPES = (0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 16, 15, 18, 13, 14, 17)
WINDOW_NUMBERS = ("size", "stride", "padding_low", "padding_high", "window_dilation",
                  "base_dilation")  # fmt: skip
SPATIAL = 4  # number of a convolution's spatial dimensions that the features hold
FEW = 2  # number of a slice's or padding's dimensions whose values the features hold
NONE = -1  # stands for a missing dimension, because 0 is a dimension
# a main computation, which ends a section of Nodes.splits, has one of these words in its name
MAIN_COMPUTATIONS = ("cluster", "while", "cond")


@dataclass(frozen=True)
class Nodes:
    """The graph of a module, without configurations."""

    features: np.ndarray  # (nodes, 140) float32: the node features of TpuGraphs
    opcodes: np.ndarray  # (nodes,) uint8: ids of opcodes; 0 if the competition does not know one
    edges: np.ndarray  # (edges, 2) int64: each row is [consumer, producer]
    # (1, s) int64: the first node of each section, then the number of nodes. A section consists of
    # the nodes of consecutive computations, up to a main one (see MAIN_COMPUTATIONS) or the end.
    splits: np.ndarray
    # (nodes, 2, SUMMED) int8: dimensions that a dot sums, in its left and right operand; -1: none
    summed: np.ndarray


def read_nodes(module: Any) -> Nodes:
    """Return a Module's graph; InvalidGraphError if an id is missing or two are equal."""
    rows = [
        describe(instruction, is_root=instruction.id == computation.root_id)
        for computation in module.computations
        for instruction in computation.instructions
    ]
    opcodes = [OPCODE_IDS.get(instruction.opcode, 0) for instruction in instructions(module)]
    return Nodes(
        np.array(rows, np.int64).astype(np.float32),
        np.array(opcodes, np.uint8),
        _find_edges(module),
        _split(module),
        np.array([_describe_dot(instruction) for instruction in instructions(module)], np.int8),
    )


def find_configurable(opcodes: np.ndarray) -> np.ndarray:
    """Return the nodes (configurable,) whose layouts can be set, by the competition's rule."""
    wanted = [OPCODE_IDS[name] for name in CONFIGURABLE_OPCODES]
    return np.flatnonzero(np.isin(opcodes, wanted))


def describe(instruction: Any, *, is_root: bool) -> list[int]:
    """Return the 140 features of an instruction, in the order of solution.domain.vocabulary."""
    shape = instruction.shape
    return [
        int(is_root),
        0,  # bits of an element, which TpuGraphs' extractor always leaves 0
        *(int(shape.element_type == kind) for kind in ELEMENT_TYPES),
        *summarise(shape.dimensions, MAX_RANK),
        len(shape.tuple_shapes),
        instruction.parameter_number,
        *first(instruction.dimensions, MAX_RANK),
        *_describe_window(instruction.window.dimensions),
        *_describe_convolution(instruction.convolution),
        instruction.feature_group_count,
        instruction.batch_group_count,
        *_describe_each(instruction.slices, ("start", "stride", "limit"), FEW),
        *summarise(instruction.dynamic_slice_sizes, FEW),
        *_describe_each(
            instruction.padding.dimensions, ("edge_padding_low", "edge_padding_high"), FEW
        ),
        int(instruction.is_stable),
        *first(shape.layout.minor_to_major, MAX_RANK),
    ]


def first(values: Sequence[int], length: int, missing: int = 0) -> list[int]:
    """Return the first `length` values; if there are fewer, fill up with `missing`."""
    kept = list(values[:length])
    return kept + [missing] * (length - len(kept))


def summarise(values: Sequence[int], length: int) -> list[int]:
    """Return the first `length` values (filled up with 0), and all values' sum and product."""
    product = 1
    # wrap after each factor, because the whole product may have millions of digits
    for value in values:
        product = wrap(product * value)
    return [*first(values, length), wrap(sum(values)), product]


def wrap(value: int) -> int:
    """Return an integer of any size as a signed 64-bit integer, which wraps around."""
    return (value + (1 << 63)) % (1 << 64) - (1 << 63)


def _describe_each(messages: Iterable[Any], names: Sequence[str], length: int) -> list[int]:
    found = list(messages)
    return [
        number
        for name in names
        for number in summarise([getattr(message, name) for message in found], length)
    ]


def _describe_window(dimensions: Sequence[Any]) -> list[int]:
    reversal = [int(dimension.window_reversal) for dimension in dimensions]
    counts = [sum(reversal), len(reversal) - sum(reversal)]
    numbers = _describe_each(dimensions, WINDOW_NUMBERS, MAX_RANK)
    return [*numbers, *first(reversal, MAX_RANK), *counts]


def _describe_convolution(numbers: Any) -> list[int]:
    return [
        numbers.input_batch_dimension,
        numbers.input_feature_dimension,
        *first(numbers.input_spatial_dimensions, SPATIAL),
        numbers.kernel_input_feature_dimension,
        numbers.kernel_output_feature_dimension,
        *first(numbers.kernel_spatial_dimensions, SPATIAL),
        numbers.output_batch_dimension,
        numbers.output_feature_dimension,
    ]


def _describe_dot(instruction: Any) -> list[list[int]]:
    """Return the dimensions (2, SUMMED) that a dot sums in its left and right operand, -1 where
    there is none; only -1 for other instructions."""
    numbers = instruction.dot
    lists = [numbers.lhs_contracting_dimensions, numbers.rhs_contracting_dimensions]
    is_dot = instruction.opcode == "dot"
    kept = [[axis for axis in axes if is_dot and 0 <= axis < MAX_RANK] for axes in lists]
    return [first(axes, SUMMED, NONE) for axes in kept]


def find_places(module: Any) -> dict[int, int]:
    """Return {instruction id: node number}; InvalidGraphError if two instructions share an id."""
    nodes: dict[int, int] = {}
    for node, instruction in enumerate(instructions(module)):
        if nodes.setdefault(instruction.id, node) != node:
            raise InvalidGraphError([f"two instructions have the id {instruction.id}"])
    return nodes


def _find_edges(module: Any) -> np.ndarray:
    """Return sorted edges (edges, 2), [consumer, producer]. The producers of an instruction are its
    operands and the roots of the computations that it calls."""
    nodes = find_places(module)
    roots = {computation.id: computation.root_id for computation in module.computations}
    edges = []
    for node, instruction in enumerate(instructions(module)):
        try:
            called = [roots[computation] for computation in instruction.called_computation_ids]
            producers = {*instruction.operand_ids, *called}
            edges += [(node, nodes[producer]) for producer in producers]
        except KeyError as error:
            raise InvalidGraphError(
                [f"node {node} ({instruction.opcode}) names the id {error}, which is not there"]
            ) from error
    return np.array(sorted(edges), np.int64).reshape(-1, 2)


def _split(module: Any) -> np.ndarray:
    """Return the boundaries (1, s) of the sections of nodes, see Nodes.splits."""
    splits, count = [0], 0
    for computation in module.computations:
        count += len(computation.instructions)
        if any(name in computation.name for name in MAIN_COMPUTATIONS):
            splits.append(count)
    if splits[-1] < count:
        splits.append(count)
    return np.array([splits], np.int64)
