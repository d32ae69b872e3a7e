"""How sure a score is: everything over graphs, paired, because graphs differ more than rankers do.

A score table holds the out-of-fold score of every graph by every member (Kendall's tau for layout,
the top-5 score for tile; higher is better). Resampling its graphs, the same ones for every member,
says how far the means would move on other graphs of the same kind. It does not say how far another
seed would move them: `reseed_spread` does.

Source: Efron and Tibshirani, "An Introduction to the Bootstrap", 1993, chapters 6 and 13.
"""

from collections.abc import Sequence
from itertools import product
from statistics import NormalDist
from typing import Any

import numpy as np
import polars as pl

from ensembles.alignment import CONFIG
from ensembles.methods import normalise
from ensembles.recipe import Recipe, check_recipe
from ensembles.resampling import iterate_collections, resample_means
from ensembles.scoring import alone, score_recipes
from solution.domain import predictions
from solution.domain.metrics import score_graphs
from solution.runs.folder import Run
from solution.system.errors import InputError
from solution.system.parquet import GRAPH, read_by_graphs

RESAMPLES = 10_000
LEVEL = 0.95  # of intervals
ENSEMBLE = "ensemble"
MEAN = "mean"  # the row over all collections


def score_table(run: Run, recipe: Recipe) -> pl.DataFrame:
    """The out-of-fold score of every graph by every experiment of the run, and by the recipe.

    Returns:
        collection, graph, member, score; the recipe is the member "ensemble NAME". The seeds of an
        experiment are merged first, as the recipe does it, so that it is compared with what it adds
        to the ensemble; a single seed scores less.

    Raises:
        InputError: the recipe does not fit the run, or misses what it does not allow to miss.
    """
    check_recipe(recipe, run.experiments())
    members = {name: alone(name, recipe.method) for name in run.experiments()}
    return score_recipes(run, {**members, f"{ENSEMBLE} {recipe.name}": recipe})


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
    gains = []
    for name in names:
        both = pl.col("member").is_in([recipe.name, f"-{name}"])
        own = table.filter(both, pl.col("collection").is_in(_weighed_in(run, recipe, name)))
        if own["member"].n_unique() == 2:
            found = compare(own, recipe.name, f"-{name}", resamples, seed)
            gains.append(
                found.select("collection", pl.lit(name).alias("member"), pl.exclude("collection"))
            )
    return pl.concat(gains).rename({"difference": "gain"})


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
        for left, right in product(ranked, repeat=2):
            both = ranked[left].join(ranked[right], on=CONFIG, suffix="_of_right")
            rho = pl.corr("score", "score_of_right", method="spearman").alias("rho")
            rows += [(collection, left, right, r) for r in both.group_by(GRAPH).agg(rho)["rho"]]
    schema = {"collection": pl.String, "left": pl.String, "right": pl.String, "rho": pl.Float64}
    found = pl.DataFrame(rows, schema=schema, orient="row").with_columns(
        pl.col("rho").fill_nan(None)
    )
    pairs = found.group_by("collection", "left", "right", maintain_order=True)
    return pairs.agg(pl.col("rho").mean().alias("correlation"))


def reseed_spread(run: Run) -> pl.DataFrame:
    """How far another seed moves a score: every experiment's mean score, seed by seed.

    Returns:
        collection, member, value (mean of the seeds), low, high (of the seeds), spread (standard
        deviation over the seeds; null where there is one), seeds.
    """
    labels = predictions.read(run.labels)
    rows = []
    for name in run.experiments():
        path = run.predictions(name, "out_of_fold")
        if not path.is_file():
            continue
        parts = [
            score_graphs(own, labels).with_columns(seed=pl.lit(seed))
            for _, frames in read_by_graphs({name: path})
            for (seed,), own in frames[name].group_by("seed", maintain_order=True)
        ]
        per_seed = pl.concat(parts).group_by("collection", "seed").agg(pl.col("score").mean())
        for (collection,), own in per_seed.sort("collection", "seed").group_by(
            "collection", maintain_order=True
        ):
            values = own["score"]
            rows.append(
                (
                    collection,
                    name,
                    values.mean(),
                    values.min(),
                    values.max(),
                    values.std(),
                    len(own),
                )
            )
    return _to_frame(rows, ["collection", "member", "value", "low", "high", "spread", "seeds"], 2)


