"""Every implementation of the layout net gives the same scores.

They are torch's operations, what numba compiles, numpy, an ONNX file, and the net beside a fixed
list.
"""

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.programs import make_program
from solution.domain.codebook import encode
from solution.domain.collection import collection
from solution.domain.graph import Graph
from solution.features.candidates import make_candidates
from solution.features.nodes import fit_scaler
from solution.features.preparation import Preparation
from solution.models.layout import listed_net
from solution.models.layout.layout_forward import LayoutForward
from solution.models.layout.layout_gnn import LayoutGnn, LayoutGnnRanker, LayoutGnnSettings
from solution.models.layout.listed_net import ListedNet
from solution.models.nets.forward import Layers
from solution.models.nets.training_settings import TrainingSettings
from tests.made.elsewhere import compute_as_elsewhere
from tests.made.graphs import make_layout_graph


def make_ranker(chosen: LayoutGnnSettings, graph: Graph, seed: int) -> LayoutGnnRanker:
    """A net with weights and biases by chance; what is scaled, by the graph's deviations."""
    torch.manual_seed(seed)
    ranker = LayoutGnnRanker(chosen, seed)
    ranker.device = torch.device("cpu")
    inputs = ranker.prepare(graph)
    tables = {name: getattr(inputs, name).numpy() for name in ranker.scaled_tables}
    ranker.scalers_ = {name: fit_scaler([table]) for name, table in tables.items()}
    ranker.net_ = net = LayoutGnn(chosen).eval()
    for name, weight in net.named_parameters():
        if "norm" in name or name.endswith("bias"):
            torch.nn.init.normal_(weight, mean=float("norm.weight" in name), std=0.3)
    return ranker


def score_by_onnx(ranker: LayoutGnnRanker, graph: Graph) -> np.ndarray:
    onnxruntime = pytest.importorskip("onnxruntime")  # with the extra `onnx`
    pytest.importorskip("onnx")
    from solution.serving.onnx_export import _find_layout_inputs, _write_layout_net

    assert ranker.net_ is not None
    chosen = dataclasses.asdict(ranker.settings)
    weights = {name: value.numpy() for name, value in ranker.net_.state_dict().items()}
    layers, scores = _write_layout_net(chosen, weights, ranker.scalers_)
    session = onnxruntime.InferenceSession(layers.finish(scores, {}).SerializeToString())
    (found,) = session.run(None, _find_layout_inputs(graph, chosen))
    return np.asarray(found[graph.distinct.inverse])


@settings(max_examples=12, deadline=None)
@given(
    seed=st.integers(0, 1000),
    rounds=st.lists(st.sampled_from((4, 8, 12)), min_size=1, max_size=3),
    configs=st.integers(2, 40),
    pruning=st.sampled_from(("neighbourhood", "nothing", "virtual")),
)
def test_all_give_the_same_scores(seed: int, rounds: list[int], configs: int, pruning: str) -> None:
    graph = make_layout_graph(seed, configs=configs)
    chosen = LayoutGnnSettings(width=8, rounds=tuple(rounds), pruning=pruning)
    ranker = make_ranker(chosen, graph, seed)
    with pytest.MonkeyPatch.context() as patch:
        compute_as_elsewhere(patch)
        expected = ranker.predict(graph)
    assert np.ptp(expected) > 0 or len(graph.distinct.first) == 1
    light = ranker.in_numpy()
    beside = ListedNet(light, graph)
    for found in (
        ranker.predict(graph),  # compiled
        light.predict(graph),
        score_by_onnx(ranker, graph),
        beside.listed,
        beside.score(graph.layouts.expand()),
    ):
        np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-3)


TRAINING = TrainingSettings(epochs=1, configs_per_graph=8, visits=1)
ROUNDED = {"rtol": 1e-4, "atol": 1e-4}


