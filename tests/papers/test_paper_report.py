"""The published systems with structures held out and with families held out."""

from pathlib import Path

import numpy as np
import polars as pl

from benchmarks.paper_report import OURS, compare, tabulate, write_report
from benchmarks.papers import list_fits
from benchmarks.parts import Fit, Fitting
from solution.domain.collection import LAYOUT, NAMES, TILE
from solution.domain.collection import collection as find_collection
from solution.experiments.base import find_experiment
from solution.store.store import Store
from solution.training.plan import make_plan

SYSTEMS = ("study, LightGBM", "study, least squares", "our net")
COSTS = {"system": "our net", "kind": "tile", "parameters": 9, "configs_per_second": 8.0,
         "megabytes": 7.0}  # fmt: skip
MARKS = "<!-- written by make papers -->\nold\n<!-- end of what make papers wrote -->\n"


def make_scores(families: int, lost: float = 0.1) -> pl.DataFrame:
    """Scores of 12 programs in each collection; with relatives held out each is lower by `lost`."""
    rows = [
        {"system": system, "collection": name, "scheme": scheme, "fold": 0, "seed": 0,
         "budget": 6.0, "graph": f"graph {graph}", "score": score, "OPA": 0.7, "ListMLE": 3.0,
         "group": f"{find_collection(name).source}/{graph * groups // 12}", "slowdown": 1 - score,
         "seconds": 6.0, "epochs": 12}
        for scheme, groups, less in (("architecture", 12, 0.0), ("family", families, lost))
        for number, system in enumerate(SYSTEMS)
        for name in NAMES
        for graph in range(12)
        for score in [0.5 + 0.1 * number + 0.01 * graph - less]
    ]  # fmt: skip
    return pl.DataFrame(rows)


def test_tables_have_both_columns(tmp_path: Path) -> None:
    for name in ("docs/results.md", "solution/experiments/LOG.md"):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text(MARKS, encoding="utf-8")
    write_report(make_scores(6), pl.DataFrame([COSTS]), tmp_path)
    text = (tmp_path / "docs/results.md").read_text(encoding="utf-8")
    headers = [line for line in text.splitlines() if line.startswith(("| layout", "| tile"))]
    assert all("| Mean (95%) | Relatives held out (95%) |" in line for line in headers)
    assert len(headers) == 2 and "old" not in text
    ours = [line.split(" | ") for line in text.splitlines() if f"**{OURS[0]}**" in line]
    for cells, first in zip(ours, (5, 1), strict=True):
        assert cells[first].startswith("0.755 (") and cells[first + 1].startswith("0.655 (")
    log = (tmp_path / "solution/experiments/LOG.md").read_text(encoding="utf-8")
    assert log.count("Relatives held out (95%)") == 3


def test_intervals_are_over_structures_and_over_families() -> None:
    """Six groups of two graphs tell less than twelve graphs."""
    (_, row, *_) = tabulate(make_scores(6, lost=0.0), TILE, SYSTEMS)
    ends = [[float(end) for end in cell[7:-1].split(" to ")] for cell in row[1:3]]
    assert np.ptp(ends[1]) > np.ptp(ends[0]) > 0


def test_there_is_no_interval_of_few_families() -> None:
    header, row, *_ = tabulate(make_scores(4), LAYOUT, SYSTEMS)
    cells = dict(zip(header, row, strict=True))
    assert "(" in cells["Mean (95%)"] and cells["Relatives held out (95%)"] == "0.455"


def test_a_table_of_structures_alone_has_no_column_of_families() -> None:
    """Such as that of `make papers-patient`."""
    scores = make_scores(6).filter(scheme="architecture")
    assert not any("elatives" in cell for cell in tabulate(scores, LAYOUT, SYSTEMS)[0])


def test_orders_are_checked_by_both_schemes() -> None:
    found = compare(make_scores(6))
    (order,) = [row for row in found if row[:2] == ["study, LightGBM", "study, least squares"]]
    assert order[2].startswith("-0.100 (") and order[4].startswith("-0.100 (")
    assert order[3] == order[5] == "does not hold"


def test_both_folds_by_family_are_fitted() -> None:
    fits = list_fits([6.0], seeds=1, folds=1)
    held = {(fit.scheme, fit.fold) for fit in fits}
    assert held == {("architecture", 0), ("family", 0), ("family", 1)}
    assert len({fit.file for fit in fits}) == len(fits)
    assert len(fits) == 3 * sum(fit.scheme == "architecture" for fit in fits)


def test_a_fit_by_family_holds_out_whole_families(sample_store: Store) -> None:
    settings = find_experiment("tile_study_ridge_001").ranker
    work = Fitting({True: sample_store.folder, False: sample_store.folder})
    fit = Fit("ridge", settings, "tile:xla", 1, 0, 0.0, scheme="family")
    rows = work(fit)
    plan = make_plan(sample_store, "family", 2)
    families = dict(plan.rows("tile:xla").select("graph", "family").iter_rows())
    held = {families[graph] for graph in rows["graph"]}
    assert len(held) > 1 and set(rows["group"]) == {f"tile/{family}" for family in held}
    assert not held & set(plan.training("tile:xla", 1)["family"])
    assert set(rows["graph"]) == {graph for graph, family in families.items() if family in held}
