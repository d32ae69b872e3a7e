"""Define the table of predictions (a polars frame), which models write and ensembles read.

The columns KEYS identify a prediction; the order of rows means nothing. Scores are comparable only
within one graph; lower is faster.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import polars as pl

from solution.system.errors import InputError
from solution.system.files import replace_file
from solution.system.parquet import ROW_GROUP, reading, writing
from solution.system.sealing import check_any_seal, replace_sealed

SCHEMA = pl.Schema(
    {
        "collection": pl.String(),
        "graph": pl.String(),
        "config": pl.Int32(),
        "fold": pl.Int16(),  # the fold that was held out
        "seed": pl.Int32(),
        "score": pl.Float32(),
    }
)
# The two files of predictions: separate, because a test graph may have a training graph's name.
PARTS = ("out_of_fold", "test")
KEYS = ["collection", "graph", "config", "fold", "seed"]
# Columns of a ranking: one score per configuration, after folds and seeds are merged.
RANKING_SCHEMA = pl.Schema(
    {name: SCHEMA[name] for name in ("collection", "graph", "config", "score")}
)
# The columns that identify a requested configuration.
REQUEST_KEYS = ["collection", "graph", "config"]

MAX_SHOWN = 3


def make_frame(
    key: tuple[str, str], configs: np.ndarray, scores: np.ndarray, fold: int, seed: int
) -> pl.DataFrame:
    """Return a frame of SCHEMA with one model's `scores` (rows,) for a graph's configurations,
    whose numbers are `configs` (rows,). `key`: the collection and the name of the graph."""
    frame = pl.DataFrame({"config": configs, "score": scores}).with_columns(
        pl.lit(key[0]).alias("collection"),
        pl.lit(key[1]).alias("graph"),
        pl.lit(fold).alias("fold"),
        pl.lit(seed).alias("seed"),
    )
    return frame.select(SCHEMA.names()).cast(SCHEMA)


def check_predictions(predictions: pl.DataFrame, questions: pl.DataFrame, source: str) -> None:
    """Raise InputError if predictions are missing, repeated, invalid or not requested.

    Every requested graph must be predicted, and each model (fold, seed) that predicts a graph must
    score each of its requested configurations once.

    Args:
        predictions: a frame of SCHEMA.
        questions: a frame with a row for each requested configuration: collection, graph, config.
        source: the file or experiment that the message names.

    Raises:
        InputError: wrong columns, NaN or infinite scores, duplicates, unknown graphs or
            configurations, gaps.
    """
    if predictions.schema != SCHEMA:
        raise InputError(
            f"{source}: expected the columns {_show_schema(SCHEMA)}, found "
            f"{_show_schema(predictions.schema)}. Write it with solution.domain.predictions.write."
        )
    if _is_exact(predictions, questions):
        return
    models = ["collection", "graph", "fold", "seed"]
    asked = questions.group_by("collection", "graph").agg(pl.len().cast(pl.Int64).alias("asked"))
    counted = (
        predictions.group_by(models)
        .agg(pl.len().cast(pl.Int64).alias("predicted"))
        .join(asked, on=["collection", "graph"], how="inner")
    )
    finite = pl.col("score").is_finite().fill_null(value=False)
    graph = ["collection", "graph"]
    findings = {
        "scores are NaN, null or infinite": predictions.filter(~finite),
        "predictions have the key of another prediction": predictions.filter(
            pl.struct(KEYS).is_duplicated()
        ),
        "graphs are unknown": predictions.join(asked, on=graph, how="anti"),
        "predictions are of configurations that were not asked for": predictions.join(
            questions, on=REQUEST_KEYS, how="anti"
        ),
        "graphs have no prediction": asked.join(
            predictions, on=["collection", "graph"], how="anti"
        ),
        "graphs are predicted in part": counted.filter(pl.col("predicted") != pl.col("asked")),
    }
    for text, rows in findings.items():
        if len(rows):
            raise InputError(f"{source}: {len(rows)} {text}, such as {_show_rows(rows)}.")


def _is_exact(predictions: pl.DataFrame, questions: pl.DataFrame) -> bool:
    """Return True if the predictions are finite, from one model, and for exactly the requested
    configurations in the same order: the usual case, which is fast to check."""
    return (
        len(predictions) == len(questions)
        and predictions.select("fold", "seed").n_unique() <= 1
        and bool(predictions["score"].is_finite().fill_null(value=False).all())
        and predictions.select(REQUEST_KEYS).equals(questions.select(REQUEST_KEYS))
    )


def write(predictions: pl.DataFrame, path: Path, *, sealed: bool = True) -> None:
    """Write the frame atomically as Parquet, sorted by its keys; equal frames give equal bytes.
    `sealed`: write a checksum file beside it; if False, another record must have the checksum."""
    ordered = predictions.sort([key for key in KEYS if key in predictions.columns])
    replace = replace_sealed if sealed else replace_file
    with replace(path) as temporary, writing(path):
        ordered.write_parquet(
            temporary, compression="zstd", statistics=False, row_group_size=ROW_GROUP
        )


def read(path: Path, columns: Sequence[str] = ("collection", "graph")) -> pl.DataFrame:
    """Read a Parquet file; raise InputError if it is missing, damaged or lacks `columns`. If it has
    a checksum file, the checksum is verified before the Parquet reader sees the file."""
    if not path.is_file():
        raise InputError(f"{path}: there is no such file. Make it with `fastslow run`.")
    check_any_seal(path)
    with reading(path, "a Parquet file"):
        frame = pl.read_parquet(path, glob=False)
    missing = [name for name in columns if name not in frame.columns]
    if missing:
        raise InputError(
            f"{path}: lacks the column {', '.join(missing)}, found {', '.join(frame.columns)}. "
            "Make it again with `fastslow run`."
        )
    return frame


def _show_schema(schema: pl.Schema) -> str:
    return ", ".join(f"{name} {kind}" for name, kind in schema.items())


def _show_rows(rows: pl.DataFrame) -> str:
    return " and ".join(
        "(" + ", ".join(f"{name} {value}" for name, value in row.items()) + ")"
        for row in rows.head(MAX_SHOWN).iter_rows(named=True)
    )
