"""The keyed prediction frame: what is refused, and what is written."""

from pathlib import Path

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from solution.domain import predictions
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
def test_a_broken_file_is_refused_by_name(
    tmp_path: Path, written: bytes, share: float | None
) -> None:
    path = tmp_path / "broken.parquet"
    frame = b"PAR1" + b"\0" * 40 + b"PAR1"
    path.write_bytes(frame if share is None else written[: int(len(written) * share)])
    with pytest.raises(InputError, match=r"broken\.parquet.*Parquet file"):
        predictions.read(path)
