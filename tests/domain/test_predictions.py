"""Keyed predictions, what of them is refused, and Kaggle's two scores against brute force."""

import itertools
import math
from itertools import combinations
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy import stats

from solution.domain import predictions
from solution.domain.metrics import (
    kendall_tau,
    ordered_pair_accuracy,
    score_predictions,
    top_k_score,
    top_k_slowdown,
)
from solution.domain.predictions import SCHEMA, check_predictions
from solution.system.errors import InputError

QUESTIONS = pl.DataFrame(
    [
        ("tile:xla", "small", 0),
        ("tile:xla", "small", 1),
        ("layout:xla:random", "large", 0),
        ("layout:xla:random", "large", 1),
        ("layout:xla:random", "large", 2),
    ],
    schema={name: SCHEMA[name] for name in ("collection", "graph", "config")},
    orient="row",
)


def make_predictions(*models: tuple[int, int]) -> pl.DataFrame:
    """Every asked configuration by each model (fold, seed)."""
    frames = [
        QUESTIONS.with_columns(
            pl.lit(fold).alias("fold"),
            pl.lit(seed).alias("seed"),
            (pl.col("config") * 0.5 + seed).alias("score"),
        )
        for fold, seed in models
    ]
    return pl.concat(frames).cast(SCHEMA)


COMPLETE = make_predictions((0, 0), (0, 1))


def change_score(score: float | None) -> pl.DataFrame:
    """The complete predictions with another score in the fourth row."""
    scores = COMPLETE["score"].to_list()
    scores[3] = score
    return COMPLETE.with_columns(pl.Series("score", scores, SCHEMA["score"]))


def change_first(**values: object) -> pl.DataFrame:
    """The complete predictions with other values in the first row."""
    first = COMPLETE.head(1).with_columns(pl.lit(v).alias(k) for k, v in values.items())
    return pl.concat([first.cast(SCHEMA), COMPLETE.slice(1)])


def test_models_may_predict_different_graphs_as_long_as_every_graph_is_predicted() -> None:
    tile = COMPLETE.filter(pl.col("graph") == "small", pl.col("seed") == 0)
    layout = COMPLETE.filter(pl.col("graph") == "large", pl.col("seed") == 1)
    check_predictions(pl.concat([tile, layout]), QUESTIONS, "here")


@pytest.mark.parametrize(("frame", "message"), [
    (COMPLETE.drop("seed"), "expected the"),
    (COMPLETE.with_columns(pl.lit(1).alias("more")), "expected the"),
    (COMPLETE.select(SCHEMA.names()[::-1]), "expected the"),
    (COMPLETE.cast({"score": pl.Float64()}), "expected the"),
    (COMPLETE.cast({"config": pl.Int64()}), "expected the"),
    (change_score(float("nan")), "1.*infinite"), (change_score(None), "1.*infinite"),
    (change_score(float("inf")), "1.*infinite"), (change_score(float("-inf")), "1.*infinite"),
    (pl.concat([COMPLETE, COMPLETE.head(1)]), "another prediction"),
    (change_first(config=1), "another prediction"), (change_first(graph="other"), "1.*unknown"),
    (change_first(collection="layout:xla:default"), "1.*unknown"),
    (change_first(config=7), "configurations that"),
    (change_first(config=-1), "configurations that"),
    (COMPLETE.filter(pl.col("graph") == "small"), "1.*prediction"),
    (COMPLETE.clear(), "2.*prediction"), (COMPLETE.slice(1), "1.*predicted"),
    (COMPLETE.filter(pl.col("config") > 0), "are predicted"),
])  # fmt: skip
def test_what_was_not_asked_is_refused(frame: pl.DataFrame, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        check_predictions(frame, QUESTIONS, "runs/here")
    assert str(caught.value).startswith("runs/here: ")


@pytest.mark.parametrize("model", ["fold", "seed"])
def test_one_incomplete_model_is_refused_although_another_is_complete(model: str) -> None:
    frame = make_predictions((0, 0), (1, 0)) if model == "fold" else COMPLETE
    broken = frame.filter(~((pl.col(model) == 1) & (pl.col("config") == 2)))
    with pytest.raises(InputError, match="predicted in"):
        check_predictions(broken, QUESTIONS, "here")


@given(st.integers(0, 1000))
@settings(
    max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_shuffled_rows_give_equal_bytes_and_come_back_sorted(tmp_path: Path, seed: int) -> None:
    first, second = tmp_path / "first.parquet", tmp_path / "second.parquet"
    predictions.write(COMPLETE, first)
    predictions.write(COMPLETE.sample(fraction=1, shuffle=True, seed=seed), second)
    assert first.read_bytes() == second.read_bytes()
    assert predictions.read(first).equals(COMPLETE.sort(predictions.KEYS))
    assert predictions.read(first).schema == SCHEMA


def test_a_ranking_without_models_is_written_too(tmp_path: Path) -> None:
    ranking = COMPLETE.filter(pl.col("seed") == 0).select(predictions.RANKING_SCHEMA.names())
    predictions.write(ranking.reverse(), tmp_path / "ranking.parquet")
    expected = ranking.sort("collection", "graph", "config")
    assert predictions.read(tmp_path / "ranking.parquet").equals(expected)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("written") / "whole.parquet"
    predictions.write(COMPLETE, path)
    return path.read_bytes()


@pytest.mark.parametrize("share", [0, 0.3, 0.9, 0.99, None])
def test_broken_files_are_refused(tmp_path: Path, written: bytes, share: float | None) -> None:
    path = tmp_path / "broken.parquet"
    frame = b"PAR1" + b"\0" * 40 + b"PAR1"
    path.write_bytes(frame if share is None else written[: int(len(written) * share)])
    with pytest.raises(InputError, match=r"broken\.parquet.*Parquet file"):
        predictions.read(path)


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
def test_top_k_is_brute_force_and_slowdown_its_loss(pairs: list[tuple[int, int]], k: int) -> None:
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
def test_pair_accuracy_is_the_mean_over_pairs(pairs: list[tuple[int, int]], tie: float) -> None:
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
