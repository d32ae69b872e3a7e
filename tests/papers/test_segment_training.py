"""The mechanisms of segment training against full graphs and against their formulas."""

import dataclasses
import sys
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from solution.domain.graph import Graph
from solution.models.nets import checkpoint
from solution.models.nets.losses import pairwise_hinge
from solution.models.nets.training_settings import TrainingSettings
from solution.papers.segment_training import (
    EmbeddingTable,
    SegmentedInputs,
    SegmentNet,
    SegmentRanker,
    SegmentSettings,
    draw_weights,
    name_graph,
    prepare_segments,
)
from solution.papers.segments import PARTITIONS, divide_nodes, topological_order
from solution.system.errors import InputError
from solution.system.report import Report, silent
from tests.features.test_pruning import LABEL, make_graph
from tests.made.graphs import make_wide_graph, renumber_nodes
from tests.models.test_rankers import LAYOUT

SETTINGS = SegmentSettings(width=8, rounds=2, table_megabytes=1)
CONFIGS = np.array([[4], [0], [2], [7], [0]])


def prepare(max_nodes: int | None, partition: str = "topological") -> SegmentedInputs:
    return prepare_segments(LAYOUT[1], None, partition, max_nodes)


def make_net(**changes: object) -> SegmentNet:
    torch.manual_seed(0)
    return SegmentNet(dataclasses.replace(SETTINGS, **changes))  # type: ignore[arg-type]


def gradients(net: SegmentNet, inputs: SegmentedInputs) -> list[Tensor]:
    runtimes = torch.arange(len(CONFIGS), dtype=torch.float32)[:, None]
    loss = pairwise_hinge(net.score_batch([inputs], CONFIGS), runtimes)
    return list(torch.autograd.grad(loss, list(net.parameters())))


@pytest.mark.parametrize("partition", ["metis", "topological"])
@pytest.mark.parametrize("chosen", [None, 99])
def test_all_segments_have_the_gradients_of_the_graph(partition: str, chosen: int | None) -> None:
    """That is the graph in one piece without the edges between segments."""
    cut = prepare(3, partition)
    assert len(cut.sizes) == 3
    net = make_net(chosen=chosen)
    bounds = cut.bounds[:, [0, -1]]
    edges = [cut.segment(n).edge_index + int(cut.bounds[0, n]) for n in range(3)]
    whole = dataclasses.replace(cut, bounds=bounds, edge_index=torch.cat(edges, dim=1))
    for ours, full in zip(gradients(net, cut), gradients(net.eval(), whole), strict=True):
        torch.testing.assert_close(ours, full, atol=1e-6, rtol=1e-4)


def test_edges_between_segments_are_cut_and_the_others_kept() -> None:
    inputs, graph = prepare(4), LAYOUT[1]
    kept = sum(inputs.segment(number).edge_index.shape[1] for number in range(2))
    assert kept == inputs.edge_index.shape[1] < len(graph.edges)
    assert sorted(inputs.columns.tolist()) == list(range(len(graph.configurable)))
    for number in range(2):
        segment = inputs.segment(number)
        opcodes = segment.opcodes[segment.configurable].tolist()
        assert opcodes == graph.node_opcodes[graph.configurable[segment.columns]].tolist()
        expected = graph.layouts.expand()[graph.layouts.distinct.first][:, segment.columns] + 1
        given = segment.given(np.arange(len(expected)))
        assert torch.equal(given, torch.from_numpy(expected).long().transpose(0, 1))


