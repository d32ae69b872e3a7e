"""Build the page's sections on the ensemble's members: correlation, weights, gains, optimism."""

import math

import numpy as np
import polars as pl

from ensembles.coverage import list_present
from ensembles.search import QUICK_FITS, drop_constants, list_candidates, mean_of_collections
from ensembles.search import estimate as estimate_scores
from ensembles.statistics import MEAN, leave_one_out, rank_correlations
from ensembles.votes import to_shares
from ensembles.weights import read_ballots
from submissions.page.charts import Row, draw_bars, draw_heat_map, draw_intervals, draw_pairs
from submissions.page.evidence import (
    Evidence,
    PageTable,
    Section,
    interval,
    listed,
    number,
    percent,
    signed,
)

OPTIMISM = "optimism", "How much fitted weights flatter"
GREEDY = "greedy"
MAX_GREEDY = 3000  # members times graphs; above this number greedy selection would take too long


def describe_agreement(evidence: Evidence) -> Section:
    """Return the section with heat maps of the correlation between the members' ranks."""
    heading = "agreement", "How alike the members are"
    names = [name for name in evidence.members if name != evidence.ensemble]
    found = rank_correlations(evidence.run, names).filter(pl.col("correlation").is_not_null())
    if found.filter(pl.col("left") != pl.col("right")).is_empty():
        return Section(
            *heading,
            "No collection has two members whose scores are not constant, so there is nothing to "
            "correlate. Add an experiment: `fastslow run --experiment NAME`.",
        )
    figures, rows = [], []
    for collection in evidence.collections:
        pairs = found.filter(pl.col("collection") == collection.name)
        values = {(left, right): rho for left, right, rho in pairs.drop("collection").iter_rows()}
        here = [name for name in names if (name, name) in values]
        if len(here) > 1:
            matrix = [[values.get((left, right)) for right in here] for left in here]
            figures.append(draw_heat_map(collection.name, here, matrix))
            rows += [
                [collection.name, left, right, number(values.get((left, right)))]
                for i, left in enumerate(here)
                for right in here[:i]
            ]
    columns = ["Collection", "Member", "Other", "Correlation"]
    return Section(
        *heading,
        "Merging members that agree gains nothing. Shown is Spearman’s correlation of two members’ "
        "scores inside a graph, averaged over graphs; members with constant scores are left out.",
        figures,
        [PageTable("Correlations of ranks", columns, rows, texts=3, grouped=True)],
        "The fuller a square, the more alike. Columns are numbered as the rows are.",
    )


def describe_weights(evidence: Evidence) -> Section:
    """Return the section on each member's weight, by collection."""
    recipe = evidence.recipe
    figures, rows = [], []
    for collection in evidence.collections:
        scored = {str(mean["member"]) for mean in evidence.means_of(collection.name)}
        weights = {n: w for n, w in recipe.weights(collection.name).items() if n in scored}
        shares = _share(weights)
        if not shares and recipe.fallback in scored:
            shares = [Row(f"{recipe.fallback} (fallback)", 1.0)]
        if shares:
            figures.append(draw_bars(collection.name, shares))
        rows += [[collection.name, s.name, number(s.value)] for s in shares]
    merged = listed(list_present(evidence.run, recipe))
    weighted = "different weights in some" if recipe.collections else "the same weights in all"
    columns = ["Collection", "Member", "Share"]
    return Section(
        "weights",
        "Weights",
        f"Recipe {recipe.name} merges {merged} by {recipe.method.replace('_', ' ')}, "
        f"with {weighted} collections. A member counts in the collections that it predicts.",
        figures,
        [PageTable("Shares of the weight", columns, rows, texts=2, grouped=True)],
    )


def _share(weights: dict[str, float]) -> list[Row]:
    if not weights:
        return []
    shares = to_shares(np.array(list(weights.values())))
    return [Row(name, float(share)) for name, share in zip(weights, shares, strict=True)]


