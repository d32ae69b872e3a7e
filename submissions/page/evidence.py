"""Compute the page's scores and means once, and define its sections and tables."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import groupby
from typing import TYPE_CHECKING

import polars as pl

from ensembles.merge import RunScores, score_run
from ensembles.recipe import Recipe
from ensembles.statistics import compare, mean_of_all, mean_scores
from solution.domain.collection import COLLECTIONS, Collection
from solution.domain.metrics import Mean
from solution.runs.folder import Run

if TYPE_CHECKING:
    from submissions.page.charts import Figure

BEST_MEMBER = "best member"
MINUS = "\N{MINUS SIGN}"
NOTHING = "–"


@dataclass(frozen=True)
class PageTable:
    """A table of the page."""

    caption: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    texts: int = 1  # number of leading columns with words; the others hold numbers
    strong: str = ""  # rows with this cell are emphasised
    grouped: bool = False  # show the first cell once, above the rows that share it

    def groups(self) -> list[tuple[str, list[Sequence[str]]]]:
        """Return the groups of rows to show together, each with its name: if `grouped`, the rows
        that share a first cell, named by this cell; else all rows, without a name."""
        if not self.grouped:
            return [("", list(self.rows))]
        return [(name, list(rows)) for name, rows in groupby(self.rows, key=lambda row: row[0])]


@dataclass(frozen=True)
class Section:
    """A section of the page. If it has no figures and tables, its lead says why, and what to do."""

    anchor: str
    title: str
    lead: str
    figures: Sequence["Figure"] = ()
    tables: Sequence[PageTable] = ()
    reading: str = ""  # how to read the figures
    unfolded: bool = False  # show the tables without a click
    notes: Sequence[str] = field(default_factory=tuple)


def number(value: float | None) -> str:
    """Format a score with three decimals; None as a dash."""
    return NOTHING if value is None else f"{value:.3f}".replace("-", MINUS)


def signed(value: float | None) -> str:
    """Format a difference with three decimals and a sign; None as a dash."""
    return NOTHING if value is None else f"{value:+.3f}".replace("-", MINUS)


def percent(value: float | None) -> str:
    """Format a probability as a percentage; None as a dash."""
    return NOTHING if value is None else f"{value:.0%}"


def show_times(value: float) -> str:
    """Format a ratio of runtimes, such as 1.25×."""
    return f"{value:.2f}×" if value < 10 else f"{value:,.0f}×"


def interval(low: float | None, high: float | None) -> str:
    """Return "LOW to HIGH", or "too few groups" if an end is None or `low` is NaN."""
    if low is None or high is None or math.isnan(low):
        return "too few groups"
    return f"{number(low)} to {number(high)}"


def listed(names: Sequence[str]) -> str:
    """Return the names as one text: `a, b and c`."""
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


@dataclass(frozen=True)
class Evidence:
    """The out-of-fold scores of a run's experiments and of a recipe's ensemble, computed once. A
    member is an experiment or the ensemble."""

    run: Run
    recipe: Recipe

    @cached_property
    def of_run(self) -> RunScores:
        """The members' scores, also the scores of single seeds."""
        return score_run(self.run, self.recipe)

    @property
    def scores(self) -> pl.DataFrame:
        """The members' scores: columns collection, graph, group (of graphs that folds keep
        together), member, score."""
        return self.of_run.table

    @cached_property
    def means(self) -> pl.DataFrame:
        """The mean score of each member in each collection. Columns: collection, member, value,
        low and high (the ends of its interval), standard_error, graphs (their number)."""
        return mean_scores(self.scores)

    @property
    def ensemble(self) -> str:
        """The name of the recipe's ensemble in the column `member`."""
        return self.recipe.label

    @property
    def members(self) -> list[str]:
        """The names of the experiments with scores, in the run's order; last, the ensemble's."""
        scored = set(self.means["member"])
        return [name for name in [*self.run.experiments(), self.ensemble] if name in scored]

    @property
    def collections(self) -> list[Collection]:
        """The collections with scores, in the competition's order."""
        scored = set(self.means["collection"])
        return [collection for collection in COLLECTIONS if collection.name in scored]

    def means_of(self, collection: str) -> Iterator[dict[str, float]]:
        """Return the rows of `means` of a collection, in the order of the members."""
        rows = self.means.filter(pl.col("collection") == collection)
        by_member = {row["member"]: row for row in rows.iter_rows(named=True)}
        return (by_member[name] for name in self.members if name in by_member)

    def scores_of(self, collection: str, member: str) -> list[float]:
        """Return the scores of a member in a collection, one per graph."""
        chosen = (pl.col("collection") == collection) & (pl.col("member") == member)
        return self.scores.filter(chosen)["score"].to_list()

    def overall(self, member: str) -> Mean | None:
        """Return a member's mean score over the five collections; None if one is missing."""
        return mean_of_all(self.scores.filter(pl.col("member") == member).drop("member"))

    @cached_property
    def gain_over_best(self) -> dict[str, float | None] | None:
        """The ensemble's score minus the best experiment's, as a mean over the collections: the
        last row of `compare`. None if there is no experiment or no ensemble. Each collection's best
        experiment is chosen by the same scores, so its score is slightly optimistic."""
        single = self.means.filter(pl.col("member") != self.ensemble)
        best = single.sort("value", descending=True).group_by("collection").first()
        chosen = self.scores.join(best.select("collection", "member"), on=["collection", "member"])
        merged = self.scores.filter(pl.col("member") == self.ensemble)
        both = pl.concat([merged, chosen.with_columns(member=pl.lit(BEST_MEMBER))])
        if both["member"].n_unique() < 2:
            return None
        return compare(both, self.ensemble, BEST_MEMBER).row(-1, named=True)