@pytest.mark.parametrize("kept", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("size", [1, 2, 5])
def test_every_segment_is_expected_to_count_once(kept: float, size: int) -> None:
    """Over every choice of segments, and enough configurations to average the dropping out."""
    torch.manual_seed(0)
    known = torch.tensor([[True] * 5, [True, False, True, False, False], [False] * 5])
    choices = [torch.tensor(choice) for choice in combinations(range(5), size)]
    weights = [draw_weights(known.repeat_interleave(2000, dim=0), c, kept) for c in choices]
    mean = torch.stack(weights).view(-1, 3, 2000, 5).mean(dim=(0, 2))
    torch.testing.assert_close(mean, torch.ones(3, 5), atol=0.03, rtol=0)


def test_a_chosen_segment_has_the_weight_of_the_paper() -> None:
    known = torch.tensor([[True, True, True, True], [True, True, False, True]])
    weights = draw_weights(known, torch.tensor([2]), kept=0.5)
    assert weights[:, 2].tolist() == [0.5 + 0.5 * 4, 4.0]
    assert set(weights[:, [0, 1, 3]].flatten().tolist()) <= {0.0, 1.0}
    assert draw_weights(known, torch.arange(4), kept=0.5).tolist() == [[1.0] * 4] * 2


def test_what_is_not_chosen_comes_from_the_table_and_gets_no_gradient() -> None:
    inputs, configs, net = prepare(4), np.array([0, 1, 2]), make_net(kept=1.0)
    table, other = net.table, torch.full((3, 8), 7.0)
    assert table is not None
    for number in range(2):
        table.write(inputs.key, configs, number, other)
    embedded = net._embed_chosen(inputs, configs)
    known, values = table.read(inputs.key, configs, 2)
    assert known.all()
    (stale,) = (n for n in range(2) if torch.equal(values[:, n], other))
    own = net.embed_segment(inputs, 1 - stale, configs)
    torch.testing.assert_close(values[:, 1 - stale], own.detach())  # refreshed
    torch.testing.assert_close(embedded, inputs.shares[1 - stale] * own + inputs.shares[stale] * 7)


def fit(
    settings: SegmentSettings, folder: Path | None = None, report: Report = silent
) -> SegmentRanker:
    ranker = settings.build(0)
    if folder is not None:
        ranker.keep_checkpoints(folder)
    return ranker.fit(LAYOUT[:4], [], report)


def test_tuning_moves_the_head_alone() -> None:
    training = TrainingSettings(epochs=2, patience=None, configs_per_graph=8)
    settings = dataclasses.replace(SETTINGS, max_nodes=3, head_epochs=0, training=training)
    trained = fit(settings).net_
    tuned = fit(dataclasses.replace(settings, head_epochs=3)).net_
    assert trained is not None and tuned is not None
    for name, value in tuned.state_dict().items():
        assert torch.equal(value, trained.state_dict()[name]) != name.startswith("head."), name


def test_a_killed_fit_predicts_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint, "SECONDS_BETWEEN", 0.0)
    training = TrainingSettings(epochs=6, patience=None, graphs_per_step=2, configs_per_graph=8)
    settings = dataclasses.replace(SETTINGS, max_nodes=3, head_epochs=2, training=training)

    def kill(done: int, *_: object, **__: object) -> None:
        if done == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fit(settings, tmp_path, kill)
    torch.manual_seed(99)  # another process has other random numbers
    went_on = fit(settings, tmp_path).predict(LAYOUT[5])
    np.testing.assert_array_equal(went_on, fit(settings).predict(LAYOUT[5]))


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
    segments = divide_nodes(graph, partition, max_nodes)
    assert sorted(np.concatenate(segments).tolist()) == list(range(graph.num_nodes))
    assert all(len(segment) for segment in segments)
    other = renumber_nodes(graph, seed)[0]
    assert names(other, divide_nodes(other, partition, max_nodes)) == names(graph, segments)


def test_nodes_on_a_cycle_are_in_a_segment_too() -> None:
    graph = make_graph(4, [(1, 0), (2, 1), (1, 2), (3, 2)], [1])
    assert sorted(topological_order(graph).tolist()) == [0, 1, 2, 3]


@pytest.mark.parametrize(("partition", "most"), [("metis", 1.2), ("topological", 1.0)])
def test_segments_are_about_equal_and_cut_few_edges(partition: str, most: float) -> None:
    graph, _ = renumber_nodes(make_wide_graph(configs=4, nodes=399), 0)  # a chain
    segments = divide_nodes(graph, partition, 50)
    assert len(segments) == 8
    assert max(len(segment) for segment in segments) <= most * 50
    number = np.empty(graph.num_nodes, int)
    for position, segment in enumerate(segments):
        number[segment] = position
    assert 7 <= (np.diff(number[graph.edges], axis=1) != 0).sum() <= 20


def test_without_pymetis_it_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pymetis", None)
    graph = make_wide_graph(configs=4)
    with pytest.raises(InputError, match="partition='topological'"):
        divide_nodes(graph, "metis", 10)
    assert len(divide_nodes(graph, "topological", 10)) == 7
    assert len(divide_nodes(graph, "metis", None)) == 1


GRAPHS = [name_graph("layout:xla:random", name) for name in "ab"]
CHOSEN = st.lists(st.integers(0, 4), min_size=1)
WRITES = st.lists(st.tuples(st.sampled_from(GRAPHS), CHOSEN, st.integers(0, 3)))


@given(writes=WRITES, entries=st.integers(1, 300))
@settings(max_examples=150, deadline=None)
def test_the_table_keeps_the_latest(writes: list[tuple[int, list[int], int]], entries: int) -> None:
    table, written = EmbeddingTable(2, 16 * entries), {}
    latest: dict[tuple[int, int, int], list[int]] = {}
    assert table.capacity == entries
    for time, (graph, configs, segment) in enumerate(writes, 1):
        kept = torch.tensor([[time, config] for config in configs], dtype=torch.float32)
        table.write(graph, np.array(configs), segment, kept)
        latest = {(graph, config, segment): [time, config] for config in configs}
        written |= latest
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