def describe_gains(evidence: Evidence) -> Section:
    """Return the section on how much score the ensemble loses without each of its members."""
    heading = "gains", "What each member adds"
    gains = leave_one_out(evidence.run, evidence.recipe) if evidence.recipe.names() else None
    if gains is None or gains.is_empty():
        return Section(
            *heading,
            "No member can be left out of this recipe: it has only one and no fallback. Add "
            'members to the recipe, or fallback = "nothing_001".',
        )
    figures, rows = [], []
    for name in [*(c.name for c in evidence.collections), MEAN]:
        lines = list(gains.filter(pl.col("collection") == name).iter_rows(named=True))
        if lines:
            shown = "mean over a member’s collections" if name == MEAN else name
            bars = [Row(line["member"], line["gain"], line["low"], line["high"]) for line in lines]
            figures.append(draw_intervals(shown, bars, difference=True))
        for line in lines:
            numbers = [signed(line["gain"]), interval(line["low"], line["high"])]
            rows.append([name, line["member"], *numbers, percent(line["probability"])])
    columns = ["Collection", "Member", "Gain", "95% interval", "Probability of a gain"]
    return Section(
        *heading,
        "The ensemble’s score less its score without the member, on the same graphs; the others "
        "keep their weights. Left of zero the ensemble is better off without it.",
        figures,
        [PageTable("Gain of each member", columns, rows, texts=2, grouped=True)],
        "If an interval contains zero, these graphs do not show whether the member helps.",
    )


def describe_optimism(evidence: Evidence) -> Section:
    """Return the section with scores of fitted weights, on the graphs of the fit and on others."""
    rows = _estimate(evidence)
    if not rows:
        return Section(
            *OPTIMISM,
            "Unknown for this run: it takes two members whose scores are not constant, and "
            "labelled graphs of at least two groups in a collection. Add experiments or graphs, "
            "and run again.",
        )
    table = [
        [n, number(nested), number(naive), signed(naive - nested)] for n, nested, naive in rows
    ]
    figure = draw_pairs("mean of the collections", rows, ("on other graphs", "on the same graphs"))
    return Section(
        *OPTIMISM,
        "Weights that are fitted and scored on the same graphs look better than they are. Here "
        f"the members are weighted in {len(rows)} ways, merged by "
        f"{evidence.recipe.method.replace('_', ' ')}, and each way is scored twice: on the graphs "
        "that it was fitted on, and on graphs of other groups. The graphs of a group are always in "
        "the same fold of this run.",
        [figure],
        [PageTable("Fitted weights", ["Fit", "On other graphs", "On the same", "Optimism"], table)],
        "A dot is the score on other graphs, a ring the one on the same graphs; the line between "
        "them is the optimism.",
        notes=[
            "If the recipe’s weights were fitted on this run, its scores above contain some of "
            "this optimism. Greedy selection is left out if it would take long. `fastslow ensemble "
            "--search` fits weights and estimates their score on other graphs."
        ],
    )


def _estimate(evidence: Evidence) -> list[tuple[str, float, float]]:
    """Return (name, nested mean, naive mean) of each way to fit weights. Both are mean scores over
    collections: nested on graphs outside the fit, naive on the graphs of the fit."""
    fallback = evidence.recipe.fallback
    names = [n for n in evidence.members if n not in (fallback, evidence.ensemble)]
    if not names:
        return []
    members, ballots = read_ballots(evidence.run, names, [evidence.recipe.method])
    members, ballots = drop_constants(members, ballots)
    if not any(len(names) > 1 for names in members.values()):
        return []
    rows = []
    large = sum(len(members[ballot.collection]) for ballot in ballots) > MAX_GREEDY
    fits = [name for name in QUICK_FITS if not (large and name == GREEDY)]
    for candidate in list_candidates([evidence.recipe.method], fits, [0.0]):
        scores = estimate_scores(ballots, candidate.learn())
        nested, naive = (mean_of_collections(ballots, score) for score in scores)
        if math.isfinite(nested) and math.isfinite(naive):
            rows.append((candidate.fit.replace("_", " "), nested, naive))
    return rows
