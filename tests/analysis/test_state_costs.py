"""Costs that add up: their sum is the difference of two scores, and the words say what they are."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from rich.console import Console

from solution.analysis.explanation import adds_up, describe
from solution.analysis.explanation_pictures import draw_costs
from solution.analysis.state_costs import explain_costs, name_reasons, show_costs
from solution.features.propagation import library
from solution.features.propagation.state_table import BYTES, StateTable, state_tables
from solution.models.layout.cost_kernel import CostKernelSettings
from solution.models.layout.cost_net import MOST, MOST_TIMES, CostNetRanker, CostNetSettings
from solution.models.layout.known_costs import LEAST, ONCE, SHORT, SLOW, SPLIT, STRIDED
from solution.models.layout.layout_gnn import LayoutGnnSettings
from solution.models.nets.training_settings import TrainingSettings
from tests.features.propagation.drawn import draw_graph
from tests.features.propagation.test_loops import softmax
from tests.made.costs import label_by_copies, sum_costs
from tests.made.graphs import make_layout_graph

GRAPHS = [make_layout_graph(seed, configs=20, name=f"program_{seed}") for seed in range(5)]
DRAWN = [draw_graph(seed, configs=24) for seed in range(24)]
TRAINING = TrainingSettings(loss="list_mle", epochs=2, patience=None, learning_rate=2e-3,
                            graphs_per_step=1, configs_per_graph=16)  # fmt: skip


@pytest.fixture(scope="module")
def ranker() -> CostNetRanker:
    return CostNetSettings(width=8, training=TRAINING).build(0).fit(GRAPHS, [])


@pytest.fixture(scope="module")
def untrained() -> CostNetRanker:
    training = replace(TRAINING, learning_rate=0.0)
    return CostNetSettings(width=8, training=training).build(0).fit(GRAPHS[:2], [])


def cost_copies(table: StateTable) -> np.ndarray:
    """What each state (states,) costs by its copy, before anything is learned."""
    return table.is_copied * table.shares[:, BYTES] * (1 + STRIDED * table.strides)


def cost_slow(table: StateTable) -> np.ndarray:
    """And by short loops, reductions in two steps and products without the library."""
    return SHORT * table.short_loops + SPLIT * table.split + SLOW * table.slow_products


def test_costs_of_states_add_up_to_the_scores(ranker: CostNetRanker) -> None:
    for graph in GRAPHS:
        scores, sums = ranker.predict(graph), sum_costs(graph, ranker.list_costs(graph))
        np.testing.assert_allclose(sums - sums[0], scores - scores[0], atol=1e-4)


def test_costs_beside_a_list_are_of_that_list(ranker: CostNetRanker) -> None:
    graph = GRAPHS[1]
    listed = replace(graph, listed=np.arange(graph.num_configs) < 12)
    scores = ranker.predict(listed)
    sums = ranker.list_costs(listed)[state_tables("cpu")(listed).numbers].sum(axis=1)
    sums = sums[listed.distinct.inverse]
    np.testing.assert_allclose(sums - sums[0], scores - scores[0], atol=1e-4)


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


def test_the_fastest_is_told_from_the_slowest(ranker: CostNetRanker) -> None:
    graph = GRAPHS[0]
    scores = ranker.predict(graph)
    explained = explain_costs(ranker, graph, int(scores.argmin()))
    assert (explained.slow, explained.fast) == (scores.argmax(), scores.argmin())
    assert name_reasons(explained) == name_reasons(explain_costs(ranker, graph))


def test_costs_of_a_kernel_are_explained_as_well() -> None:
    ranker = CostKernelSettings(cosines=16).build(0).fit(GRAPHS, [])
    assert adds_up(ranker)
    costs = explain_costs(ranker, GRAPHS[0])
    between = costs.scores[costs.slow] - costs.scores[costs.fast]
    assert costs.added.sum() == pytest.approx(between, rel=1e-4)
    assert name_reasons(costs)


def test_only_a_sum_of_costs_adds_up(ranker: CostNetRanker) -> None:
    assert adds_up(ranker)
    assert not adds_up(LayoutGnnSettings(width=8, rounds=(8,)).build(0))
    with pytest.raises(RuntimeError, match="fit the ranker"):
        CostNetSettings().build(0).list_costs(GRAPHS[0])


def test_before_anything_is_learned_bytes_decide(
    untrained: CostNetRanker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that are copied, those that take long, and those that a library makes on its way."""
    monkeypatch.setattr(library, "FEWEST", 0)  # drawn tensors are small
    made = [make_layout_graph(seed, configs=20, name=f"program_{seed}") for seed in range(2, 5)]
    drawn = [draw_graph(seed, configs=24) for seed in range(60)]
    loops = at_once = 0
    for graph in (*made, *drawn):
        table = state_tables("cpu")(graph)
        costs = cost_copies(table) + cost_slow(table) - ONCE * table.at_once
        moved = sum_costs(graph, costs)
        if moved.std() > 0:
            loops += table.short_loops.any()
            at_once += table.at_once.any()
            assert np.corrcoef(moved, untrained.predict(graph))[0, 1] == pytest.approx(1, abs=1e-5)
    assert min(loops, at_once) >= 3


