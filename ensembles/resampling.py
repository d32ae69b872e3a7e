"""How far means over graphs would move on other programs: groups of graphs are drawn again.

A group is what folds keep together: a program at all its sizes (graphs of one architecture), or
with folds by graph a single one. Its graphs score alike, so it is drawn with all of them, and many
sizes of few programs do not make a mean surer. A group in both searches of a source is one draw for
both, and so it is for all members. The sources are drawn by themselves. Everything that gives an
interval of a mean over collections asks here.

Sources: Efron and Tibshirani, "An Introduction to the Bootstrap", 1993, chapters 6, 8 and 13; of
groups: Davison and Hinkley, "Bootstrap Methods and their Application", 1997, section 3.8.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from solution.domain.collection import COLLECTIONS, NAMES, collection
from solution.domain.metrics import Mean
from solution.system.errors import InputError

RESAMPLES = 10_000
LEVEL = 0.95  # of intervals
CHUNK_CELLS = 4_000_000  # of (resamples, groups or graphs) at a time


@dataclass(frozen=True, eq=False)
class CollectionScores:
    """What members reached on the same graphs of a collection."""

    collection: str
    graphs: list[str]
    groups: list[str]  # of each graph; a group has the same name in all collections of its source
    members: list[str]
    scores: np.ndarray  # (graphs, members)

    @property
    def draws(self) -> int:
        """How many groups there are: what is drawn, and what makes a mean sure."""
        return len(set(self.groups))


@dataclass(frozen=True)
class Interval:
    """Where a mean would lie on other programs."""

    low: float
    high: float
    standard_error: float


def read_scores(table: pl.DataFrame) -> list[CollectionScores]:
    """A score table by collection, in the competition's order.

    Args:
        table: collection, graph, group, member, score.

    Raises:
        InputError: a member lacks graphs of a collection that others have; no such collection.
    """
    found = []
    present = table["collection"].unique().to_list()
    for name in sorted(present, key=lambda name: COLLECTIONS.index(collection(name))):
        own = table.filter(pl.col("collection") == name)
        wide = own.pivot("member", index=["graph", "group"], values="score").sort("graph")
        members = [column for column in wide.columns if column not in ("graph", "group")]
        for member in members:
            missing = wide.filter(pl.col(member).is_null())["graph"]
            if len(missing):
                raise InputError(
                    f"{member} has no score for {name}:{missing[0]}, and {len(missing) - 1} "
                    "more that others have. Paired statistics need the same graphs for all."
                )
        scores = wide.select(members).to_numpy()
        graphs, groups = (wide[column].to_list() for column in ("graph", "group"))
        found.append(CollectionScores(name, graphs, groups, members, scores))
    return found


def resample_means(
    parts: Sequence[CollectionScores], resamples: int = RESAMPLES, seed: int = 0
) -> list[np.ndarray]:
    """The means over graphs of groups that are drawn with replacement, as many as there are.

    Every graph counts as often as its group is drawn.

    Returns:
        For each collection (resamples, members). All are of the same resamples, so they may be
        added and subtracted. NaN in a resample that drew no group of the collection, as happens
        where it has few of its source's.
    """
    means = [np.empty((resamples, part.scores.shape[1])) for part in parts]
    sources: dict[str, list[int]] = defaultdict(list)
    for index, part in enumerate(parts):
        sources[collection(part.collection).source].append(index)
    for source, indices in sources.items():
        groups = sorted({name for index in indices for name in parts[index].groups})
        number = {name: column for column, name in enumerate(groups)}
        columns = [[number[name] for name in parts[index].groups] for index in indices]
        generator = np.random.default_rng([seed, *source.encode()])
        step = max(1, CHUNK_CELLS // max(len(groups), *map(len, columns)))
        for start in range(0, resamples, step):
            times = _draw(generator, min(step, resamples - start), len(groups))
            for index, own in zip(indices, columns, strict=True):
                means[index][start : start + step] = _average(times[:, own], parts[index].scores)
    return means


def _draw(generator: np.random.Generator, count: int, groups: int) -> np.ndarray:
    """How often (count, groups) each group is drawn in each resample."""
    drawn = generator.integers(groups, size=(count, groups), dtype=np.int32)
    # Resamples are laid one after the other, so that one count of whole numbers does for all.
    drawn += np.arange(count, dtype=np.int32)[:, None] * np.int32(groups)
    return np.bincount(drawn.ravel(), minlength=count * groups).reshape(count, groups)


def _average(times: np.ndarray, scores: np.ndarray) -> np.ndarray:
    """Means (resamples, members) of scores (graphs, members) that count `times` each."""
    graphs = times.sum(axis=1, keepdims=True)
    with np.errstate(invalid="ignore"):  # 0 / 0 where none was drawn
        return (times @ scores) / graphs


def find_interval(means: np.ndarray, draws: int) -> Interval | None:
    """The 95% percentile interval of resampled means (resamples,).

    None where the mean is of a collection of fewer than two groups: drawing one again and again
    says nothing. Resamples that are NaN do not count.
    """
    means = means[~np.isnan(means)]
    if draws < 2 or not len(means):
        return None
    low, high = np.quantile(means, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Interval(float(low), float(high), float(means.std()))


def mean_over_collections(scores: pl.DataFrame, resamples: int = RESAMPLES, seed: int = 0) -> Mean:
    """The mean over collections of the mean over graphs, as Kaggle's score, with its interval.

    Args:
        scores: collection, graph, group, score; of one ranker, or differences of two.

    Returns:
        Its interval is NaN where a collection has fewer than two groups.
    """
    parts = read_scores(scores.with_columns(member=pl.lit("")))
    value = float(np.mean([part.scores.mean() for part in parts]))
    means = np.mean(resample_means(parts, resamples, seed), axis=0)[:, 0]
    found = find_interval(means, min(part.draws for part in parts))
    nothing = float("nan")
    low, high = (found.low, found.high) if found else (nothing, nothing)
    return Mean(value, low, high, sum(len(part.graphs) for part in parts))


def mean_of_all(scores: pl.DataFrame) -> Mean | None:
    """`mean_over_collections` of all five; None where one is missing."""
    return mean_over_collections(scores) if set(scores["collection"]) == set(NAMES) else None
