"""How pairs of experiments become verdicts, on scores made up by hand."""

import dataclasses
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from solution.domain.collection import LAYOUT, TILE
from solution.experiments.base import find_experiment
from tests.benchmarks.ablations import CLAIMS, Claim, judge, list_fits, say_verdict, tabulate
from tests.benchmarks.parts import Curve, Fit, read_parts, with_training

BOTH = ("study_tile_lightgbm", "study_tile_gnn")


def make_scores(gap: float, noise: float, measure: str = "score") -> pl.DataFrame:
    """40 kernels, two folds: `first` is better than `second` by the gap in the mean."""
    generator = np.random.default_rng(0)
    rows = []
    for graph in range(40):
        common = {"collection": TILE[0], "fold": graph % 2, "seed": 0, "graph": f"k{graph}"}
        own = gap + noise * generator.normal()
        for system, value in (("first", 0.5 + own), ("second", 0.5)):
            rows.append({**common, "system": system, measure: value})
    return pl.DataFrame(rows)


@pytest.mark.parametrize(
    ("gap", "noise", "verdict"),
    [(0.1, 0.05, "holds"), (-0.1, 0.05, "does not hold"), (0.0, 0.3, "cannot be told")],
)
def test_a_claim_is_judged_by_its_interval(gap: float, noise: float, verdict: str) -> None:
    claim = Claim("first before second", "first", "second", TILE, "score", BOTH)
    found = judge(claim, make_scores(gap, noise))
    assert found is not None
    assert say_verdict(found[2]) == verdict
    (row,) = tabulate([claim], make_scores(gap, noise))[1:]
    assert row[2] == "3.7% against 9.1%"
    assert row[-1] == verdict


@pytest.mark.parametrize("measure", ["slowdown", "volatility", "seconds"])
def test_of_some_measures_less_is_better(measure: str) -> None:
    claim = Claim("first before second", "first", "second", TILE, measure)
    found = judge(claim, make_scores(-0.1, 0.01, measure))
    assert found is not None
    assert found[2].value == pytest.approx(0.1, abs=0.02)
    assert say_verdict(found[2]) == "holds"


def test_a_claim_of_which_a_half_is_missing_has_no_row() -> None:
    one = make_scores(0.1, 0.1).filter(pl.col("system") == "first")
    claim = Claim("first before second", "first", "second", TILE)
    assert judge(claim, one) is None
    assert judge(dataclasses.replace(claim, collections=LAYOUT), make_scores(0.1, 0.1)) is None
    assert len(tabulate(CLAIMS, pl.DataFrame())) == 1


def test_the_volatility_is_the_spread_of_the_last_ten_scores() -> None:
    curve = Curve()
    assert curve.volatility is None
    for step, score in enumerate([0.9, *np.linspace(0.5, 0.59, 10)]):
        curve(step, 11, score=float(score))
    curve(12, 12)  # an epoch without a score
    assert curve.volatility == pytest.approx(0.09)
    assert len(curve.seconds) == 11


def test_a_fit_that_is_asked_for_otherwise_is_another_file(tmp_path: Path) -> None:
    settings = find_experiment("layout_tgraph_001").ranker
    fit = Fit("net", settings, LAYOUT[0], 0, 0, 6.0)
    longer = with_training(settings, epochs=3)
    assert longer.ranker.training.epochs == 3
    others = [
        dataclasses.replace(fit, settings=longer),
        dataclasses.replace(fit, seconds=7.0),
        dataclasses.replace(fit, patient=True),
        dataclasses.replace(fit, fold=1),
    ]
    assert len({fit.file, *(other.file for other in others)}) == 5
    pl.DataFrame({"system": ["net"]}).write_parquet(tmp_path / fit.file)
    assert len(read_parts([fit, *others], tmp_path)) == 1
    assert read_parts(others, tmp_path).is_empty()


def test_every_claim_can_be_fitted() -> None:
    fits = list_fits(CLAIMS, 6.0, 1)
    assert len({fit.file for fit in fits}) == len(fits)
    for fit in {fit.name: fit for fit in fits}.values():
        fit.settings.build(0)
