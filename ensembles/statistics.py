"""Confidence intervals of scores, paired over graphs, because graphs differ more than rankers do.

A score table holds the out-of-fold score of every graph by every member (Kendall's tau for layout,
the top-5 score for tile; higher is better). An interval says where a mean would lie on other
programs. It does not include the variation with the training seed.

**One rule for every interval, probability and verdict.** The sampling unit is a group of graphs
that the folds keep together: a program at all its sizes; a family; a graph if folds are by graph.
Graphs of a group score alike, so many sizes of few programs do not make a mean more certain. Let
w_g be group g's share of the collection's graphs, m_g the group's mean score, and m the mean score
of all graphs of the collection. Then

    variance = sum_g z_g ** 2,    z_g = w_g (m_g - m) / sqrt(1 - 2 w_g + sum_h w_h ** 2)

which is unbiased if groups are independent and the graphs of a group score alike; with groups
of equal size it is the usual square of the standard error. Intervals and probabilities use
Student's t with Satterthwaite's degrees of freedom: the number of groups less 1 if they have
equal sizes, else fewer. In a mean over collections, a group that is in several collections of
a source (xla or nlp) is one group: the z_g of these collections are added. Sources are independent.
So an interval of a difference excludes 0 exactly if the probability is below 2.5% or above 97.5%,
and only then is one ranker called better. No interval is given if any collection has fewer than
`FEWEST_GROUPS` groups, or a group with more than half of its graphs.

Sources: Liang and Zeger, "Longitudinal data analysis using generalized linear models", Biometrika,
1986; Bell and McCaffrey, "Bias reduction in standard errors for linear regression with multi-stage
samples", Survey Methodology, 2002; Satterthwaite, "An approximate distribution of estimates of
variance components", Biometrics Bulletin, 1946.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

import numpy as np
import polars as pl
from scipy import special

from ensembles.merge import normalise, score_recipes
from ensembles.recipe import Recipe, check_recipe
from solution.domain import predictions
from solution.domain.collection import COLLECTIONS, NAMES
from solution.domain.collection import collection as find_collection
from solution.domain.metrics import Mean
from solution.runs.folder import STUDENTS, Run
from solution.system.errors import InputError
from solution.system.parquet import GRAPH, read_by_graphs, reading
from solution.system.sealing import check_any_seal

LEVEL = 0.95  # confidence of intervals
MEAN = "mean"  # label of the row over all collections
# columns that describe the error of a difference
DIFFERENCE = ["low", "high", "standard_error", "probability", "graphs"]
TINY = 1e-12  # divisors below this count as 0
FEWEST_GROUPS = 5  # minimum groups for an interval: the spread of fewer groups is too uncertain


@dataclass(frozen=True, eq=False)
class CollectionScores:
    """Scores of members on the same graphs of a collection."""

    collection: str
    graphs: list[str]
    # (graphs,) names of the graphs' groups; the collections of a source share these names
    groups: list[str]
    members: list[str]
    # (graphs, members): out-of-fold score of each graph by each member; higher is better
    scores: np.ndarray


@dataclass(frozen=True, eq=False)
class Estimate:
    """The mean score of each member over graphs, with its standard error."""

    value: np.ndarray  # (members,): mean scores
    error: np.ndarray  # (members,): standard errors of `value`
    freedom: np.ndarray  # (members,): degrees of freedom of Student's t for each error
    is_sure: bool  # True if there are enough groups for an interval

    @property
    def low(self) -> np.ndarray:
        """Lower ends (members,) of the 95% intervals."""
        return self.value - self._reach()

    @property
    def high(self) -> np.ndarray:
        """Upper ends (members,) of the 95% intervals."""
        return self.value + self._reach()

    @property
    def probability(self) -> np.ndarray:
        """Probability (members,) of a mean above 0 on other programs; 0.5 where `value` is 0."""
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = np.where(self.value == 0, 0.0, self.value / self.error)
        return np.asarray(special.stdtr(self.freedom, ratio))

    def _reach(self) -> np.ndarray:
        return np.asarray(special.stdtrit(self.freedom, 0.5 + LEVEL / 2) * self.error)


def read_scores(table: pl.DataFrame) -> list[CollectionScores]:
    """Split a score table (collection, graph, group, member, score) by collection. Raises
    InputError if a member lacks graphs that others have, or a collection is unknown."""
    found = []
    present = table["collection"].unique().to_list()
    for name in sorted(present, key=lambda name: COLLECTIONS.index(find_collection(name))):
        rows = table.filter(pl.col("collection") == name)
        wide = rows.pivot("member", index=["graph", "group"], values="score").sort("graph")
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


def estimate_mean(parts: Sequence[CollectionScores]) -> Estimate:
    """Return the mean over collections of the means over graphs. The errors follow the rule in this
    file's docstring. `parts`: one for each collection, all with the same members."""
    value = np.mean([part.scores.mean(axis=0) for part in parts], axis=0)
    sources: dict[str, list[CollectionScores]] = defaultdict(list)
    for part in parts:
        sources[find_collection(part.collection).source].append(part)
    # Satterthwaite: freedom = variance ** 2 / sum_s (V_s ** 2 / f_s), with the variance V_s and the
    # freedom f_s of each source s
    spreads = [_find_variance(group, len(parts)) for group in sources.values()]
    variance = np.sum([spread for spread, _ in spreads], axis=0)
    weighed = np.sum([spread**2 / freedom for spread, freedom in spreads], axis=0)
    fewest = min(freedom for _, freedom in spreads)
    with np.errstate(divide="ignore", invalid="ignore"):
        freedom = np.where(weighed > 0, variance**2 / weighed, fewest)
    is_sure = all(_has_enough(part.groups) for part in parts)
    return Estimate(value, np.sqrt(variance), freedom, is_sure)


