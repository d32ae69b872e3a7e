"""How pairs of experiments become verdicts, on scores made up by hand."""

import dataclasses
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from benchmarks.ablations import (
    judge,
    list_fits,
    reach_together,
    restrict,
    tabulate,
    tabulate_opa,
)
from benchmarks.claims import CLAIMS, Claim
from benchmarks.paper_report import say_verdict
from benchmarks.parts import Curve, Fit, read_parts, with_training
from solution.domain.collection import LAYOUT, TILE
from solution.experiments.base import find_experiment

BOTH = ("study_tile_lightgbm", "study_tile_gnn")


def make_scores(gap: float, noise: float, measure: str = "score") -> pl.DataFrame:
    """40 kernels, eight folds: `first` is better than `second` by the gap in the mean."""
    generator = np.random.default_rng(0)
    rows = []
    for graph in range(40):
        common = {"collection": TILE[0], "fold": graph % 8, "seed": 0, "graph": f"k{graph}"}
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


@pytest.mark.parametrize("measure", ["slowdown", "volatility", "megabytes"])
def test_of_some_measures_less_is_better(measure: str) -> None:
    claim = Claim("first before second", "first", "second", TILE, measure)
    found = judge(claim, make_scores(-0.1, 0.01, measure))
    assert found is not None
    assert found[2].value == pytest.approx(0.1, abs=0.02)
    assert say_verdict(found[2]) == "holds"


def test_pairs_are_told_by_collection_beside_what_is_reported() -> None:
    rows = [
        {"system": "layout_residual_attention_001", "collection": place, "graph": f"p{number}"}
        | {"OPA": 0.5 + 0.1 * number}
        for place in LAYOUT
        for number in (1, 3)
    ]
    header, row = tabulate_opa(pl.DataFrame(rows))
    assert header[1:] == list(LAYOUT)
    assert row[1:] == ["0.700 (71.4%)", "0.700 (57.1%)", "0.700 (55%)", "0.700 (85%)"]
    assert tabulate_opa(pl.DataFrame(rows[:2]))[1][1:] == ["0.700 (71.4%)", "", "", ""]
    assert len(tabulate_opa(pl.DataFrame())) == 1


def test_a_claim_of_which_a_half_is_missing_has_no_row() -> None:
    one = make_scores(0.1, 0.1).filter(pl.col("system") == "first")
    claim = Claim("first before second", "first", "second", TILE)
    assert judge(claim, one) is None
    assert judge(dataclasses.replace(claim, collections=LAYOUT), make_scores(0.1, 0.1)) is None
    assert len(tabulate(CLAIMS, pl.DataFrame())) == len(tabulate([claim], one)) == 1
    some = make_scores(0.1, 0.1).with_columns(collection=pl.lit(LAYOUT[0]))
    (row,) = tabulate([dataclasses.replace(claim, collections=LAYOUT)], some)[1:]
    assert row[1] == "score, xla:default"


def test_the_time_is_told_to_what_both_reach() -> None:
    slow = {"curve_scores": [0.1, 0.2, 0.4], "curve_seconds": [1.0, 2.0, 3.0]}
    quick = {"curve_scores": [0.2, 0.3, 0.25], "curve_seconds": [0.1, 0.2, 0.3]}
    assert reach_together(quick, slow) == (0.2, 3.0)
    assert reach_together(slow, quick) == (3.0, 0.2)
    rows = [
        {"system": name, "collection": TILE[0], "fold": fold, "seed": 0, "graph": f"k{graph}"}
        | {key: [own + fold for own in values] for key, values in curve.items()}
        for name, curve in (("first", quick), ("second", slow))
        for fold in (0, 1)
        for graph in (0, 1)
    ]
    claim = Claim("first before second", "first", "second", TILE, "reach")
    found = judge(claim, pl.DataFrame(rows))
    assert found is not None
    assert found[:2] == (pytest.approx(0.7), pytest.approx(3.5))
    assert found[2].value == pytest.approx(2.8)
    (row,) = tabulate([claim], pl.DataFrame(rows))[1:]
    assert row[-2:] == ["+2.8 (of 2 fits)", "cannot be told"]


def test_seconds_an_epoch_are_those_of_the_fit_over_its_epochs() -> None:
    rows = [
        {"system": name, "collection": TILE[0], "fold": 0, "seed": 0, "seconds": 6.0}
        | {"epochs": epochs, "graph": f"k{graph}"}
        for name, epochs in (("first", 12), ("second", 3))
        for graph in (0, 1)
    ]
    found = judge(Claim("", "first", "second", TILE, "epoch"), pl.DataFrame(rows))
    assert found is not None
    assert found[:2] == (0.5, 2.0)


def test_the_volatility_is_how_much_the_last_ten_scores_move() -> None:
    curve = Curve()
    assert curve.volatility is None
    for step, score in enumerate([0.9, *np.linspace(0.5, 0.59, 10)]):
        curve(step, 11, score=float(score))
    curve(12, 12)  # an epoch without a score
    assert curve.volatility == pytest.approx(np.std(np.linspace(0.5, 0.59, 10)))
    assert len(curve.seconds) == 11


def test_a_fit_that_is_asked_for_otherwise_is_another_file(tmp_path: Path) -> None:
    settings = find_experiment("layout_tgraph_001").ranker
    fit = Fit("net", settings, LAYOUT[0], 0, 0, 6.0)
    longer = with_training(settings, epochs=3)
    assert longer.ranker.training.epochs == 3
    others = [
        dataclasses.replace(fit, settings=longer),
        dataclasses.replace(fit, seconds=7.0),
        dataclasses.replace(fit, way="patient"),
        dataclasses.replace(fit, fold=1),
    ]
    assert len({fit.file, *(other.file for other in others)}) == 5
    pl.DataFrame({"system": ["net"]}).write_parquet(tmp_path / fit.file)
    assert len(read_parts([fit, *others], tmp_path)) == 1
    assert read_parts(others, tmp_path).is_empty()


def test_claims_may_be_of_some_collections_alone() -> None:
    claims = [
        Claim("one", "first", "second", LAYOUT),
        Claim("other", "first", "second", LAYOUT[:1]),
        Claim("tile", "first", "second", TILE),
    ]
    found = [claim.collections for claim in restrict(claims, [LAYOUT[1], LAYOUT[2]])]
    assert found == [(LAYOUT[1], LAYOUT[2]), LAYOUT[:1], TILE]
    scores = make_scores(0.1, 0.05).with_columns(collection=pl.lit(LAYOUT[1]))
    claim = Claim("one", "first", "second", LAYOUT[1:2])
    assert tabulate([claim], scores)[1][1] == f"score, {LAYOUT[1].removeprefix('layout:')}"


def test_every_claim_can_be_fitted() -> None:
    fits = list_fits(CLAIMS, 6.0, 1)
    assert len({fit.file for fit in fits}) == len(fits)
    for fit in {fit.name: fit for fit in fits}.values():
        fit.settings.build(0)
