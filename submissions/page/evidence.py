"""The data of the page, computed once: every graph's score, and means with intervals."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import polars as pl

from ensembles.merge import score_run
from ensembles.recipe import Recipe
from ensembles.statistics import compare, mean_of_all, mean_scores
from solution.domain.collection import COLLECTIONS, Collection
from solution.domain.metrics import Mean
from solution.runs.folder import Run

BEST_MEMBER = "best member"


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