def _has_enough(groups: Sequence[str]) -> bool:
    """Return True if there are enough groups for an interval. `groups`: (graphs,) group names."""
    sizes = Counter(groups).values()
    return len(sizes) >= FEWEST_GROUPS and 2 * max(sizes) <= len(groups)


def _find_variance(parts: Sequence[CollectionScores], collections: int) -> tuple[np.ndarray, float]:
    """Return the variance (members,) that a source (xla or nlp) adds to a mean over collections.

    Its degrees of freedom are returned, too.

    Args:
        parts: the scores in each collection of the source.
        collections: number of collections of all sources in the mean.
    """
    number = {name: row for row, name in enumerate(sorted({n for p in parts for n in p.groups}))}
    deviations = np.zeros((len(number), parts[0].scores.shape[1]))
    freedoms = []
    for part in parts:
        rows = np.array([number[name] for name in part.groups])
        weights = np.bincount(rows, minlength=len(number)) / len(rows)
        # z_g = w_g (m_g - m) / sqrt(1 - 2 w_g + sum_h w_h ** 2) of the module's docstring, added up
        # over the collections
        sums = np.zeros_like(deviations)
        np.add.at(sums, rows, (part.scores - part.scores.mean(axis=0)) / len(rows))
        squares = (weights**2).sum()
        kept = 1 - 2 * weights + squares
        kept[kept < TINY] = 1.0  # a single group: its deviation is 0, so avoid 0 / 0
        deviations += sums / np.sqrt(kept)[:, None] / collections
        freedoms.append(_find_freedom(weights, squares, weights**2 / kept))
    return (deviations**2).sum(axis=0), min(freedoms)


def _find_freedom(weights: np.ndarray, squares: float, scale: np.ndarray) -> float:
    """Return Satterthwaite's degrees of freedom of a variance of groups with shares (groups,).

    Let w_g (`weights`) be the share of group g, and q (`squares`) be sum_g w_g ** 2. The residuals
    m_g - m of independent groups of variance 1 have the covariances c_gh = [g = h] - w_g - w_h + q.
    The estimated variance is the weighted sum of squares sum_g d_g (m_g - m) ** 2, where d_g is
    `scale`. Its mean is q; its variance is 2 v, with v = sum_gh d_g d_h c_gh ** 2. So it has
    2 q ** 2 / (2 v) = q ** 2 / v degrees of freedom. In the code, v is `everywhere` (from
    -w_g - w_h + q) plus the sum of `diagonal` (from [g = h]), which needs no matrix of groups.
    """
    total, first, second = (float((scale * weights**power).sum()) for power in range(3))
    everywhere = (
        (squares * total) ** 2 + 2 * second * total - 4 * squares * first * total + 2 * first**2
    )
    diagonal = scale**2 * (1 + 2 * (squares - 2 * weights))
    spread = everywhere + float(diagonal.sum())
    return squares**2 / spread if spread > TINY else 1.0  # 1.0 for a single group


