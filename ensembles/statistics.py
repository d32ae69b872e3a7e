"""How sure a score is: everything over graphs, paired, because graphs differ more than rankers do.

A score table holds the out-of-fold score of every graph by every member (Kendall's tau for layout,
the top-5 score for tile; higher is better). An interval says where a mean would lie on other
programs. It does not say how far another seed would move it: `reseed_spread` does.

**One rule for every interval, probability and verdict.** What is drawn is a group of graphs: what
the folds keep together, a program at all its sizes, or with folds by graph a single one. Graphs of
a group score alike, so many sizes of few programs do not make a mean surer. With w_g the share of
group g of the graphs of a collection, m_g its mean score and m the mean of all,

    variance = sum_g z_g ** 2,    z_g = w_g (m_g - m) / sqrt(1 - 2 w_g + sum_h w_h ** 2)

which is unbiased where groups are independent and the graphs of a group score alike; with groups
of one size it is the usual square of the standard error. Intervals and probabilities are those of
Student's t with Satterthwaite's degrees of freedom: the number of groups less 1 where they have
one size, fewer where they have not. In a mean over collections, a group that stands in several of
a source is one group: its z are added. Sources are independent. So an interval of a difference
excludes 0 exactly where the probability is below 2.5% or above 97.5%, and only then is one ranker
called better. Below `FEWEST_GROUPS` groups in any collection nothing is said.

Sources: Liang and Zeger, "Longitudinal data analysis using generalized linear models", Biometrika,
1986; Bell and McCaffrey, "Bias reduction in standard errors for linear regression with multi-stage
samples", Survey Methodology, 2002; Satterthwaite, "An approximate distribution of estimates of
variance components", Biometrics Bulletin, 1946.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

import numpy as np
import polars as pl
from scipy import special

from ensembles.merge import labels_of, normalise, score_recipes
from ensembles.recipe import Recipe, check_recipe
from solution.domain import predictions
from solution.domain.collection import COLLECTIONS, NAMES
from solution.domain.collection import collection as find_collection
from solution.domain.metrics import Mean, score_predictions
from solution.runs.folder import STUDENTS, Run
from solution.system.errors import InputError
from solution.system.parquet import GRAPH, read_by_graphs, reading
from solution.system.sealing import check_any_seal

LEVEL = 0.95  # of intervals
MEAN = "mean"  # the row over all collections
DIFFERENCE = ["low", "high", "standard_error", "probability", "graphs"]  # said of one
TINY = 1e-12
FEWEST_GROUPS = 5  # below them the spread of groups is not known well enough for any interval


@dataclass(frozen=True, eq=False)
class CollectionScores:
    """What members reached on the same graphs of a collection."""

    collection: str
    graphs: list[str]
    groups: list[str]  # of each graph; a group has the same name in all collections of its source
    members: list[str]
    scores: np.ndarray  # (graphs, members)


@dataclass(frozen=True, eq=False)
class Estimate:
    """Means of members over graphs, and how sure they are."""

    value: np.ndarray  # (members,)
    error: np.ndarray  # (members,) standard errors
    freedom: np.ndarray  # (members,) degrees of freedom of the errors
    is_sure: bool  # whether there are groups enough to say anything of the errors

    @property
    def low(self) -> np.ndarray:
        """The lower ends (members,) of the 95% intervals."""
        return self.value - self._reach()

    @property
    def high(self) -> np.ndarray:
        """The upper ends (members,) of the 95% intervals."""
        return self.value + self._reach()

    @property
    def probability(self) -> np.ndarray:
        """How probable (members,) a mean above 0 is on other programs; 0.5 for 0 without error."""
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = np.where(self.value == 0, 0.0, self.value / self.error)
        return np.asarray(special.stdtr(self.freedom, ratio))

    def _reach(self) -> np.ndarray:
        return np.asarray(special.stdtrit(self.freedom, 0.5 + LEVEL / 2) * self.error)


def read_scores(table: pl.DataFrame) -> list[CollectionScores]:
    """A score table by collection, in the competition's order.

    Args:
        table: collection, graph, group, member, score.

    Raises:
        InputError: a member lacks graphs of a collection that others have; no such collection.
    """
    found = []
    present = table["collection"].unique().to_list()
    for name in sorted(present, key=lambda name: COLLECTIONS.index(find_collection(name))):
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


def estimate_mean(parts: Sequence[CollectionScores]) -> Estimate:
    """The mean over collections of the means over graphs, by the rule at the top of this file.

    Args:
        parts: of the same members.
    """
    value = np.mean([part.scores.mean(axis=0) for part in parts], axis=0)
    sources: dict[str, list[CollectionScores]] = defaultdict(list)
    for part in parts:
        sources[find_collection(part.collection).source].append(part)
    # Of each source the variance (members,), and the degrees of freedom of its poorest collection.
    spreads = [_find_variance(own, len(parts)) for own in sources.values()]
    variance = np.sum([spread for spread, _ in spreads], axis=0)
    weighed = np.sum([spread**2 / freedom for spread, freedom in spreads], axis=0)
    fewest = min(freedom for _, freedom in spreads)
    with np.errstate(divide="ignore", invalid="ignore"):
        freedom = np.where(weighed > 0, variance**2 / weighed, fewest)
    is_sure = min(len(set(part.groups)) for part in parts) >= FEWEST_GROUPS
    return Estimate(value, np.sqrt(variance), freedom, is_sure)


def _find_variance(parts: Sequence[CollectionScores], collections: int) -> tuple[np.ndarray, float]:
    """What collections of one source add to the variance (members,) of a mean, and its freedom."""
    number = {name: row for row, name in enumerate(sorted({n for p in parts for n in p.groups}))}
    deviations = np.zeros((len(number), parts[0].scores.shape[1]))
    freedoms = []
    for part in parts:
        rows = np.array([number[name] for name in part.groups])
        weights = np.bincount(rows, minlength=len(number)) / len(rows)
        # w_g (m_g - m): what the scores of a group sum to, less the mean, over all graphs.
        sums = np.zeros_like(deviations)
        np.add.at(sums, rows, (part.scores - part.scores.mean(axis=0)) / len(rows))
        squares = (weights**2).sum()
        kept = 1 - 2 * weights + squares
        kept[kept < TINY] = 1.0  # of a single group, which does not deviate from itself
        deviations += sums / np.sqrt(kept)[:, None] / collections
        freedoms.append(_find_freedom(weights, squares, weights**2 / kept))
    return (deviations**2).sum(axis=0), min(freedoms)


def _find_freedom(weights: np.ndarray, squares: float, scale: np.ndarray) -> float:
    """Satterthwaite's degrees of freedom of a variance of groups with these shares (groups,).

    The residuals m_g - m of independent groups have the covariances c_gh = [g = h] - w_g - w_h + q,
    q the sum of squared shares. The variance is a quadratic form in them with the weights `scale`,
    d_g: its mean is q and its spread sum_gh d_g d_h c_gh ** 2, of which the part without the
    diagonal's 1 is (sum d)**2 q**2 + ..., written out below so that no matrix of groups is made.
    """
    total, first, second = (float((scale * weights**power).sum()) for power in range(3))
    everywhere = (
        (squares * total) ** 2 + 2 * second * total - 4 * squares * first * total + 2 * first**2
    )
    diagonal = scale**2 * (1 + 2 * (squares - 2 * weights))
    spread = everywhere + float(diagonal.sum())
    return squares**2 / spread if spread > TINY else 1.0  # of a single group


def mean_over_collections(scores: pl.DataFrame) -> Mean:
    """The mean over collections of the mean over graphs, as Kaggle's score, with its interval.

    Args:
        scores: collection, graph, group, score; of one ranker, or differences of two.

    Returns:
        Its interval is NaN where a collection has fewer than FEWEST_GROUPS groups.
    """
    parts = read_scores(scores.with_columns(member=pl.lit("")))
    found, graphs = estimate_mean(parts), sum(len(part.graphs) for part in parts)
    low, high = (found.low[0], found.high[0]) if found.is_sure else (np.nan, np.nan)
    return Mean(float(found.value[0]), float(low), float(high), graphs)


def mean_of_all(scores: pl.DataFrame) -> Mean | None:
    """`mean_over_collections` of all five; None where one is missing. No score is above 1."""
    if set(scores["collection"]) != set(NAMES):
        return None
    mean = mean_over_collections(scores)
    return replace(mean, high=min(mean.high, 1.0))  # NaN stays


def leave_one_out(run: Run, recipe: Recipe) -> pl.DataFrame:
    """What each member adds to the recipe: its score less the score without the member.

    The weights of the others stay as they are. The last member of a collection is compared with
    the recipe's fallback, and has no row where there is none.

    Returns:
        collection, member, gain, low, high, standard_error, probability (that it is above zero),
        graphs; with rows "mean" over the collections that the member stands in.
    """
    check_recipe(recipe, run.experiments())
    names = [name for name in recipe.names() if name in run.experiments()]
    table = score_recipes(run, {recipe.name: recipe, **{f"-{n}": recipe.without(n) for n in names}})
    rows: list[tuple[Any, ...]] = []
    for name in names:
        both = pl.col("member").is_in([recipe.name, f"-{name}"])
        own = table.filter(both, pl.col("collection").is_in(_weighed_in(run, recipe, name)))
        if own["member"].n_unique() == 2:
            found = compare(own, recipe.name, f"-{name}")
            rows += [(collection, name, *rest) for collection, *rest in found.iter_rows()]
    return _to_frame(rows, ["collection", "member", "gain", *DIFFERENCE], texts=2)


def rank_correlations(run: Run, experiments: Sequence[str]) -> pl.DataFrame:
    """How alike the rankings of experiments are: Spearman's rho, a mean over graphs.

    Returns:
        collection, left, right, correlation; every pair both ways, and each with itself. Null
        where one of them ranks nothing (a constant) in every graph. Members that do not correlate
        are worth merging.
    """
    paths = {name: run.predictions(name, "out_of_fold") for name in experiments}
    rows: list[tuple[str, str, str, float | None]] = []
    for collection, frames in read_by_graphs({n: p for n, p in paths.items() if p.is_file()}):
        ranked = {name: normalise(frame) for name, frame in frames.items()}
        for name, own in ranked.items():
            with_itself = own.select(*GRAPH, left="score", right="score")
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
    """Spearman's rho of the columns left and right in each graph; None where one is constant."""
    rho = pl.corr("left", "right", method="spearman").fill_nan(None).alias("rho")
    return both.group_by(GRAPH).agg(rho)["rho"].to_list()