@pytest.fixture(scope="module")
def net() -> LayoutForward:
    """A net of three rounds, one of which changes the width."""
    chosen = LayoutGnnSettings(width=16, rounds=(16, 8, 8), training=TRAINING)
    ranker = LayoutGnnRanker(chosen, 0)
    return ranker.fit([make_layout_graph(seed) for seed in (0, 1)], []).in_numpy()


def make_listed(seed: int, configs: int, nodes: int = 120, configurable: int = 30) -> Graph:
    """A program with a list of configurations, as a net needs it."""
    made = make_program(seed, nodes, nodes * 3 // 2, configurable)
    unset = encode(np.full((1, len(made.configurable), 18), -1, np.int8))
    of = collection("layout:xla:random")
    graph = Graph(
        "made", of, made.features, made.opcodes, made.edges, made.configurable, unset, None
    )
    return Preparation(1)(make_candidates(graph, configs))


def score_anew(net: LayoutForward, listed: Graph, layouts: np.ndarray) -> np.ndarray:
    """Each configuration beside the list, all nodes of all of them."""
    joined = encode(np.concatenate([listed.layouts.expand(), layouts]))
    marks = np.arange(len(joined.rows)) < listed.num_configs
    graph = dataclasses.replace(listed, configs=joined, runtimes=None, listed=marks)
    return net.predict(graph)[~marks]


def change(layouts: np.ndarray, nodes: list[int], value: int) -> np.ndarray:
    changed = layouts.copy()
    changed[np.array(nodes, int) % len(layouts), :2] = [value, (value + 1) % 3]
    return changed


CHANGES = st.tuples(st.lists(st.integers(0, 30), max_size=3), st.integers(-1, 2))
BATCHES = st.lists(CHANGES, min_size=1, max_size=6)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 5), st.lists(BATCHES, min_size=1, max_size=4))
def test_neighbours_of_neighbours_score_as_anew(
    net: LayoutForward, seed: int, batches: list[list[tuple[list[int], int]]]
) -> None:
    """Each batch is around the last configuration of the one before."""
    listed = make_listed(20 + seed, 12)
    incremental = ListedNet(net, listed)
    center = listed.layouts.expand()[0]
    for batch in batches:
        asked = np.array([change(center, nodes, value) for nodes, value in batch])
        found = incremental.score(asked)
        np.testing.assert_allclose(found, score_anew(net, listed, asked), **ROUNDED)
        center = asked[-1]


def test_far_ones_and_those_of_the_list_score_as_anew(net: LayoutForward) -> None:
    listed = make_listed(3, 12)
    incremental = ListedNet(net, listed)
    own = listed.layouts.expand()
    np.testing.assert_allclose(incremental.score(own), incremental.listed, **ROUNDED)
    others = make_listed(3, 40).layouts.expand()
    found = incremental.score(others)
    np.testing.assert_allclose(found, score_anew(net, listed, others), **ROUNDED)
    assert np.ptp(found) > 0


def test_only_changes_are_computed(net: LayoutForward, monkeypatch: pytest.MonkeyPatch) -> None:
    """A neighbour of a known configuration takes the convolution to few of all nodes."""
    listed = make_listed(4, 6, nodes=1000, configurable=60)
    incremental, rows = ListedNet(net, listed), []
    receive = listed_net.receive

    def count(layers: Layers[np.ndarray], sums: np.ndarray, *rest: Any) -> np.ndarray:
        rows.append(len(sums))
        return receive(layers, sums, *rest)

    monkeypatch.setattr(listed_net, "receive", count)
    center = listed.layouts.expand()[0]
    incremental.score(center[None])
    assert max(rows) == len(incremental._nodes)
    rows.clear()
    incremental.score(change(center, [7], 1)[None])
    assert 0 < max(rows) < len(incremental._nodes) / 3


def test_no_more_are_kept_than_said(net: LayoutForward) -> None:
    listed = make_listed(5, 30)
    incremental = ListedNet(net, listed)
    for layouts in listed.layouts.expand():
        incremental.score(layouts[None])
    assert len(incremental._known) == listed_net.KEPT