def mean_over_collections(scores: pl.DataFrame) -> Mean:
    """Return the mean over collections of the means over graphs, as Kaggle does, with an interval.
    The table has the columns collection, graph, group, score, of one ranker or of the differences
    of two. The interval is NaN if there are too few groups."""
    parts = read_scores(scores.with_columns(member=pl.lit("")))
    found, graphs = estimate_mean(parts), sum(len(part.graphs) for part in parts)
    low, high = (found.low[0], found.high[0]) if found.is_sure else (np.nan, np.nan)
    return Mean(float(found.value[0]), float(low), float(high), graphs)


def mean_of_all(scores: pl.DataFrame) -> Mean | None:
    """Return `mean_over_collections`, with the interval's upper end cut at 1. Return None unless
    the table has all five collections."""
    if set(scores["collection"]) != set(NAMES):
        return None
    mean = mean_over_collections(scores)
    return replace(mean, high=min(mean.high, 1.0))  # an unknown end stays NaN: min(NaN, 1.0) is NaN


def leave_one_out(run: Run, recipe: Recipe) -> pl.DataFrame:
    """Return each member's gain: the recipe's score minus its score without the member.

    The other members keep their weights. In a collection with a single member, the recipe's
    fallback ranks instead of it; without a fallback there is no row.

    Returns:
        A table of collection, member, gain, low, high, standard_error, probability (of a gain above
        zero), graphs. Each member also has a row "mean", over its collections.
    """
    check_recipe(recipe, run.experiments())
    names = [name for name in recipe.names() if name in run.experiments()]
    table = score_recipes(run, {recipe.name: recipe, **{f"-{n}": recipe.without(n) for n in names}})
    rows: list[tuple[Any, ...]] = []
    for name in names:
        both = pl.col("member").is_in([recipe.name, f"-{name}"])
        chosen = table.filter(both, pl.col("collection").is_in(_weighed_in(run, recipe, name)))
        if chosen["member"].n_unique() == 2:
            found = compare(chosen, recipe.name, f"-{name}")
            rows += [(collection, name, *rest) for collection, *rest in found.iter_rows()]
    return _to_frame(rows, ["collection", "member", "gain", *DIFFERENCE], texts=2)


def rank_correlations(run: Run, experiments: Sequence[str]) -> pl.DataFrame:
    """Return Spearman's rho between the rankings of experiments, averaged over graphs. Returns a
    table of collection, left, right, correlation: every pair both ways, and each experiment with
    itself. The correlation is null if one of them is constant in every graph."""
    paths = {name: run.predictions(name, "out_of_fold") for name in experiments}
    rows: list[tuple[str, str, str, float | None]] = []
    for collection, frames in read_by_graphs({n: p for n, p in paths.items() if p.is_file()}):
        ranked = {name: normalise(frame) for name, frame in frames.items()}
        for name, scores in ranked.items():
            with_itself = scores.select(*GRAPH, left="score", right="score")
            rows += [(collection, name, name, rho) for rho in _correlate(with_itself)]
        for left, right in combinations(ranked, 2):
            other = ranked[right].select(*predictions.REQUEST_KEYS, right="score")
            found = _correlate(
                ranked[left].rename({"score": "left"}).join(other, on=predictions.REQUEST_KEYS)
            )
            rows += [(collection, left, right, rho) for rho in found]
            rows += [(collection, right, left, rho) for rho in found]
    schema = {"collection": pl.String, "left": pl.String, "right": pl.String, "rho": pl.Float64}
    pairs = pl.DataFrame(rows, schema=schema, orient="row").group_by(
        "collection", "left", "right", maintain_order=True
    )
    return pairs.agg(pl.col("rho").mean().alias("correlation"))


def _correlate(both: pl.DataFrame) -> list[float | None]:
    """Return for each graph Spearman's rho of columns left and right; None if one is constant."""
    rho = pl.corr("left", "right", method="spearman").fill_nan(None).alias("rho")
    return both.group_by(GRAPH).agg(rho)["rho"].to_list()


def mean_scores(table: pl.DataFrame) -> pl.DataFrame:
    """Return the mean score of every member in every collection of a score table.

    Returns:
        A table of collection, member, value (the mean), low, high (the 95% interval, cut at 1),
        standard_error, graphs (their number). Interval and error are null if there are too few
        groups.
    """
    rows: list[tuple[Any, ...]] = []
    for part in read_scores(table):
        found = estimate_mean([part])
        for column, member in enumerate(part.members):
            value, low, high, error, _ = _unpack(found, column)
            high = None if high is None else min(high, 1.0)
            rows.append((part.collection, member, value, low, high, error, len(part.graphs)))
    columns = ["collection", "member", "value", "low", "high", "standard_error", "graphs"]
    return _to_frame(rows, columns, texts=2)


