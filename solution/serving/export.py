"""Write rankings as CSV or JSON files that other programs read."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl

from solution.domain.labels import show_source
from solution.serving.ranking import Ranking
from solution.serving.words import list_layouts
from solution.system.files import replace_file

# largest number of configurable nodes x configurations whose layouts are all written
MOST_NAMED = 1_000_000


Ranked = tuple[Path, Ranking]  # the file of the graph, and its ranking


def format_csv(rankings: Sequence[Ranked]) -> str:
    """Return a row per configuration: file, collection, graph, measure, the columns of to_frame.

    `measure` says whether the configuration should be measured.
    """
    frames = [
        ranking.to_frame(whole=is_shown_whole(ranking)).select(
            pl.lit(str(file)).alias("file"),
            pl.lit(ranking.graph.collection.name).alias("collection"),
            pl.lit(ranking.graph.name).alias("graph"),
            pl.col("config").is_in(ranking.to_measure.tolist()).alias("measure"),
            pl.all(),
        )
        for file, ranking in rankings
    ]
    return pl.concat(frames).write_csv()


def is_shown_whole(ranking: Ranking) -> bool:
    """Return True if all layouts of all configurations are written.

    For longer lists, which stand in a file of the user's, only a few layouts per configuration are
    written: all of them would take gigabytes.
    """
    return ranking.graph.num_configs * len(ranking.graph.configurable) <= MOST_NAMED


def format_json(rankings: Sequence[Ranked]) -> str:
    """Return a JSON list with an object per graph; its `configurations` have to_frame's columns.

    Configurations stand best first. Those of a layout graph have their `layouts`, unless there are
    too many (see is_shown_whole): node, tensor, and the order from minor to major.
    """
    return json.dumps([_describe(*ranked) for ranked in rankings]) + "\n"


def write_text(content: str, path: Path) -> None:
    """Write a text file atomically."""
    with replace_file(path) as temporary:
        temporary.write_text(content, encoding="utf-8")


def _describe(file: Path, ranking: Ranking) -> dict[str, Any]:
    graph, whole = ranking.graph, is_shown_whole(ranking)
    configurations = ranking.to_frame(whole=whole).to_dicts()
    if whole and graph.collection.kind == "layout" and graph.options is None:
        for row, asked in zip(configurations, list_layouts(graph, ranking.order), strict=True):
            row["layouts"] = asked
    return {
        "file": str(file),
        "collection": ranking.graph.collection.name,
        "graph": ranking.graph.name,
        "measure": ranking.measure,
        "to_measure": ranking.to_measure.tolist(),
        "abstained": ranking.abstained,
        "reason": ranking.reason,
        "known": ranking.known,
        "learned_from": [show_source(source) for source in ranking.label_sources],
        "regret": ranking.regret,
        "confidence": ranking.confidence,
        "configurations": configurations,
    }
