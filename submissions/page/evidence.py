"""The data of the page, computed once: scores by graph, and means with intervals; its sections."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import groupby
from typing import TYPE_CHECKING

import polars as pl

from ensembles.merge import score_run
from ensembles.recipe import Recipe
from ensembles.statistics import compare, mean_of_all, mean_scores
from solution.domain.collection import COLLECTIONS, Collection
from solution.domain.metrics import Mean
from solution.runs.folder import Run

BEST_MEMBER = "best member"


if TYPE_CHECKING:
    from submissions.page.charts import Figure

MINUS = "\N{MINUS SIGN}"
NOTHING = "–"


@dataclass(frozen=True)
class PageTable:
    """The numbers of a picture."""

    caption: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    texts: int = 1  # number of first columns that hold words; the others hold numbers
    strong: str = ""  # rows with this cell are emphasised
    grouped: bool = False  # rows with the same first cell stand below it

    def groups(self) -> list[tuple[str, list[Sequence[str]]]]:
        """Return (first cell, its rows), or one group without a name."""
        if not self.grouped:
            return [("", list(self.rows))]
        return [(name, list(rows)) for name, rows in groupby(self.rows, key=lambda row: row[0])]


@dataclass(frozen=True)
class Section:
    """A part of the page. Without figures and tables it says why, and how to get them."""

    anchor: str
    title: str
    lead: str
    figures: Sequence["Figure"] = ()
    tables: Sequence[PageTable] = ()
    reading: str = ""  # how to read the pictures
    unfolded: bool = False  # the tables are the main content
    notes: Sequence[str] = field(default_factory=tuple)


def number(value: float | None) -> str:
    """Format a score with three decimals."""
    return NOTHING if value is None else f"{value:.3f}".replace("-", MINUS)


def signed(value: float | None) -> str:
    """Format a difference with three decimals and a sign."""
    return NOTHING if value is None else f"{value:+.3f}".replace("-", MINUS)


def percent(value: float | None) -> str:
    """Format a probability."""
    return NOTHING if value is None else f"{value:.0%}"


def show_times(value: float) -> str:
    """Format a ratio of runtimes."""
    return f"{value:.2f}×" if value < 10 else f"{value:,.0f}×"


def interval(low: float | None, high: float | None) -> str:
    """Return an interval in words; for too few graphs it is None or, of a Mean, NaN."""
    if low is None or high is None or math.isnan(low):
        return "too few graphs"
    return f"{number(low)} to {number(high)}"


def listed(names: Sequence[str]) -> str:
    """Return `a, b and c`."""
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


@dataclass(frozen=True)
class Evidence:
    """A run and a recipe, scored."""

    run: Run
    recipe: Recipe

    @cached_property
    def scores(self) -> pl.DataFrame:
        """Table: collection, graph, group, member, score."""
        return score_run(self.run, self.recipe).table

    @cached_property
    def means(self) -> pl.DataFrame:
        """Table: collection, member, value, low, high, standard_error, graphs."""
        return mean_scores(self.scores)

    @property
    def ensemble(self) -> str:
        """The recipe's name among the members."""
        return self.recipe.label

    @property
    def members(self) -> list[str]:
        """The experiments with scores, in the run's order, and the recipe last."""
        scored = set(self.means["member"])
        return [name for name in [*self.run.experiments(), self.ensemble] if name in scored]

    @property
    def collections(self) -> list[Collection]:
        """The collections with scores, in the competition's order."""
        scored = set(self.means["collection"])
        return [collection for collection in COLLECTIONS if collection.name in scored]

    def means_of(self, collection: str) -> Iterator[dict[str, float]]:
        """Return the rows of `means` of a collection, in the order of the members."""
        own = self.means.filter(pl.col("collection") == collection)
        found = {row["member"]: row for row in own.iter_rows(named=True)}
        return (found[name] for name in self.members if name in found)

    def scores_of(self, collection: str, member: str) -> list[float]:
        """Return one score per graph."""
        chosen = (pl.col("collection") == collection) & (pl.col("member") == member)
        return self.scores.filter(chosen)["score"].to_list()

    def overall(self, member: str) -> Mean | None:
        """Return the mean over the five collections; None if one is missing."""
        return mean_of_all(self.scores.filter(pl.col("member") == member).drop("member"))

    @cached_property
    def gain_over_best(self) -> dict[str, float | None] | None:
        """The recipe's gain over the best experiment of each collection, all collections together.

        None if there is nothing to compare. The best one is chosen by these very scores, so its
        score is slightly optimistic.
        """
        single = self.means.filter(pl.col("member") != self.ensemble)
        best = single.sort("value", descending=True).group_by("collection").first()
        chosen = self.scores.join(best.select("collection", "member"), on=["collection", "member"])
        both = pl.concat(
            [
                self.scores.filter(pl.col("member") == self.ensemble),
                chosen.with_columns(member=pl.lit(BEST_MEMBER)),
            ]
        )
        if both["member"].n_unique() < 2:
            return None
        return compare(both, self.ensemble, BEST_MEMBER).row(-1, named=True)
