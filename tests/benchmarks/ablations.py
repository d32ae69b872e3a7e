"""What the documents claim of a technique, each as a pair: with it and without.

    make ablations      .venv/bin/python -m tests.benchmarks.ablations DATA --seconds 6

Both of a pair get the same programs, folds, seeds and seconds of training on one thread; trees,
linear models and nets that never stop early take what they take. Differences are paired by program
(or by fit, of what is measured once a fit), their intervals drawn over programs. A claim holds
where the whole interval is on its side, does not hold where it is on the other, and cannot be told
else. What is done lies in build/ablations and is not done again.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Annotated

import polars as pl
import typer
from rich.console import Console

from solution.analysis.published_numbers import read_published
from solution.domain.collection import LAYOUT, TILE, collection
from solution.domain.metrics import Mean, bootstrap_mean
from tests.benchmarks.paper_report import as_markdown, mean_over, replace_between, show
from tests.benchmarks.paper_systems import FEW, LAYOUT_SYSTEMS, TILE_SYSTEMS, System
from tests.benchmarks.parts import FOLDS, Fit, compute, prepare, read_parts

DEFAULT = ("layout:xla:default",)
# Which way is better, and how a difference is written.
MEASURES = {
    "score": (1, "{:+.3f}"), "OPA": (1, "{:+.3f}"), "slowdown": (-1, "{:+.1%}"),
    "volatility": (-1, "{:+.3f}"), "seconds": (-1, "{:+.1f}"), "megabytes": (-1, "{:+.0f}"),
}  # fmt: skip
FEW_NODES = 40  # that a step keeps here, where the documents keep 1,000
OF_A_FIT = ("volatility", "seconds", "megabytes")


@dataclass(frozen=True)
class Claim:
    """The first experiment is better than the second, by the measure."""

    text: str
    better: str
    worse: str
    collections: tuple[str, ...]
    measure: str = "score"
    reported: tuple[str, ...] = ()  # names in published.toml: of the first, then of the second


CLAIMS = (
    # 000: residual graph net with attention.
    Claim("attention in front of the convolutions", "layout_residual_attention_001",
          "layout_residual_001", LAYOUT, "OPA", ("residual_attention_opa_50", "residual_opa_50")),
    Claim("attention makes the validation score steadier", "layout_residual_attention_001",
          "layout_residual_001", LAYOUT, "volatility"),
    # 001: the blog.
    Claim("segments instead of whole graphs", "layout_segments_001", "layout_segments_full_001",
          LAYOUT),
    Claim("segments take less memory", "layout_segments_001", "layout_segments_full_001", LAYOUT,
          "megabytes"),
    Claim("only configurable nodes and their neighbours", "layout_tpugraphs_pruned_001",
          "layout_tpugraphs_001", LAYOUT),
    Claim("virtual nodes for the rest, baseline", "layout_tpugraphs_virtual_001",
          "layout_tpugraphs_pruned_001", LAYOUT),
    Claim("virtual nodes for the rest, our net", "layout_gnn_virtual_001", "layout_gnn_001",
          LAYOUT),
    Claim("padding -1 instead of 0, baseline", "layout_tpugraphs_001",
          "layout_tpugraphs_padding_0_001", LAYOUT),
    Claim("padding -1 instead of 0, our net", "layout_gnn_001", "layout_gnn_padding_0_001", LAYOUT),
    Claim("padding -1 instead of 0, tile baseline", "tile_tpugraphs_sage_early_001",
          "tile_tpugraphs_padding_0_001", TILE),
    Claim("padding -1 instead of 0, our tile net", "tile_gnn_001", "tile_gnn_padding_0_001", TILE),
    Claim("what dots sum over, baseline", "layout_tpugraphs_contractions_001",
          "layout_tpugraphs_001", LAYOUT),
    Claim("what dots sum over, our net", "layout_gnn_contractions_001", "layout_gnn_001", LAYOUT),
    Claim("what dots sum over, trees", "layout_pointwise_contractions_001", "layout_pointwise_001",
          LAYOUT),
    Claim("what dots sum over, tile baseline", "tile_tpugraphs_contractions_001",
          "tile_tpugraphs_sage_early_001", TILE),
    Claim("what dots sum over, our tile net", "tile_gnn_contractions_001", "tile_gnn_001", TILE),
    Claim("logarithms of node features, baseline", "layout_tpugraphs_001",
          "layout_tpugraphs_plain_001", LAYOUT),
    Claim("logarithms of node features, our net", "layout_gnn_001", "layout_gnn_plain_001", LAYOUT),
    Claim("logarithms of node features, tile baseline", "tile_tpugraphs_sage_early_001",
          "tile_tpugraphs_plain_001", TILE),
    Claim("logarithms of node features, our tile net", "tile_gnn_001", "tile_gnn_plain_001", TILE),
    Claim("configurations that are compared, our tile net", "tile_gnn_rivals_001", "tile_gnn_001",
          TILE),
    # 002: violation ratio and attention.
    Claim("the violation ratio", "layout_violation_001", "layout_violation_without_ratio_001",
          LAYOUT, "OPA", ("violation_ratio_opa", "violation_without_ratio_opa")),
    Claim("all features of few nodes, not few of many", "layout_violation_001",
          "layout_violation_compressed_001", ("layout:xla:random",), "OPA",
          ("violation_all_features_opa", "violation_compressed_opa")),
    Claim("many nodes make the score steadier", "layout_violation_10000_001",
          "layout_violation_500_001", LAYOUT, "volatility"),
    # 004: the LightGBM study.
    Claim("the study's LightGBM before the GNN baseline", "tile_study_lightgbm_001",
          "tile_tpugraphs_sage_late_001", TILE, "slowdown",
          ("study_tile_lightgbm", "study_tile_gnn")),
    Claim("its LightGBM before least squares", "tile_study_lightgbm_001", "tile_study_linear_001",
          TILE, "slowdown", ("study_tile_lightgbm", "study_tile_least_squares")),
    Claim("its LightGBM before lasso", "tile_study_lightgbm_001", "tile_study_lasso_001", TILE,
          "slowdown", ("study_tile_lightgbm", "study_tile_lasso")),
    Claim("its LightGBM before ridge", "tile_study_lightgbm_001", "tile_study_ridge_001", TILE,
          "slowdown", ("study_tile_lightgbm", "study_tile_ridge")),
    Claim("least squares before ridge", "tile_study_linear_001", "tile_study_ridge_001", TILE,
          "slowdown", ("study_tile_least_squares", "study_tile_ridge")),
    Claim("opcodes for tiles", "tile_study_lightgbm_opcodes_001", "tile_study_lightgbm_001", TILE,
          "slowdown", ("study_tile_lightgbm_opcodes", "study_tile_lightgbm")),
    Claim("the GNN baseline before LightGBM on layouts", "layout_tpugraphs_001",
          "layout_study_lightgbm_001", DEFAULT, "score",
          ("study_layout_gnn", "study_layout_lightgbm")),
    Claim("the GNN baseline before least squares on layouts", "layout_tpugraphs_001",
          "layout_study_linear_001", DEFAULT, "score",
          ("study_layout_gnn", "study_layout_least_squares")),
    Claim("opcodes for layouts", "layout_study_lightgbm_opcodes_001", "layout_study_lightgbm_001",
          DEFAULT),
    Claim("opcodes of what pruning drops", "layout_study_lightgbm_all_opcodes_001",
          "layout_study_lightgbm_opcodes_001", LAYOUT),
)  # fmt: skip
# As in the table of the published systems, and of those that only stand here.
SMALLER = {
    **{system.experiment: system.smaller
       for system in (*LAYOUT_SYSTEMS.values(), *TILE_SYSTEMS.values())},
    **{f"layout_tpugraphs_{switch}_001": {"segment": 60}
       for switch in ("padding_0", "contractions", "plain")},
    "layout_violation_500_001": {"nodes": replace(FEW, trained=FEW_NODES // 2)},
    "layout_violation_compressed_001": {"nodes": replace(FEW, trained=5 * FEW_NODES)},
    "layout_violation_10000_001": {"nodes": replace(FEW, trained=10 * FEW_NODES)},
}  # fmt: skip


def list_fits(claims: Sequence[Claim], seconds: float, seeds: int) -> list[Fit]:
    """Every fit that a claim needs, once; tile nets get four times as long."""
    asked = {(name, c): None for claim in claims for name in (claim.better, claim.worse)
             for c in claim.collections}  # fmt: skip
    return [
        Fit(name, System(name, smaller=SMALLER.get(name, {})).settings(), place, fold, seed,
            seconds * (4 if collection(place).kind == "tile" else 1))
        for seed, (name, place), fold in product(range(seeds), asked, range(FOLDS))
    ]  # fmt: skip


def judge(claim: Claim, scores: pl.DataFrame) -> tuple[float, float, Mean] | None:
    """The means of both and the mean difference, positive where the claim holds; None: not done."""
    key = ["collection", "fold", "seed"] if claim.measure in OF_A_FIT else ["collection", "graph"]
    sign, _ = MEASURES[claim.measure]
    parts = []
    for name in (claim.better, claim.worse):
        own = scores.filter(pl.col("system") == name, pl.col("collection").is_in(claim.collections))
        parts.append(own.group_by(key).agg(pl.col(claim.measure).mean().alias("value")))
    both = parts[0].join(parts[1], on=key).drop_nulls().sort(key)
    if both.is_empty() or set(both["collection"]) != set(claim.collections):
        return None
    gap = both.with_columns(gap=sign * (pl.col("value") - pl.col("value_right")))
    if claim.measure in OF_A_FIT:
        mean = bootstrap_mean(gap["gap"].to_numpy())
    else:
        mean = mean_over(gap, claim.collections, "gap")
    means = both.group_by("collection").agg(pl.col("value", "value_right").mean())
    return float(means["value"].mean()), float(means["value_right"].mean()), mean  # type: ignore[arg-type]


def tabulate(claims: Sequence[Claim], scores: pl.DataFrame) -> list[list[str]]:
    """Header and a row a claim that was measured."""
    rows = [["Claim", "Measure", "Reported", "Here", "Gain (95%)", "Verdict"]]
    numbers = read_published().numbers
    for claim in claims:
        found = None if scores.is_empty() else judge(claim, scores)
        if found is None:
            continue
        value, other, mean = found
        form = MEASURES[claim.measure][1].replace("+", "")
        reported = " against ".join(str(numbers[name]) for name in claim.reported)
        places = "" if len(claim.collections) != 1 or claim.collections == TILE else DEFAULT[0]
        measured = claim.measure + (f", {claim.collections[0]}" if places else "")
        here = f"{form.format(value)} against {form.format(other)}"
        spec = MEASURES[claim.measure][1].strip("{:}")
        rows.append([claim.text, measured, reported, here, f"{mean:{spec}}", say_verdict(mean)])
    return rows


def say_verdict(mean: Mean) -> str:
    """Whether a claim holds whose gain is this."""
    if mean.low > 0:
        return "holds"
    return "does not hold" if mean.high < 0 else "cannot be told"


def main(
    data: Annotated[Path, typer.Argument(help="The measured CPU graphs.")],
    seconds: Annotated[float, typer.Option(help="Of a layout net's fit.")] = 6.0,
    seeds: int = 1,
    workers: int = 2,
    only: Annotated[list[str], typer.Option(help="Claims that hold these words.")] = [],  # noqa: B006
    out: Annotated[Path, typer.Option()] = Path("build/ablations"),
    report: Annotated[Path | None, typer.Option(help="The folder of the log to write to.")] = None,
) -> None:
    """Measure what is missing, print every claim, and write the table."""
    claims = [claim for claim in CLAIMS if not only or any(word in claim.text for word in only)]
    fits = list_fits(claims, seconds, seeds)
    compute(fits, prepare(data, out), out / "parts", workers, "Ablations")
    rows = tabulate(CLAIMS, read_parts(list_fits(CLAIMS, seconds, seeds), out / "parts"))
    Console(width=160).print(show("What the documents claim, with and without", rows))
    if report is not None:
        log = report / "solution/experiments/LOG.md"
        replace_between(log, as_markdown(rows, ""), "make ablations")


if __name__ == "__main__":
    typer.run(main)
