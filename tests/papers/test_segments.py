"""Dividing a graph into segments, and the table of their embeddings."""

import sys

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from solution.domain.graph import Graph
from solution.papers.embedding_table import EmbeddingTable, name_graph
from solution.papers.segments import PARTITIONS, divide, topological_order
from solution.system.errors import InputError
from tests.features.test_pruning import LABEL, make_graph
from tests.made.graphs import make_wide_graph, renumber_nodes


@st.composite
def programs(draw: st.DrawFn) -> Graph:
    """Any program: consumers have higher numbers than their producers."""
    nodes = draw(st.integers(1, 14))
    ends = st.integers(0, nodes - 1)
    edges = draw(st.lists(st.tuples(ends, ends).filter(lambda pair: pair[0] > pair[1])))
    return make_graph(nodes, edges, draw(st.lists(ends, max_size=3, unique=True)))


def names(graph: Graph, segments: list[np.ndarray]) -> list[list[float]]:
    return [graph.node_features[segment, LABEL].tolist() for segment in segments]


@pytest.mark.parametrize("partition", PARTITIONS)
@given(graph=programs(), max_nodes=st.none() | st.integers(1, 6), seed=st.integers(0, 99))
@settings(max_examples=60, deadline=None)
def test_segments_hold_every_node_once_whatever_its_number(
    partition: str, graph: Graph, max_nodes: int | None, seed: int
) -> None:
    segments = divide(graph, partition, max_nodes)
    assert sorted(np.concatenate(segments).tolist()) == list(range(graph.num_nodes))
    assert all(len(segment) for segment in segments)
    other = renumber_nodes(graph, seed)[0]
    assert names(other, divide(other, partition, max_nodes)) == names(graph, segments)


@given(graph=programs(), seed=st.integers(0, 99))
@settings(max_examples=60, deadline=None)
def test_producers_come_before_their_consumers(graph: Graph, seed: int) -> None:
    graph = renumber_nodes(graph, seed)[0]
    position = np.argsort(topological_order(graph))
    consumers, producers = position[graph.edges].T
    assert (consumers > producers).all()


def test_nodes_on_a_cycle_are_in_a_segment_too() -> None:
    graph = make_graph(4, [(1, 0), (2, 1), (1, 2), (3, 2)], [1])
    assert sorted(topological_order(graph).tolist()) == [0, 1, 2, 3]


@pytest.mark.parametrize(("partition", "most"), [("metis", 1.2), ("topological", 1.0)])
def test_segments_are_about_equal_and_cut_few_edges(partition: str, most: float) -> None:
    graph, _ = renumber_nodes(make_wide_graph(configs=4, nodes=399), 0)  # a chain
    segments = divide(graph, partition, 50)
    assert len(segments) == 8
    assert max(len(segment) for segment in segments) <= most * 50
    number = np.empty(graph.num_nodes, int)
    for position, segment in enumerate(segments):
        number[segment] = position
    cut = (number[graph.edges[:, 0]] != number[graph.edges[:, 1]]).sum()
    assert 7 <= cut <= 20


def test_without_pymetis_it_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pymetis", None)
    graph = make_wide_graph(configs=4)
    with pytest.raises(InputError, match="pymetis is not installed.*partition='topological'"):
        divide(graph, "metis", 10)
    assert len(divide(graph, "topological", 10)) == 7
    assert len(divide(graph, "metis", None)) == 1


GRAPHS = [name_graph("layout:xla:random", name) for name in "ab"]
writes = st.lists(
    st.tuples(
        st.sampled_from(GRAPHS), st.lists(st.integers(0, 4), min_size=1), st.integers(0, 3)
    )
)  # fmt: skip


@given(writes=writes, entries=st.integers(1, 300))
@settings(max_examples=150, deadline=None)
def test_the_table_returns_what_was_last_written_or_says_that_it_does_not_know(
    writes: list[tuple[int, list[int], int]], entries: int
) -> None:
    table, written, latest = EmbeddingTable(2, 16 * entries), {}, set[tuple[int, int, int]]()
    assert table.capacity == entries
    for time, (graph, configs, segment) in enumerate(writes, 1):
        values = {config: [time, config] for config in configs}
        kept = torch.tensor([values[config] for config in configs], dtype=torch.float32)
        table.write(graph, np.array(configs), segment, kept)
        latest = {(graph, config, segment) for config in configs}
        written |= {(graph, config, segment): values[config] for config in configs}
    again = EmbeddingTable(2, 16 * entries)
    again.restore(table.state())
    found = {}
    for graph in GRAPHS:
        for current in (table, again):
            known, values = current.read(graph, np.arange(5), 4)
            for config, segment in np.ndindex(5, 4):
                key, value = (graph, config, segment), values[config, segment].tolist()
                assert value == (written[key] if known[config, segment] else [0, 0])
                found[key] = bool(known[config, segment])
    assert sum(found.values()) <= entries
    assert any(found[key] for key in latest) or not writes


def test_a_table_with_room_keeps_nearly_everything() -> None:
    table = EmbeddingTable(1, 12 * 200_000)
    table.write(GRAPHS[0], np.arange(10_000), 1, torch.ones(10_000, 1))
    known, _ = table.read(GRAPHS[0], np.arange(10_000), 2)
    assert known[:, 0].sum() == 0
    assert known[:, 1].float().mean() > 0.96
