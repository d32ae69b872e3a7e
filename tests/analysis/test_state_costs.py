"""Costs that add up: their sum is the difference of two scores, and the words say what they are."""

import re
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console
from rich.filesize import decimal

from solution.analysis.explanation import describe
from solution.analysis.explanation_pictures import draw_costs
from solution.analysis.state_costs import explain_costs, name_reasons, show_costs
from solution.features.propagation.state_table import state_tables
from solution.models.base import CostRanker
from solution.models.layout.cost_kernel import CostKernelSettings
from solution.models.layout.cost_net import CostNetRanker, CostNetSettings
from solution.models.layout.known_costs import CostSettings
from solution.models.layout.layout_gnn import LayoutGnnSettings
from solution.models.nets.training_settings import TrainingSettings
from tests.features.propagation.slow import pad_slowly
from tests.made.costs import sum_costs
from tests.made.graphs import make_layout_graph

GRAPHS = [make_layout_graph(seed, configs=20, name=f"program_{seed}") for seed in range(5)]
TRAINING = TrainingSettings(loss="list_mle", epochs=2, patience=None, learning_rate=2e-3,
                            graphs_per_step=1, configs_per_graph=16)  # fmt: skip


@pytest.fixture(scope="module")
def ranker() -> CostNetRanker:
    return CostNetSettings(backend="cpu", width=8, training=TRAINING).build(0).fit(GRAPHS, [])


def test_two_configurations_differ_by_what_is_shown(ranker: CostNetRanker, tmp_path: Path) -> None:
    graph = GRAPHS[0]
    explained = explain_costs(ranker, graph)
    scores = ranker.predict(graph)
    assert (explained.slow, explained.fast) == (scores.argmax(), scores.argmin())
    assert explained.added.sum() == pytest.approx(np.ptp(scores), abs=1e-4)
    assert (np.diff(np.abs(explained.added)) <= 0).all()
    assert all(slow != fast for slow, fast in
               zip(explained.slow_states, explained.fast_states, strict=True))  # fmt: skip
    console = Console(width=140)
    with console.capture() as capture:
        console.print(show_costs(explained))
    text = capture.get()
    assert f"{explained.added[0]:+.3f}" in text
    assert f"{explained.added.sum():+.3f}" in text
    reasons = name_reasons(explained)
    assert reasons
    assert reasons[0] in describe(explained, reasons)
    draw_costs(explained, tmp_path / "costs.png")
    assert (tmp_path / "costs.png").read_bytes().startswith(b"\x89PNG")
    of_the_fastest = explain_costs(ranker, graph, int(scores.argmin()))
    assert (of_the_fastest.slow, of_the_fastest.fast) == (scores.argmax(), scores.argmin())
    assert name_reasons(of_the_fastest) == reasons


@pytest.mark.parametrize("settings", [
    CostNetSettings(backend="cpu", width=8, training=TRAINING),
    CostKernelSettings(backend="cpu", cosines=16),
    CostNetSettings(backend="tpu", width=8, training=TRAINING),
    CostKernelSettings(backend="tpu", cosines=16),
])  # fmt: skip
def test_costs_add_up_and_a_tpus_have_their_padding(settings: CostSettings) -> None:
    ranker, compared = settings.build(0).fit(GRAPHS, []), 0
    assert isinstance(ranker, CostRanker)
    for graph in GRAPHS:
        scores = ranker.predict(graph)
        sums = sum_costs(graph, ranker.list_costs(graph), settings.backend)
        np.testing.assert_allclose(sums - sums[0], scores - scores[0], atol=1e-4)
        costs = explain_costs(ranker, graph)
        assert costs.added.sum() == pytest.approx(np.ptp(scores), rel=1e-4, abs=1e-4)
        for name, state in zip(costs.names, costs.slow_states, strict=True):
            if made := re.search(r"makes \{([\d,]+)\} \((.+?) with padding\)", state):
                sizes = name.split()[2].split("x")
                layout = tuple(map(int, made[1].split(",")))
                assert made[2] == decimal(pad_slowly(tuple(map(int, sizes)), layout, 4))
                compared += 1
    assert name_reasons(costs)
    assert compared > 3 or settings.backend == "cpu"


def test_only_a_sum_of_costs_adds_up(ranker: CostNetRanker) -> None:
    assert isinstance(ranker, CostRanker)
    assert not isinstance(LayoutGnnSettings(width=8, rounds=(8,)).build(0), CostRanker)
    with pytest.raises(RuntimeError, match="the ranker"):
        CostNetSettings().build(0).list_costs(GRAPHS[0])


def test_a_copy_costs_more_than_nothing_whatever_is_learned(ranker: CostNetRanker) -> None:
    for graph in GRAPHS:
        table = state_tables("cpu")(graph)
        is_copy = np.ones(len(table.node), bool)
        is_copy[table.numbers[:, : table.instructions].ravel()] = False
        costs = ranker.list_costs(graph)[is_copy]
        copied = table.is_copied[is_copy]
        assert (costs[copied] > 0).all()
        assert (costs[~copied] == 0).all()
