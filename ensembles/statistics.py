"""How sure a score is: everything over graphs, paired, because graphs differ more than rankers do.

A score table holds the out-of-fold score of every graph by every member (Kendall's tau for layout,
the top-5 score for tile; higher is better). Resampling its groups of graphs, the same ones for
every member, says how far the means would move on other graphs of the same kind. It does not say
how far another seed would move them: `reseed_spread` does.
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations
from statistics import NormalDist
from typing import Any

import numpy as np
import polars as pl

from ensembles.methods import normalise
from ensembles.recipe import Recipe, check_recipe
from ensembles.resampling import (
    LEVEL,
    RESAMPLES,
    CollectionScores,
    find_interval,
    read_scores,
    resample_means,
)
from ensembles.scoring import labels_of, score_recipes
from solution.domain import predictions
from solution.domain.metrics import Mean, score_predictions
from solution.runs.folder import STUDENTS, Run
from solution.system.errors import InputError
from solution.system.parquet import GRAPH, read_by_graphs, reading
from solution.system.sealing import check_any_seal

MEAN = "mean"  # the row over all collections
DIFFERENCE = ["low", "high", "standard_error", "probability", "graphs"]  # said of one


def leave_one_out(
    run: Run, recipe: Recipe, resamples: int = RESAMPLES, seed: int = 0
) -> pl.DataFrame:
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
            found = compare(own, recipe.name, f"-{name}", resamples, seed)
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


def bootstrap(table: pl.DataFrame, resamples: int = RESAMPLES, seed: int = 0) -> pl.DataFrame:
    """The mean score of every member in every collection, with a 95% percentile interval.

    Args:
        table: collection, graph, group, member, score.

    Returns:
        collection, member, value, low, high, standard_error, graphs; the interval is null where
        there are fewer than two groups.
    """
    rows: list[tuple[Any, ...]] = []
    parts = read_scores(table)
    for part, means in zip(parts, resample_means(parts, resamples, seed), strict=True):
        graphs = len(part.graphs)
        for column, member in enumerate(part.members):
            spread = _unpack(means[:, column], part.draws)
            rows.append((part.collection, member, part.scores[:, column].mean(), *spread, graphs))
    columns = ["collection", "member", "value", "low", "high", "standard_error", "graphs"]
    return _to_frame(rows, columns, texts=2)


def means_by_member(table: pl.DataFrame) -> dict[tuple[str, str], Mean]:
    """`bootstrap` by collection and member; the interval is NaN where there are too few groups."""
    known = bootstrap(table).with_columns(pl.col("low", "high").fill_null(float("nan")))
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


def compare(
    table: pl.DataFrame, a: str, b: str, resamples: int = RESAMPLES, seed: int = 0
) -> pl.DataFrame:
    """How much better `a` is than `b`, on the same graphs.

    Args:
        table: collection, graph, group, member, score; the collections that both members are
            scored in count.

    Returns:
        collection, difference (a - b, of means), low, high, standard_error, probability (that a
        beats b: the share of the resamples in which it does, ties counted half), graphs. The last
        row, "mean", is over the collections, as Kaggle's score is. Interval and probability are
        null where there are fewer than two groups, and the mean's with those of any collection.

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
    means = [own[:, 0] for own in resample_means(parts, resamples, seed)]
    values = [part.scores.mean() for part in parts]
    rows = [
        (part.collection, *_summarise(value, own, part.draws), len(part.graphs))
        for part, value, own in zip(parts, values, means, strict=True)
    ]
    fewest = min(part.draws for part in parts)
    overall = _summarise(np.mean(values), np.mean(means, axis=0), fewest)
    rows.append((MEAN, *overall, sum(len(part.graphs) for part in parts)))
    return _to_frame(rows, ["collection", "difference", *DIFFERENCE], texts=1)


def detectable_difference(
    table: pl.DataFrame, reference: str, *, power: float = 0.8, level: float = LEVEL
) -> pl.DataFrame:
    """The smallest true difference from `reference` that this many graphs would show.

    (z_level + z_power) * standard error: a paired z-test, two-sided, that finds it with the
    probability `power`. Another seed's noise comes on top (`reseed_spread`).

    Returns:
        collection, member, deviation (of the paired differences of graphs), detectable, graphs;
        null where there are fewer than two graphs, or for what is detectable two groups.
    """
    factor = NormalDist().inv_cdf(0.5 + level / 2) + NormalDist().inv_cdf(power)
    rows = []
    for part in read_scores(table):
        if reference not in part.members:
            continue
        gaps = part.scores - part.scores[:, [part.members.index(reference)]]
        graphs = len(part.graphs)
        errors = _find_errors(gaps, part.groups)
        for column, member in enumerate(part.members):
            if member != reference:
                deviation = float(gaps[:, column].std(ddof=1)) if graphs > 1 else None
                found = factor * errors[column] if part.draws > 1 else None
                rows.append((part.collection, member, deviation, found, graphs))
    return _to_frame(rows, ["collection", "member", "deviation", "detectable", "graphs"], texts=2)


def _find_errors(values: np.ndarray, groups: Sequence[str]) -> np.ndarray:
    """The standard errors (members,) of means of values (graphs, members), by what groups sum to.

    Source: Liang and Zeger, "Longitudinal data analysis using generalized linear models", 1986.
    """
    names, number = np.unique(groups, return_inverse=True)
    sums = np.zeros((len(names), values.shape[1]))
    np.add.at(sums, number, values - values.mean(axis=0))
    correction = len(names) / max(len(names) - 1, 1)  # with a graph a group: the usual error
    return np.sqrt(correction * (sums**2).sum(axis=0)) / len(values)


def _subtract(part: CollectionScores, a: str, b: str) -> CollectionScores:
    """What `a` has more than `b` in every graph, as the only member."""
    first, second = (part.scores[:, [part.members.index(name)]] for name in (a, b))
    return replace(part, members=[f"{a} - {b}"], scores=first - second)


def _unpack(means: np.ndarray, draws: int) -> tuple[float | None, float | None, float | None]:
    """Low, high and standard error of resampled means (resamples,)."""
    found = find_interval(means, draws)
    return (found.low, found.high, found.standard_error) if found else (None, None, None)


def _summarise(value: np.floating, means: np.ndarray, draws: int) -> tuple[float | None, ...]:
    """The value, its interval, and the probability that it is above zero."""
    drawn = means[~np.isnan(means)]
    probability = float((drawn > 0).mean() + (drawn == 0).mean() / 2) if draws > 1 else None
    return float(value), *_unpack(means, draws), probability


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
