"""Rows of a layout graph's configurations against a slow sum over the nodes."""

import dataclasses
import math
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from solution.data.npz import read_graph
from solution.domain.codebook import Codebook
from solution.domain.codebook_encoder import encode
from solution.domain.collection import collection
from solution.domain.graph import Graph
from solution.domain.vocabulary import LAYOUT_TENSORS, OPCODE_IDS
from solution.features.layout import layout_table as module
from solution.features.layout.layout_table import SUMMED
from solution.features.layout.tensors import FEATURES, describe_layouts
from solution.features.padding import repair_padding
from solution.features.table import feature_table
from tests.features.layout.test_tensors import random_graph, tensors_of
from tests.made.graphs import make_layout_graph

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


def slow_terms(left: list[int], right: list[int], output: list[int]) -> int:
    """Cross out the output's dimensions in both operands: what is left of either is summed."""
    for batch in range(len(output) + 1):
        for middle in range(batch, len(output) + 1):
            rests = [left.copy(), right.copy()]
            try:
                for rest, named in zip(
                    rests, (output[:middle], output[:batch] + output[middle:]), strict=True
                ):
                    for size in named:
                        rest.remove(size)
            except ValueError:
                continue
            if sorted(rests[0]) == sorted(rests[1]):
                return math.prod(rests[0])
    return 1


def slow_operations(graph: Graph, node: int) -> float:
    """Multiply-adds of a dot or convolution, elements of anything else."""
    elements, opcode = slow_elements(graph, node), CONFIGURABLE.get(int(graph.node_opcodes[node]))
    output, *operands = tensors_of(graph, node)
    contracted = 1.0
    if opcode == "dot" and None not in operands:
        contracted = slow_terms(*(sizes_of(graph, one) for one in (*operands, output)))
    if opcode == "convolution":
        axis = int(graph.node_features[node, 106])
        kernel = slow_elements(graph, operands[1])
        contracted = kernel / max(float(graph.node_features[node, 21 + axis]), 1.0)
    return elements * max(contracted, 1.0)


def one_pair(layout: np.ndarray, place: int, nodes: int) -> Codebook:
    """The codebook that holds one layout, of the node at `place`."""
    starts = (np.arange(nodes + 1) > place).astype(np.int64)
    return Codebook(layout[None], starts, np.zeros((1, nodes), np.uint8), np.zeros(1, np.int64))


def slow_row(graph: Graph, config: int) -> dict[str, float]:
    """The weighted sums of one configuration, node by node."""
    nodes = graph.configurable.tolist()
    operations = [slow_operations(graph, node) for node in nodes]
    sizes = [slow_elements(graph, node) * 4 for node in nodes]  # all float32
    row: dict[str, float] = {}
    real = padded = 0.0
    for place, node in enumerate(nodes):
        pair = one_pair(graph.layouts.expand()[config, place], place, len(nodes))
        described = dict(zip(FEATURES, describe_layouts(graph, pair)[0].tolist(), strict=True))
        opcode = CONFIGURABLE[int(graph.node_opcodes[node])]
        weights = dict.fromkeys(CONFIGURABLE.values(), 0.0)
        weights[opcode] = operations[place] / sum(operations)
        weights |= {"count": 1 / len(nodes), "bytes": sizes[place] / sum(sizes)}
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


@given(SEEDS)
@settings(max_examples=25, deadline=None)
def test_the_graph_itself_is_the_same_in_every_row(seed: int) -> None:
    graph = random_graph(seed)
    context = feature_table(graph).select(pl.col("^graph_.*$"))
    assert all(len(set(column)) == 1 for column in context.iter_columns())
    row = context.row(0, named=True)
    nodes = range(graph.num_nodes)
    operations = sum(slow_operations(graph, node) for node in nodes)
    assert row["graph_nodes"] == pytest.approx(math.log(graph.num_nodes))
    assert row["graph_configurable"] == pytest.approx(math.log(1 + len(graph.configurable)))
    assert row["graph_operations"] == pytest.approx(math.log(operations), rel=1e-5)
    size = sum(4 * slow_elements(graph, node) for node in nodes)
    assert row["graph_bytes"] == pytest.approx(math.log(size), rel=1e-5)
    names = [CONFIGURABLE[int(graph.node_opcodes[node])] for node in graph.configurable]
    for name in CONFIGURABLE.values():
        assert row[f"graph_{name}_share"] == pytest.approx(names.count(name) / len(names))


