"""Compare pairs of experiments, with and without a technique, to test the documents' claims.

    make ablations      .venv/bin/python -m benchmarks.ablations DATA --seconds 6

Both of a pair get the same programs, folds, seeds and seconds of training on one thread; trees,
linear models and nets without early stopping train as long as they need. Differences are paired by
program, with intervals over structures; for measures of a fit by fit, with intervals over fits. A
claim holds if the whole interval is on its side, does not hold if it is on the other side, and is
undecided otherwise. The pairs are in benchmarks.claims. Finished fits are kept in build/ablations
and not repeated.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Annotated

import polars as pl
import typer
from rich.console import Console

from benchmarks.bootstrap import bootstrap_mean
from benchmarks.claims import (
    ALONE,
    CLAIMS,
    Claim,
    configs_of,
    seconds_of,
    settings_of,
)
from benchmarks.paper_report import (
    as_markdown,
    mean_over,
    of_graphs,
    replace_between,
    say_verdict,
    show,
)
from benchmarks.parts import FOLDS, Fit, compute, prepare, read_parts
from solution.commands.options import ClusterAddress, ExecutorOption, make_executor
from solution.domain.collection import LAYOUT, NAMES, TILE
from solution.domain.metrics import Mean
from solution.papers.published_numbers import read_published
from solution.system.wording import count

Curves = Mapping[str, list[float]]  # curve_scores and curve_seconds of a fit

# For each measure: whether higher is better, and the format of a difference.
MEASURES = {
    "score": (1, "{:+.3f}"), "OPA": (1, "{:+.3f}"), "slowdown": (-1, "{:+.1%}"),
    "volatility": (-1, "{:+.3f}"), "epoch": (-1, "{:+.2f}"), "reach": (-1, "{:+.1f}"),
    "megabytes": (-1, "{:+.0f}"), "loss_volatility": (-1, "{:+.4f}"),
}  # fmt: skip
WORDS = {"epoch": "seconds an epoch", "reach": "seconds to one score",
         "loss_volatility": "volatility of the loss"}  # fmt: skip
BATCHES = {
    "layout_residual_attention_001": ("10 graphs a step", 10),
    "layout_residual_attention_batch_50_001": ("all graphs a step", 50),
}
OF_A_FIT = ("volatility", "loss_volatility", "epoch", "reach", "megabytes")
FEWEST = 6  # fits: with fewer, equal signs of all differences may be chance at the 5% level


def list_fits(claims: Sequence[Claim], seconds: float, seeds: int, folds: int = FOLDS) -> list[Fit]:
    """Return every fit that a claim needs, without repetition, fold by fold."""
    asked = {(name, c): None for claim in claims for name in (claim.better, claim.worse)
             for c in claim.collections}  # fmt: skip
    return [
        Fit(name, settings_of(name), place, fold, seed, seconds_of(name, place, seconds),
            configs=configs_of(name, place), alone=name in ALONE)
        for seed, fold, (name, place) in product(range(seeds), range(folds), asked)
    ]  # fmt: skip


def restrict(claims: Sequence[Claim], places: Sequence[str]) -> list[Claim]:
    """Restrict the claims to these collections; a claim about none of them is unchanged."""
    kept = [tuple(place for place in claim.collections if place in places) for claim in claims]
    return [replace(claim, collections=own or claim.collections)
            for claim, own in zip(claims, kept, strict=True)]  # fmt: skip


def judge(claim: Claim, scores: pl.DataFrame) -> tuple[float, float, Mean] | None:
    """Return both means and the mean difference, positive if the claim holds; None: not
    measured."""
    key = ["collection", "fold", "seed"]
    if claim.measure not in OF_A_FIT:
        key = ["collection", "graph", "group"]
    both = pair_up(claim, scores, key)
    if both.is_empty() or set(both["collection"]) != set(claim.collections):
        return None
    sign, _ = MEASURES[claim.measure]
    gap = both.with_columns(gap=sign * (pl.col("value") - pl.col("other")))
    if claim.measure in OF_A_FIT:
        mean = bootstrap_mean(gap["gap"].to_numpy())
        if len(gap) < FEWEST:
            mean = Mean(mean.value, math.nan, math.nan, len(gap))
    else:
        mean = mean_over(gap, claim.collections, "gap")
    means = both.group_by("collection").agg(pl.col("value", "other").mean())
    return float(means["value"].mean()), float(means["other"].mean()), mean  # type: ignore[arg-type]


def find_done(claim: Claim, scores: pl.DataFrame) -> tuple[str, ...]:
    """Return the collections of the claim in which both experiments were fitted."""
    if scores.is_empty():
        return ()
    done = [set(scores.filter(system=name)["collection"]) for name in (claim.better, claim.worse)]
    return tuple(place for place in claim.collections if place in done[0] & done[1])


def pair_up(claim: Claim, scores: pl.DataFrame, key: list[str]) -> pl.DataFrame:
    """Join both experiments by the key: `value` of the first, `other` of the second."""
    parts = []
    for name in (claim.better, claim.worse):
        own = scores.filter(pl.col("system") == name, pl.col("collection").is_in(claim.collections))
        if claim.measure == "reach":
            own = own.with_columns(reach=pl.struct("curve_scores", "curve_seconds"))
        if claim.measure == "epoch":
            own = own.with_columns(epoch=pl.col("seconds") / pl.col("epochs"))
        value = pl.col(claim.measure)
        whole = value.first() if claim.measure == "reach" else value.mean()
        parts.append(own.group_by(key).agg(whole.alias("value")))
    both = parts[0].join(parts[1].rename({"value": "other"}), on=key).drop_nulls().sort(key)
    if claim.measure != "reach":
        return both
    reached = [reach_together(*curves) for curves in both.select("value", "other").iter_rows()]
    value, other = zip(*reached, strict=True) if reached else ((), ())
    return both.with_columns(value=pl.Series(value, dtype=pl.Float64),
                             other=pl.Series(other, dtype=pl.Float64))  # fmt: skip


def reach_together(first: Curves, second: Curves) -> tuple[float, float]:
    """Return when each curve reaches the lower one of both best validation scores."""
    level = min(max(curve["curve_scores"]) for curve in (first, second))
    found = []
    for curve in (first, second):
        there = next(k for k, score in enumerate(curve["curve_scores"]) if score >= level)
        found.append(curve["curve_seconds"][there])
    return found[0], found[1]


def tabulate(claims: Sequence[Claim], scores: pl.DataFrame) -> list[list[str]]:
    """Return a header and a row per measured claim, over the collections with both experiments."""
    rows = [["Claim", "Measure", "Reported", "Here", "Gain (95%)", "Verdict"]]
    numbers = read_published().numbers
    for whole in claims:
        claim = replace(whole, collections=find_done(whole, scores))
        found = judge(claim, scores) if claim.collections else None
        if found is None:
            continue
        value, other, mean = found
        form = MEASURES[claim.measure][1].replace("+", "")
        reported = " against ".join(str(numbers[name]) for name in claim.reported)
        measured = ", ".join([WORDS.get(claim.measure, claim.measure), *say_where(claim)])
        here = f"{form.format(value)} against {form.format(other)}"
        spec = MEASURES[claim.measure][1].strip("{:}")
        gain = f"{mean:{spec}}"
        if math.isnan(mean.low):
            unit = "fit" if claim.measure in OF_A_FIT else "graph"
            gain = f"{mean.value:{spec}} (of {count(mean.graphs, unit)})"
        rows.append([claim.text, measured, reported, here, gain, say_verdict(mean)])
    return rows


def tabulate_opa(scores: pl.DataFrame) -> list[list[str]]:
    """Return a header and a row per batch size of the residual net: OPA by collection, and as
    reported."""
    rows = [["Residual net with attention, OPA", *LAYOUT]]
    numbers = read_published().numbers
    for name, (words, graphs) in BATCHES.items():
        own = scores.filter(system=name) if len(scores) else scores
        cells = []
        for place in LAYOUT:
            key = f"residual_{place.removeprefix('layout:').replace(':', '_')}_{graphs}"
            mean = mean_over(of_graphs(own, "OPA"), [place], "OPA").value if len(own) else math.nan
            cells.append("" if math.isnan(mean) else f"{mean:.3f} ({numbers[key]})")
        if any(cells):
            rows.append([f"{words} (reported: {graphs})", *cells])
    return rows


def say_where(claim: Claim) -> list[str]:
    """Return the collections of a claim about some layout collections only."""
    shown = [place.removeprefix("layout:") for place in claim.collections]
    return [] if claim.collections in (LAYOUT, TILE) else shown


def main(
    data: Annotated[Path, typer.Argument(help="The measured CPU graphs.")],
    seconds: Annotated[float, typer.Option(help="Of a layout net's fit.")] = 6.0,
    seeds: int = 1,
    folds: Annotated[int, typer.Option(help="Of the two, how many are held out.")] = FOLDS,
    workers: int = 2,
    executor: ExecutorOption = "local",
    address: ClusterAddress = None,
    only: Annotated[list[str], typer.Option(help="Claims that hold these words.")] = [],  # noqa: B006
    collections: Annotated[list[str], typer.Option(help="Where this is enough.")] = list(NAMES),  # noqa: B006
    out: Annotated[Path, typer.Option()] = Path("build/ablations"),
    report: Annotated[Path | None, typer.Option(help="The folder of the log to write to.")] = None,
) -> None:
    """Measure missing fits, print every claim, and write the table."""
    every = restrict(CLAIMS, collections)
    claims = [claim for claim in every if not only or any(word in claim.text for word in only)]
    fits = list_fits(claims, seconds, seeds, folds)
    done_on = make_executor(executor, address, workers)
    compute(fits, prepare(data, out), out / "parts", done_on, "Ablations")
    scores = read_parts(list_fits(every, seconds, seeds, folds), out / "parts")
    tables = [tabulate(every, scores), tabulate_opa(scores)]
    console = Console(width=160)
    console.print(show("What the documents claim, with and without", tables[0]))
    console.print(show("Pairs ordered rightly", tables[1]))
    if report is not None:
        text = "\n\n".join(as_markdown(rows, "") for rows in tables)
        replace_between(report / "solution/experiments/LOG.md", text, "make ablations")


if __name__ == "__main__":
    typer.run(main)