def means_by_member(table: pl.DataFrame) -> dict[tuple[str, str], Mean]:
    """Return `mean_scores` by collection and member; an unknown interval is NaN."""
    known = mean_scores(table).with_columns(pl.col("low", "high").fill_null(float("nan")))
    return {
        (row["collection"], row["member"]): Mean(
            row["value"], row["low"], row["high"], row["graphs"]
        )
        for row in known.iter_rows(named=True)
    }


def show_interval(mean: Mean) -> str:
    """Return the interval as text, such as "0.355 to 0.499"; "too few groups" if it is NaN."""
    known = not np.isnan(mean.low)
    return f"{mean.low:.3f} to {mean.high:.3f}" if known else "too few groups"


def compare(table: pl.DataFrame, a: str, b: str) -> pl.DataFrame:
    """Compare two members of a score table, in the collections that both predict.

    Returns:
        A table of collection, difference (mean of a - mean of b), low, high, standard_error,
        probability (that a beats b on other programs), graphs. The last row, "mean", is over the
        collections, as Kaggle's score is. In a collection with too few groups, all columns but the
        difference and graphs are null. They are null in the last row if any collection has too few.

    Raises InputError if there is no such member, or no collection with both.
    """
    known = table["member"].unique().sort().to_list()
    for name in (a, b):
        if name not in known:
            there = ", ".join(known) or "none at all"
            command = "fastslow pack RUN --distill" if name in STUDENTS else "fastslow run"
            raise InputError(
                f"{name!r} has no scores out of fold; there are of: {there}. If its training is "
                f"not finished, `{command}` goes on with it."
            )
    parts = [_subtract(s, a, b) for s in read_scores(table) if a in s.members and b in s.members]
    if not parts:
        raise InputError(f"{a} and {b} predict no collection in common. Compare others.")
    rows = [
        (part.collection, *_unpack(estimate_mean([part]), 0), len(part.graphs)) for part in parts
    ]
    graphs = sum(len(part.graphs) for part in parts)
    rows.append((MEAN, *_unpack(estimate_mean(parts), 0), graphs))
    return _to_frame(rows, ["collection", "difference", *DIFFERENCE], texts=1)


def is_better(difference: Mapping[str, Any]) -> bool | None:
    """Return True if a row of `compare` shows that `a` is better, False if worse, else None."""
    if difference["low"] is None or difference["low"] <= 0 <= difference["high"]:
        return None
    return bool(difference["low"] > 0)


def _subtract(part: CollectionScores, a: str, b: str) -> CollectionScores:
    """Return scores with a single member, the difference between members `a` and `b`: on each
    graph, the score of `a` minus the score of `b`."""
    first, second = (part.scores[:, [part.members.index(name)]] for name in (a, b))
    return replace(part, members=[f"{a} - {b}"], scores=first - second)


def _unpack(found: Estimate, column: int) -> tuple[float | None, ...]:
    """Return value, low, high, standard error and probability of the member at `column`. All but
    the value are None if there are too few groups."""
    spread = (found.low, found.high, found.error, found.probability)
    known = [float(values[column]) if found.is_sure else None for values in spread]
    return float(found.value[column]), *known


def _weighed_in(run: Run, recipe: Recipe, member: str) -> list[str]:
    """Return the collections that the member predicts and in which the recipe gives it a weight."""
    path = run.predictions(member, "out_of_fold")
    if not path.is_file():
        return []
    check_any_seal(path)
    with reading(path, "a file of predictions"):
        predicted = pl.scan_parquet(path, glob=False).select("collection").unique()
        found = predicted.collect(engine="streaming")["collection"]
    return [name for name in found if member in recipe.weights(name)]


def _to_frame(rows: Sequence[tuple[Any, ...]], columns: list[str], texts: int) -> pl.DataFrame:
    """Return a table: `texts` columns of text, then columns of floats, then one of integers."""
    kinds = [pl.String()] * texts + [pl.Float64()] * (len(columns) - texts - 1) + [pl.Int64()]
    return pl.DataFrame(rows, schema=dict(zip(columns, kinds, strict=True)), orient="row")