def rows_as_bytes(graph: Graph) -> list[bytes]:
    return [row.tobytes() for row in np.ascontiguousarray(feature_table(graph).to_numpy())]


@given(SEEDS)
@settings(max_examples=25, deadline=None)
def test_identical_configurations_have_identical_rows(seed: int) -> None:
    graph = random_graph(seed)
    doubled = rows_as_bytes(graph.select(np.tile(np.arange(graph.num_configs), 2)))
    assert doubled[: graph.num_configs] == doubled[graph.num_configs :]


@given(SEEDS, st.permutations(range(8)))
@settings(max_examples=25, deadline=None)
def test_permuted_configurations_have_permuted_rows(seed: int, order: list[int]) -> None:
    graph = random_graph(seed)
    rows = rows_as_bytes(graph)
    assert rows_as_bytes(graph.select(np.array(order))) == [rows[config] for config in order]


def relabel(graph: Graph, generator: np.random.Generator) -> Graph:
    """The same graph with its nodes and its configurable nodes in another order."""
    order = generator.permutation(graph.num_nodes)
    places = generator.permutation(len(graph.configurable))
    position = np.argsort(order)
    return dataclasses.replace(
        graph,
        node_features=graph.node_features[order],
        node_opcodes=graph.node_opcodes[order],
        edges=position[graph.edges],
        configurable=position[graph.configurable][places],
        configs=encode(graph.layouts.expand()[:, places]),
    )


def has_twin_producers(graph: Graph) -> bool:
    """Two tensors that a node reads have one shape and layout: their numbers tell them apart."""
    for node in graph.configurable:
        own = np.unique(graph.edges[graph.edges[:, 0] == node, 1])
        described = graph.node_features[own][:, [*range(21, 27), *range(134, 140)]]
        if len(np.unique(described, axis=0)) < len(own):
            return True
    return False


@given(SEEDS)
@settings(max_examples=25, deadline=None)
def test_relabelling_nodes_changes_nothing(seed: int) -> None:
    graph = random_graph(seed)
    assume(not has_twin_producers(graph))
    relabelled = feature_table(relabel(graph, np.random.default_rng(seed)))
    expected = feature_table(graph)
    assert relabelled.columns == expected.columns
    np.testing.assert_allclose(relabelled, expected, rtol=1e-5, atol=1e-6)


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
    assert feature_table(repair_padding(graph)).equals(feature_table(graph))


def test_a_graph_without_configurable_nodes_has_rows_too() -> None:
    graph = make_layout_graph()
    bare = dataclasses.replace(
        graph, configurable=graph.configurable[:0], configs=encode(graph.layouts.expand()[:, :0])
    )
    table = feature_table(bare)
    assert len(table) == graph.num_configs
    assert np.isfinite(table.to_numpy()).all()


@pytest.mark.parametrize(
    "file",
    [
        "xla/default/train/unet3d.npz",
        "xla/random/train/openai_v0_rnn_optimized.npz",
        "xla/random/valid/unet_3d.4x4.bf16.npz",
        "nlp/random/test/23559853d9702baaaacbb0c83fd32266.npz",
    ],
)
def test_real_files_have_finite_rows(tpu: Path, file: str) -> None:
    name = ":".join(["layout", *Path(file).parts[:2]])
    graph = read_graph(tpu / "npz" / "layout" / file, collection(name))
    table = feature_table(graph)
    assert len(table) == graph.num_configs
    assert np.isfinite(table.to_numpy()).all()