def reseed_spread(run: Run) -> pl.DataFrame:
    """How far another seed moves a score: every experiment's mean score, seed by seed.

    Returns:
        collection, member, value (mean of the seeds), low, high (of the seeds), spread (standard
        deviation over the seeds; null where there is one), seeds.
    """
    labels = predictions.read(run.labels)
    rows: list[tuple[Any, ...]] = []
    for name in run.experiments():
        per_seed = _score_seeds(run, name, labels).group_by("collection", "seed")
        means = per_seed.agg(pl.col("score").mean()).sort("collection", "seed")
        for (collection,), own in means.group_by("collection", maintain_order=True):
            value = own["score"]
            spread = (value.mean(), value.min(), value.max(), value.std())
            rows.append((collection, name, *spread, len(own)))
    return _to_frame(rows, ["collection", "member", "value", "low", "high", "spread", "seeds"], 2)


def _score_seeds(run: Run, experiment: str, labels: pl.DataFrame) -> pl.DataFrame:
    """collection, graph, score, seed; no rows where nothing was predicted out of fold."""
    schema = {"collection": pl.String, "graph": pl.String, "score": pl.Float64, "seed": pl.Int32}
    parts = [pl.DataFrame(schema=schema)]
    path = run.predictions(experiment, "out_of_fold")
    for _, frames in read_by_graphs({experiment: path} if path.is_file() else {}):
        for (seed,), own in frames[experiment].group_by("seed", maintain_order=True):
            scores = score_predictions(own, labels_of(labels, [own]))
            parts.append(scores.with_columns(seed=pl.lit(seed, pl.Int32)))
    return pl.concat(parts)


