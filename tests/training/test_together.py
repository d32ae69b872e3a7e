"""One model for collections that are learned together: shared, the same, and never of the fold."""

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Self

import polars as pl
import pytest

from solution.domain import predictions
from solution.domain.collection import LAYOUT, NLP, XLA
from solution.domain.graph import Graph
from solution.experiments.base import Experiment
from solution.models.linear import LinearRanker, RidgeSettings
from solution.runs.folder import Run
from solution.runs.record import open_run
from solution.sessions.earlier_runs import select
from solution.store.store import Store
from solution.system.errors import InputError
from solution.system.report import Report, silent
from solution.training.fit import split_training
from solution.training.jobs import list_units, order
from solution.training.opening import save_plan
from solution.training.out_of_fold import run_experiments
from solution.training.plan import Plan, make_plan

FITS: list[list[str]] = []  # the collections that each fit was shown


@dataclasses.dataclass(frozen=True)
class CountedSettings(RidgeSettings):
    max_configs: int = 10

    def build(self, seed: int) -> "CountedRidge":
        return CountedRidge(self, seed)


class CountedRidge(LinearRanker):
    """Ridge that says what it was shown."""

    kinds = {"CountedSettings": CountedSettings}

    def fit(
        self, graphs: Sequence[Graph], validation: Sequence[Graph], report: Report = silent
    ) -> Self:
        FITS.append(sorted({graph.collection.name for graph in graphs}))
        return super().fit(graphs, validation, report)


TOGETHER = Experiment("ridge", XLA, CountedSettings(), seeds=(0, 1), together=(XLA,))


@pytest.fixture(scope="module")
def plan(sample_store: Store) -> Plan:
    return make_plan(sample_store, "architecture", num_folds=2)


def train(folder: Path, experiment: Experiment, plan: Plan, selected: Plan | None = None) -> Run:
    FITS.clear()
    with open_run(folder, {"experiments": {}}) as run:
        save_plan(plan, run)
        run_experiments([experiment], selected or plan, run)
    return run


def read_unit(run: Run, collection: str, fold: int, seed: int) -> list[bytes]:
    unit = run.unit("ridge", collection, fold, seed)
    return [(unit / f"{part}.parquet").read_bytes() for part in predictions.PARTS]


def test_a_fold_is_left_out_of_all_collections(plan: Plan) -> None:
    for group in (XLA, NLP):
        for fold in range(2):
            shown = pl.concat(split_training(plan, group, fold, seed=0))
            assert set(shown["collection"]) == set(group)
            for collection in group:
                held_out = plan.held_out(collection, fold)
                assert len(held_out)
                assert not set(held_out["group"]) & set(shown["group"])


def test_one_fit_ranks_both_collections(plan: Plan, tmp_path: Path) -> None:
    run = train(tmp_path / "run", TOGETHER, plan)
    assert [list(XLA)] * 4 == FITS  # two folds, two seeds
    frame = predictions.read(run.predictions("ridge", "out_of_fold"))
    labelled = plan.graphs.filter("labelled", pl.col("collection").is_in(XLA))
    assert frame.select("collection", "graph").n_unique() == len(labelled)


def test_a_collection_is_predicted_the_same_without_the_other(plan: Plan, tmp_path: Path) -> None:
    """In a session that trains one collection, or where a killed run has lost the other's model."""
    default, random = XLA
    whole = train(tmp_path / "whole", TOGETHER, plan)
    alone = train(tmp_path / "alone", TOGETHER, plan, select(plan, random))
    assert [sorted(XLA)] * 4 == FITS
    for fold, seed in ((0, 0), (0, 1), (1, 0), (1, 1)):
        assert read_unit(whole, random, fold, seed) == read_unit(alone, random, fold, seed)
        assert not alone.unit("ridge", default, fold, seed).exists()


def test_the_record_says_what_was_learned_from_and_whose_model_it_is(
    plan: Plan, tmp_path: Path
) -> None:
    default, random = XLA
    run = train(tmp_path / "run", TOGETHER, plan)
    first, second = (
        json.loads((run.unit("ridge", name, 0, 0) / "unit.json").read_text())
        for name in (default, random)
    )
    assert {name.rpartition(":")[0] for name in first["fitted_on"]} == set(XLA)
    assert "model_of" not in first
    assert second == first | {"model_of": default}


def test_every_model_is_trained_before_it_is_used_again(plan: Plan) -> None:
    units = list_units(TOGETHER, plan)
    ordered = order(units)
    assert sorted(map(units.index, ordered)) == list(range(len(units)))
    assert [unit.collection for unit in ordered] == [XLA[0]] * 4 + [XLA[1]] * 4


@pytest.mark.parametrize(
    "groups", [(LAYOUT,), (XLA, XLA[1:]), (XLA, NLP + NLP[:1])], ids=["sources", "groups", "twice"]
)
def test_groups_that_could_leak_or_overlap_are_refused(groups: tuple[tuple[str, ...], ...]) -> None:
    with pytest.raises(InputError, match="expected groups of one source"):
        dataclasses.replace(TOGETHER, together=groups)


def test_a_collection_that_is_none_is_refused() -> None:
    with pytest.raises(InputError, match="is not a collection"):
        dataclasses.replace(TOGETHER, together=(("layout:xla:radnom",),))


def test_data_of_one_collection_is_enough(plan: Plan, tmp_path: Path) -> None:
    graphs = plan.graphs.filter(collection=XLA[0])
    train(tmp_path / "run", TOGETHER, dataclasses.replace(plan, graphs=graphs))
    assert [[XLA[0]]] * 4 == FITS