def test_short_loops_are_named(untrained: CostNetRanker) -> None:
    """A softmax over two heads, row-major or in another layout."""
    explained = explain_costs(untrained, softmax(64, 32, 2))
    places = [place for place, name in enumerate(explained.names) if name.startswith("subtract")]
    assert "in loops of 2" in explained.slow_states[places[0]]
    assert "in loops" not in explained.fast_states[places[0]]


def test_what_a_reduction_takes_along_is_named(untrained: CostNetRanker) -> None:
    """A softmax over many heads, row-major or in another layout."""
    explained = explain_costs(untrained, softmax(64, 32, 32))
    states = zip(explained.names, explained.fast_states, explained.slow_states, strict=True)
    phrase = "at once with a reduction"
    slow_states = {name.split()[0]: slow for name, fast, slow in states if phrase in fast}
    assert set(slow_states) == {"reduce", "broadcast", "subtract", "exponential"}
    assert [name for name, slow in slow_states.items() if phrase in slow] == ["reduce"]


@pytest.mark.parametrize("counts", [0.0, 1.0])
def test_what_copies_of_arguments_count_is_learned(counts: float) -> None:
    """Some who call a program hand it arguments in the layouts that it asks for."""
    graphs = [label_by_copies(graph, counts) for graph in DRAWN]
    training = replace(TRAINING, epochs=20, loss="pairwise_logistic")
    ranker = CostNetSettings(width=8, training=training).build(0).fit(graphs[:16], [])
    right, wrong = [], []
    for graph in graphs[16:]:
        scores, other = ranker.predict(graph), label_by_copies(graph, 1 - counts)
        if graph.runtimes.std() > 0 and other.runtimes.std() > 0:
            right.append(np.corrcoef(scores, graph.runtimes)[0, 1])
            wrong.append(np.corrcoef(scores, other.runtimes)[0, 1])
    assert len(right) >= 3
    assert np.mean(right) > 0.9
    assert np.mean(right) > np.mean(wrong) + 0.1


def test_what_is_learned_is_bounded(ranker: CostNetRanker) -> None:
    """However wild its weights are: what is like nothing that was learned from is not made up."""
    wild = CostNetSettings(width=8, training=TRAINING).build(0).fit(GRAPHS[:1], [])
    with torch.no_grad():
        for name, weight in wild.net_.named_parameters():
            weight.mul_(1 if name == "log_factor" else 100)
    for graph in (*GRAPHS, *DRAWN):
        table = state_tables("cpu")(graph)
        copied = table.is_copied * table.shares[:, BYTES]
        costs = wild.list_costs(graph)
        scale = np.exp(float(wild.net_.log_factor.detach())) / max(
            copied[table.numbers].sum(axis=1)[graph.listed_distinct].std(), LEAST
        )
        is_made = np.isin(np.arange(len(costs)), table.numbers[:, : table.instructions])
        # A copy of an argument may count twice.
        most = (2 * cost_copies(table) + cost_slow(table)) * MOST_TIMES
        most = most + (MOST * table.shares.sum(axis=1) + ONCE * table.at_once) * is_made
        assert (np.abs(costs) <= 1.001 * scale * most).all()


def test_a_copy_costs_more_than_nothing_whatever_is_learned(ranker: CostNetRanker) -> None:
    for graph in GRAPHS:
        table = state_tables("cpu")(graph)
        is_copy = np.ones(len(table.node), bool)
        is_copy[table.numbers[:, : table.instructions].ravel()] = False
        costs = ranker.list_costs(graph)[is_copy]
        copied = table.is_copied[is_copy]
        assert (costs[copied] > 0).all()
        assert (costs[~copied] == 0).all()
