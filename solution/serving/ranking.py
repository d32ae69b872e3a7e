"""The ranked configurations of a graph, and how many of them to measure; as CSV and JSON files."""

import html
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from solution.domain.graph import TIMED, Graph, list_estimates, show_source
from solution.serving.words import describe_configs, list_layouts
from solution.system.errors import InputError
from solution.system.wording import join_names

if TYPE_CHECKING:
    import polars as pl

SHOWN = 10  # number of rows shown in a notebook
MOST_NAMED = 1_000_000  # write all layouts up to this many configurable nodes x configurations
KNOWN = "The models learned from a program of this structure, perhaps of other sizes."


@dataclass(frozen=True, eq=False)
class Ranking:
    """The ranked configurations of one graph."""

    graph: Graph
    # (configs,) float32; lower is faster, comparable inside this graph only
    scores: np.ndarray
    # (configs,) float64: standard deviation of the rank over the models; NaN if there is one model
    spread: np.ndarray
    measure: int | None  # k: measure the first k; None: no number can be given
    reason: str  # why this k, or why there is none
    known: bool  # True if the models learned from a program of this structure, at any sizes
    regret: float
    confidence: float
    # how the runtimes that the models learned from were obtained: sources of solution.domain.graph
    label_sources: tuple[str, ...] = (TIMED,)
    # (configs,) float64: nanoseconds that a compiler estimates, NaN where it gave no estimate. None
    # if no compiler was asked; otherwise the scores follow its estimates, and `reason` says so.
    estimates: np.ndarray | None = None

    @cached_property
    def order(self) -> np.ndarray:
        """Return configuration numbers (configs,), fastest first; equal scores keep their order."""
        return np.argsort(self.scores, kind="stable")

    @cached_property
    def to_measure(self) -> np.ndarray:
        """Return the configurations (k,) to measure, in order; none if k is unknown."""
        return self.order[: self.measure or 0]

    @property
    def abstained(self) -> bool:
        """Return True if no number of configurations to measure is given."""
        return self.measure is None

    def sentence(self) -> str:
        """Return sentences that tell how many configurations to measure, and why."""
        learned = f" {KNOWN}" if self.known else ""
        if list_estimates(self.label_sources):
            sources = join_names([show_source(source) for source in self.label_sources])
            learned += f" What the models learned from is not all measured ({sources})."
        if self.measure is None:
            return f"No number to measure is given: {self.reason}.{learned}"
        return f"Measure the first {self.measure}: {self.reason}.{learned}"

    def to_frame(self, top: int | None = None, *, whole: bool = False) -> "pl.DataFrame":
        """Return `top` rows (None: all), the best first: rank, config, score, spread (deviation of
        the rank over models), configuration in words, and `estimate` in nanoseconds if a compiler
        was asked. `whole`: name all layouts, not a few. Raises InputError if `top` is negative."""
        import polars as pl

        if top is not None and top < 0:
            raise InputError(f"top is {top}, expected a number of rows from 0, or None for all.")
        configs = self.order[:top]
        estimates = {}
        if self.estimates is not None:
            estimates["estimate"] = pl.Series(self.estimates[configs]).fill_nan(None)
        return pl.DataFrame(
            {
                "rank": np.arange(1, len(configs) + 1),
                "config": configs,
                "score": self.scores[configs],
                "spread": pl.Series(self.spread[configs]).fill_nan(None),
                **estimates,
                "configuration": describe_configs(self.graph, configs, whole=whole),
            }
        )

    def _repr_html_(self) -> str:
        shown = self.to_frame(SHOWN)
        cells = [[_format(value) for value in row] for row in shown.iter_rows()]
        head = "".join(f"<th>{name}</th>" for name in shown.columns)
        rows = "".join(
            "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>"
            for row in cells
        )
        title = html.escape(f"{self.graph.name}: {self.sentence()}")
        return f"<p>{title}</p><table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"

    def __repr__(self) -> str:
        return f"<Ranking of {len(self.scores)} configurations of {self.graph.name}>"


def _format(value: object) -> str:
    if value is None:
        return "-"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


Ranked = tuple[Path, Ranking]  # the file of the graph, and its ranking


def format_csv(rankings: Sequence[Ranked]) -> str:
    """Return CSV rows: file, collection, graph, measure (True if the configuration is to be
    measured), and to_frame's columns."""
    import polars as pl

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
    return pl.concat(frames, how="diagonal").write_csv()


def is_shown_whole(ranking: Ranking) -> bool:
    """Return True if output has all layouts of all configurations; False if they are too many."""
    return ranking.graph.num_configs * len(ranking.graph.configurable) <= MOST_NAMED


def format_json(rankings: Sequence[Ranked]) -> str:
    """Return a JSON list with an object per graph; `configurations` have to_frame's columns.
    Layouts are lists of node, tensor, order from minor to major, unless too many
    (is_shown_whole)."""
    return json.dumps([_describe(*ranked) for ranked in rankings]) + "\n"


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