def mean_scores(table: pl.DataFrame) -> pl.DataFrame:
    """The mean score of every member in every collection, with a 95% interval.

    Args:
        table: collection, graph, group, member, score.

    Returns:
        collection, member, value, low, high, standard_error, graphs; the interval is null where
        there are fewer than FEWEST_GROUPS groups. No score is above 1, so no interval is.
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
    """`mean_scores` by collection and member; the interval is NaN where nothing is known of it."""
    known = mean_scores(table).with_columns(pl.col("low", "high").fill_null(float("nan")))
    return {
        (row["collection"], row["member"]): Mean(
            row["value"], row["low"], row["high"], row["graphs"]
        )
        for row in known.iter_rows(named=True)
    }


def show_interval(mean: Mean) -> str:
    """Such as 0.355 to 0.499."""
    known = not np.isnan(mean.low)
    return f"{mean.low:.3f} to {mean.high:.3f}" if known else "too few graphs"


def compare(table: pl.DataFrame, a: str, b: str) -> pl.DataFrame:
    """How much better `a` is than `b`, on the same graphs.

    Args:
        table: collection, graph, group, member, score; the collections that both members are
            scored in count.

    Returns:
        collection, difference (a - b, of means), low, high, standard_error, probability (that a
        beats b on other programs), graphs. The last row, "mean", is over the collections, as
        Kaggle's score is. Interval and probability are null where there are fewer than
        FEWEST_GROUPS groups, and the mean's with those of any collection.

    Raises:
        InputError: there is no such member, or no collection with both.
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
    """Whether a line of `compare` says that the first is better; None: it says of neither."""
    if difference["low"] is None or difference["low"] <= 0 <= difference["high"]:
        return None
    return bool(difference["low"] > 0)


