"""Kaggle's two scores against brute force, and the interval of their mean."""

import itertools
import math
from itertools import combinations

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from solution.domain.metrics import (
    kendall_tau,
    ordered_pair_accuracy,
    score_predictions,
    top_k_score,
    top_k_slowdown,
)


def slow_tau(scores: list[float], runtimes: list[float]) -> float:
    """Tau-b over all pairs of the mean over all orders that break the scores' ties.

    Of two equal scores either comes first as often as the other, so they add nothing.
    """
    agreement, untied_runtimes = 0, 0
    pairs = list(combinations(range(len(scores)), 2))
    for i, j in pairs:
        first, second = np.sign(scores[i] - scores[j]), np.sign(runtimes[i] - runtimes[j])
        agreement += int(first * second)
        untied_runtimes += int(second != 0)
    if len(set(scores)) < 2 or untied_runtimes == 0:
        return 0.0
    return agreement / math.sqrt(len(pairs) * untied_runtimes)


def slow_top_k(scores: list[float], runtimes: list[float], k: int) -> float:
    chosen: list[int] = []
    while len(chosen) < min(k, len(scores)):
        rest = [config for config in range(len(scores)) if config not in chosen]
        lowest = min(scores[config] for config in rest)
        chosen.append(next(config for config in rest if scores[config] == lowest))
    return 2 - min(runtimes[config] for config in chosen) / min(runtimes)


PAIRS = st.lists(st.tuples(st.integers(0, 6), st.integers(1, 6)), min_size=1, max_size=25)


def unzip(pairs: list[tuple[int, int]]) -> tuple[np.ndarray, np.ndarray]:
    scores, runtimes = zip(*pairs, strict=True)
    return np.array(scores, np.float32), np.array(runtimes, float)


@given(PAIRS)
@settings(max_examples=100, deadline=None)
def test_kendall_tau_is_brute_force(pairs: list[tuple[int, int]]) -> None:
    scores, runtimes = unzip(pairs)
    expected = slow_tau(scores.tolist(), runtimes.tolist())
    assert kendall_tau(scores, runtimes) == pytest.approx(expected, abs=1e-9)


@given(st.integers(2, 300), st.integers(2, 400), st.integers(0, 9))
@settings(max_examples=100, deadline=None)
def test_kendall_tau_of_an_order_is_that_of_scipy(count: int, levels: int, seed: int) -> None:
    generator = np.random.default_rng(seed)
    order = generator.permutation(count).astype(np.float32)
    runtimes = generator.integers(0, levels, count) / 7
    if np.ptp(runtimes):
        assert kendall_tau(order, runtimes) == stats.kendalltau(order, runtimes).statistic


@pytest.mark.parametrize("copies", [1, 40], ids=["few", "many"])  # as few and many are counted
def test_equal_scores_are_worth_what_their_orders_are_on_average(copies: int) -> None:
    scores, runtimes = np.tile([0.0, 1, 1, 1, 2], copies), np.tile([2.0, 1, 2, 3, 3], copies)
    draw = np.random.default_rng(0).random(len(scores))
    ways = [np.lexsort((lot, scores)) for lot in (draw, -draw)]  # equal ones in both orders
    orders = [np.argsort(way).astype(float) for way in ways]
    mean = np.mean([stats.kendalltau(order, runtimes).statistic for order in orders])
    assert kendall_tau(scores, runtimes) == pytest.approx(mean, abs=1e-9)
    assert stats.kendalltau(scores, runtimes).statistic > mean + 0.02  # what it would be by tau-b


@given(PAIRS, st.integers(1, 6))
@settings(max_examples=100, deadline=None)
def test_top_k_is_brute_force_and_slowdown_is_what_is_lost_of_it(
    pairs: list[tuple[int, int]], k: int
) -> None:
    scores, runtimes = unzip(pairs)
    score, slowdown = top_k_score(scores, runtimes, k), top_k_slowdown(scores, runtimes, k)
    assert score == pytest.approx(slow_top_k(scores.tolist(), runtimes.tolist(), k))
    assert slowdown == pytest.approx(1 - score)
    assert slowdown >= 0
    assert top_k_slowdown(scores, runtimes, len(scores)) == 0


def make_frame(graphs: dict[str, list[float]], value: str) -> pl.DataFrame:
    """Rows of collection, graph, config and the values of each COLLECTION/GRAPH."""
    rows = [
        (*name.split("/"), config, number)
        for name, numbers in graphs.items()
        for config, number in enumerate(numbers)
    ]
    schema = {"collection": pl.String, "graph": pl.String, "config": pl.Int32, value: pl.Float64}
    return pl.DataFrame(rows, schema=schema, orient="row")


def test_every_predicted_graph_is_scored_by_its_collection() -> None:
    labels = make_frame(
        {"tile:xla/k": [4.0, 2.0, 1.0], "layout:xla:random/p": [3.0, 1.0, 2.0]}, "runtime"
    )
    predicted = make_frame(
        {"tile:xla/k": [3.0, 1.0, 2.0], "layout:xla:random/p": [1.0, 3.0, 2.0]}, "score"
    )
    shuffled = predicted.sample(fraction=1, shuffle=True, seed=0)
    assert score_predictions(shuffled, labels).rows() == [
        ("layout:xla:random", "p", pytest.approx(-1)),
        ("tile:xla", "k", 1.0),
    ]
    assert score_predictions(predicted.head(3), labels).rows() == [("tile:xla", "k", 1.0)]


def test_a_graph_scores_the_mean_over_its_seeds() -> None:
    labels = make_frame({"layout:xla:random/p": [1.0, 2.0, 3.0]}, "runtime")
    orders = ([1.0, 2.0, 3.0], [3.0, 2.0, 1.0], [1.0, 3.0, 2.0])
    frames = [
        make_frame({"layout:xla:random/p": order}, "score").with_columns(seed=seed)
        for seed, order in enumerate(orders)
    ]
    (row,) = score_predictions(pl.concat(frames), labels).rows()
    assert row == ("layout:xla:random", "p", pytest.approx((1 - 1 + 1 / 3) / 3))


@given(PAIRS, st.sampled_from([0.0, 0.5, 1.0]))
@settings(max_examples=100, deadline=None)
def test_ordered_pair_accuracy_is_the_mean_over_pairs(
    pairs: list[tuple[int, int]], tie: float
) -> None:
    scores, runtimes = unzip(pairs)
    right = [
        1.0 if scores[i] < scores[j] else tie if scores[i] == scores[j] else 0.0
        for i, j in itertools.permutations(range(len(scores)), 2)
        if runtimes[i] < runtimes[j]
    ]
    found = ordered_pair_accuracy(scores, runtimes, tie=tie)
    assert math.isnan(found) if not right else found == pytest.approx(np.mean(right))
    known = ordered_pair_accuracy(scores, runtimes, tie=tie, tau=kendall_tau(scores, runtimes))
    assert np.array_equal(found, known, equal_nan=True)
