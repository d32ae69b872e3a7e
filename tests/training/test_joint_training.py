"""One model for collections that are learned jointly: trained once, and never of the fold."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Self

import polars as pl
import pytest

from solution.domain import predictions
from solution.domain.collection import LAYOUT, NLP, XLA
from solution.domain.graph import Graph
from solution.experiments.base import Experiment, find_experiment
from solution.models.linear import LinearRanker, RidgeSettings
from solution.runs.folder import Run
from solution.runs.job import read_job
from solution.runs.record import open_run
from solution.store.store import Store
from solution.system.errors import InputError
from solution.system.report import Report, silent
from solution.training.executors.local import LocalExecutor
from solution.training.fit import split_training
from solution.training.folds import NO_FOLD
from solution.training.jobs import EVERYTHING, Choice, find_backlog, list_jobs
from solution.training.opening import save_split
from solution.training.out_of_fold import run_experiments
from solution.training.plan import Plan, make_plan
from tests.conftest import REPOSITORY

MADE = REPOSITORY / "tests" / "made" / "experiments"
FITS: list[list[str]] = []  # the collections that each fit was shown


@dataclasses.dataclass(frozen=True)
class CountedSettings(RidgeSettings):
    max_configs: int = 10

    def build(self, seed: int) -> "CountedRidge":
        return CountedRidge(self, seed)


class CountedRidge(LinearRanker):
    """Ridge that says what it was shown."""

    def fit(
        self, graphs: Sequence[Graph], validation: Sequence[Graph], report: Report = silent
    ) -> Self:
        FITS.append(sorted({graph.collection.name for graph in graphs}))
        return super().fit(graphs, validation, report)


JOINTLY = Experiment("ridge", XLA, CountedSettings(), seeds=(0, 1), train_jointly=(XLA,))


@pytest.fixture(scope="module")
def plan(sample_store: Store) -> Plan:
    return make_plan(sample_store, "architecture", num_folds=2)


def train(folder: Path, experiment: Experiment, plan: Plan, choice: Choice = EVERYTHING) -> Run:
    FITS.clear()
    with open_run(folder, {"experiments": {}}) as run:
        save_split(plan, run)
        run_experiments(find_backlog([experiment], plan, run, choice), plan, run)
    return run


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
    run = train(tmp_path / "run", JOINTLY, plan)
    assert [list(XLA)] * 4 == FITS  # two folds, two seeds
    frame = predictions.read(run.predictions("ridge", "out_of_fold"))
    labelled = plan.graphs.filter("labelled", pl.col("collection").is_in(XLA))
    assert frame.select("collection", "graph").n_unique() == len(labelled)


def test_who_trains_one_collection_gets_the_model_that_ranks_both(
    plan: Plan, tmp_path: Path
) -> None:
    run = train(tmp_path / "run", JOINTLY, plan, Choice((XLA[1],)))
    assert [list(XLA)] * 4 == FITS
    assert all(read_job(folder).collections == XLA for folder in run.jobs("ridge"))
    assert run.jobs("ridge", XLA[0]) == run.jobs("ridge", XLA[1]) == run.jobs("ridge")


def test_a_collection_that_cannot_be_divided_has_a_model_of_its_own(plan: Plan) -> None:
    """It learns from all graphs and ranks the test graphs; the other has one a fold."""
    default, random = XLA
    (group,) = plan.rows(default, pl.col("fold") == 0)["group"].unique()[:1]
    kept = (pl.col("collection") != default) | (pl.col("group") == group) | (pl.col("fold") < 0)
    few = dataclasses.replace(plan, graphs=plan.graphs.filter(kept))
    jobs = list_jobs(dataclasses.replace(JOINTLY, seeds=(0,)), few)
    assert [(job.collections, job.fold) for job in jobs] == [
        ((default,), NO_FOLD),
        ((random,), 0),
        ((random,), 1),
    ]


@pytest.mark.parametrize("workers", [1, 3])
def test_any_number_of_workers_trains_each_model_once(
    workers: int, sample_store: Store, tmp_path: Path
) -> None:
    """A file that counts its fits, in whatever process: two folds, one model each."""
    experiment = find_experiment(str(MADE / "counted_fits.py"))
    counts = tmp_path / "fits"
    counts.mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COUNTED_FITS", str(counts))
        plan = make_plan(sample_store, "architecture", num_folds=2)
        with open_run(tmp_path / "run", {"experiments": {}}) as run:
            save_split(plan, run)
            run_experiments(
                find_backlog([experiment], plan, run), plan, run, LocalExecutor(workers)
            )
    assert len(list(counts.iterdir())) == 2 * 2


@pytest.mark.parametrize(
    "groups", [(LAYOUT,), (XLA, XLA[1:]), (XLA, NLP + NLP[:1])], ids=["sources", "groups", "twice"]
)
def test_groups_that_could_leak_or_overlap_are_refused(groups: tuple[tuple[str, ...], ...]) -> None:
    with pytest.raises(InputError, match="one source"):
        dataclasses.replace(JOINTLY, train_jointly=groups)


def test_a_collection_that_is_none_is_refused() -> None:
    with pytest.raises(InputError, match="not a collection"):
        dataclasses.replace(JOINTLY, train_jointly=(("layout:xla:radnom",),))


def test_data_of_one_collection_is_enough(plan: Plan, tmp_path: Path) -> None:
    graphs = plan.graphs.filter(collection=XLA[0])
    train(tmp_path / "run", JOINTLY, dataclasses.replace(plan, graphs=graphs))
    assert [[XLA[0]]] * 4 == FITS