def detectable_difference(
    table: pl.DataFrame, reference: str, *, power: float = 0.8, level: float = LEVEL
) -> pl.DataFrame:
    """The smallest true difference from `reference` that this many graphs would show.

    (t_level + t_power) * standard error: a paired t-test, two-sided, that finds it with about the
    probability `power`. Another seed's noise comes on top (`reseed_spread`).

    Returns:
        collection, member, deviation (of the paired differences of graphs), detectable, graphs;
        null where there are fewer than two graphs, or for what is detectable too few groups.
    """
    rows = []
    for part in read_scores(table):
        if reference not in part.members:
            continue
        gaps = part.scores - part.scores[:, [part.members.index(reference)]]
        graphs, found = len(part.graphs), estimate_mean([replace(part, scores=gaps)])
        factors = [special.stdtrit(found.freedom, share) for share in (0.5 + level / 2, power)]
        for column, member in enumerate(part.members):
            if member != reference:
                deviation = float(gaps[:, column].std(ddof=1)) if graphs > 1 else None
                shown = float((sum(factors) * found.error)[column]) if found.is_sure else None
                rows.append((part.collection, member, deviation, shown, graphs))
    return _to_frame(rows, ["collection", "member", "deviation", "detectable", "graphs"], texts=2)


def _subtract(part: CollectionScores, a: str, b: str) -> CollectionScores:
    """What `a` has more than `b` in every graph, as the only member."""
    first, second = (part.scores[:, [part.members.index(name)]] for name in (a, b))
    return replace(part, members=[f"{a} - {b}"], scores=first - second)


def _unpack(found: Estimate, column: int) -> tuple[float | None, ...]:
    """Value, low, high, standard error and probability of a member; None where none is known."""
    spread = (found.low, found.high, found.error, found.probability)
    known = [float(values[column]) if found.is_sure else None for values in spread]
    return float(found.value[column]), *known


def _weighed_in(run: Run, recipe: Recipe, member: str) -> list[str]:
    """The collections that the member predicts and the recipe asks it for."""
    path = run.predictions(member, "out_of_fold")
    if not path.is_file():
        return []
    check_any_seal(path)
    with reading(path, "a file of predictions"):
        predicted = pl.scan_parquet(path, glob=False).select("collection").unique()
        found = predicted.collect(engine="streaming")["collection"]
    return [name for name in found if member in recipe.weights(name)]


def _to_frame(rows: Sequence[tuple[Any, ...]], columns: list[str], texts: int) -> pl.DataFrame:
    kinds = [pl.String()] * texts + [pl.Float64()] * (len(columns) - texts - 1) + [pl.Int64()]
    return pl.DataFrame(rows, schema=dict(zip(columns, kinds, strict=True)), orient="row")