def bootstrap(table: pl.DataFrame, resamples: int = RESAMPLES, seed: int = 0) -> pl.DataFrame:
    """The mean score of every member in every collection, with a 95% percentile interval.

    Args:
        table: collection, graph, member, score.

    Returns:
        collection, member, value, low, high, standard_error, graphs; the interval is null where
        there are fewer than two graphs.
    """
    rows = []
    for collection, graphs, members, scores in iterate_collections(table):
        means = resample_means(scores, resamples, seed)
        for column, member in enumerate(members):
            spread = _interval(means[:, column], graphs)
            rows.append((collection, member, scores[:, column].mean(), *spread, graphs))
    columns = ["collection", "member", "value", "low", "high", "standard_error", "graphs"]
    return _to_frame(rows, columns, texts=2)


def compare(
    table: pl.DataFrame, a: str, b: str, resamples: int = RESAMPLES, seed: int = 0
) -> pl.DataFrame:
    """How much better `a` is than `b`, on the same graphs.

    Args:
        table: collection, graph, member, score; the collections that both members are scored in
            count.

    Returns:
        collection, difference (a - b, of means), low, high, standard_error, probability (that a
        beats b: the share of the resamples in which it does, ties counted half), graphs. The last
        row, "mean", is over the collections, each resampled by itself, as Kaggle's score is.

    Raises:
        InputError: there is no such member, or no collection with both.
    """
    known = table["member"].unique().sort().to_list()
    for name in (a, b):
        if name not in known:
            raise InputError(f"{name!r} has no scores. There are: {', '.join(known)}.")
    rows: list[tuple[str | float | None, ...]] = []
    totals: list[np.ndarray] = []
    values, sizes = [], []
    for collection, graphs, members, scores in iterate_collections(table):
        if a in members and b in members:
            gaps = scores[:, [members.index(a)]] - scores[:, [members.index(b)]]
            means = resample_means(gaps, resamples, seed + len(rows))[:, 0]
            rows.append((collection, *_summarise(gaps.mean(), means, graphs), graphs))
            totals.append(means)
            values.append(gaps.mean())
            sizes.append(graphs)
    if not rows:
        raise InputError(f"{a} and {b} predict no collection in common. Compare others.")
    overall = _summarise(np.mean(values), np.mean(totals, axis=0), min(sizes))
    rows.append((MEAN, *overall, sum(sizes)))
    columns = ["collection", "difference", "low", "high", "standard_error", "probability", "graphs"]
    return _to_frame(rows, columns, texts=1)


def detectable_difference(
    table: pl.DataFrame, reference: str, *, power: float = 0.8, level: float = LEVEL
) -> pl.DataFrame:
    """The smallest true difference from `reference` that this many graphs would show.

    (z_level + z_power) * deviation / sqrt(graphs): a paired z-test, two-sided, that finds it with
    the probability `power`. Another seed's noise comes on top (`reseed_spread`).

    Returns:
        collection, member, deviation (of the paired differences of graphs), graphs, detectable;
        null where there are fewer than two graphs.
    """
    factor = NormalDist().inv_cdf(0.5 + level / 2) + NormalDist().inv_cdf(power)
    rows = []
    for collection, graphs, members, scores in iterate_collections(table):
        if reference not in members:
            continue
        gaps = scores - scores[:, [members.index(reference)]]
        for column, member in enumerate(members):
            if member != reference:
                deviation = float(gaps[:, column].std(ddof=1)) if graphs > 1 else None
                found = None if deviation is None else factor * deviation / np.sqrt(graphs)
                rows.append((collection, member, deviation, found, graphs))
    return _to_frame(rows, ["collection", "member", "deviation", "detectable", "graphs"], texts=2)


def _interval(means: np.ndarray, graphs: int) -> tuple[float | None, float | None, float | None]:
    """Low, high and standard error of resampled means (resamples,)."""
    if graphs < 2:
        return None, None, None
    low, high = np.quantile(means, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(low), float(high), float(means.std())


def _summarise(value: np.floating, means: np.ndarray, graphs: int) -> tuple[float | None, ...]:
    probability = float((means > 0).mean() + (means == 0).mean() / 2)
    return float(value), *_interval(means, graphs), probability


def _weighed_in(run: Run, recipe: Recipe, member: str) -> list[str]:
    """The collections that the member predicts and the recipe asks it for."""
    predicted = (
        pl.scan_parquet(run.predictions(member, "out_of_fold")).select("collection").unique()
    )
    found = predicted.collect(engine="streaming")["collection"]
    return [name for name in found if member in recipe.weights(name)]


def _to_frame(rows: Sequence[tuple[Any, ...]], columns: list[str], texts: int) -> pl.DataFrame:
    kinds = [pl.String()] * texts + [pl.Float64()] * (len(columns) - texts - 1) + [pl.Int64()]
    return pl.DataFrame(rows, schema=dict(zip(columns, kinds, strict=True)), orient="row")
