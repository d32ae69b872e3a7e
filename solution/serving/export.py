"""Rankings as files that other programs read."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl

from solution.serving.ranking import Ranking
from solution.system.files import replace_file


def write_csv(rankings: Sequence[Ranking], path: Path) -> None:
    """A row a configuration: collection, graph, measure (whether to) and those of to_frame."""
    frames = [
        ranking.to_frame().select(
            pl.lit(ranking.graph.collection.name).alias("collection"),
            pl.lit(ranking.graph.name).alias("graph"),
            pl.col("config").is_in(ranking.to_measure.tolist()).alias("measure"),
            pl.all(),
        )
        for ranking in rankings
    ]
    with replace_file(path) as temporary:
        pl.concat(frames).write_csv(temporary)


def write_json(rankings: Sequence[Ranking], path: Path) -> None:
    """A list with an object a graph; `configurations` are those of to_frame, best first."""
    with replace_file(path) as temporary:
        content = json.dumps([_describe(ranking) for ranking in rankings], indent=2)
        temporary.write_text(content + "\n", encoding="utf-8")


def _describe(ranking: Ranking) -> dict[str, Any]:
    return {
        "collection": ranking.graph.collection.name,
        "graph": ranking.graph.name,
        "measure": ranking.measure,
        "to_measure": ranking.to_measure.tolist(),
        "abstained": ranking.abstained,
        "reason": ranking.reason,
        "known": ranking.known,
        "regret": ranking.regret,
        "confidence": ranking.confidence,
        "configurations": ranking.to_frame().to_dicts(),
    }
