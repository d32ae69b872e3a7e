"""Students learn from an ensemble that has not seen their fold; refits learn from all graphs."""

import shutil
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from ensembles.recipe import Recipe, choose_recipe
from solution.data.folders import find_files
from solution.domain import predictions
from solution.domain.dividing import choose_configs
from solution.domain.graph import Graph
from solution.experiments.base import Experiment, find_experiment
from solution.features.preparation import Preparation
from solution.models.catalogue import load_model
from solution.models.trees.lightgbm_ranker import PointwiseSettings
from solution.runs.folder import Run
from solution.runs.job import MODEL, NO_FOLD, read_job
from solution.serving.bundle import load_bundle
from solution.serving.packing import pack
from solution.serving.record import read_bundle_record
from solution.store.preparing import prepare_store
from solution.store.store import Store
from solution.system.errors import InputError
from solution.system.files import write_sealed
from solution.training.distilling import STUDENTS as OURS
from solution.training.distilling import Teacher, find_taught, list_refits
from solution.training.executors.local import LocalExecutor
from solution.training.jobs import find_backlog
from solution.training.opening import open_experiments
from solution.training.out_of_fold import run_experiments
from solution.training.plan import Plan
from solution.training.refitting import distill, refit, train_refits
from tests.made.graphs import make_layout_graph, make_tile_graph, write_graph

TILE, LAYOUT = "tile:xla", "layout:xla:random"
TREES = PointwiseSettings(rounds=8, min_data_in_leaf=2)
MEMBERS = (Experiment("one", (TILE, LAYOUT), TREES), Experiment("two", (TILE,), TREES, seeds=(3,)))
ENSEMBLE = Recipe(name="both", method="z_score", members={"one": 1.0, "two": 2.0})
STUDENT = Experiment("student", (TILE, LAYOUT), TREES)
STUDENTS = Recipe(name="students", method="z_score", members={"student": 1.0})


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    folder = tmp_path_factory.mktemp("data")
    for seed in range(8):
        split = "train" if seed < 6 else "test"
        write_graph(make_tile_graph(seed, configs=10, name=f"kernel_{seed}"), folder, split)
        write_graph(make_layout_graph(seed, configs=10, name=f"program_{seed}"), folder, split)
    return prepare_store(find_files(folder), tmp_path_factory.mktemp("store"), Preparation())


@pytest.fixture(scope="module")
def trained(store: Store, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run") / "run"
    with open_experiments(MEMBERS, store, folder, scheme="graph", folds=3) as (plan, run):
        run_experiments(find_backlog(MEMBERS, plan, run), plan, run, LocalExecutor(1))
    return folder


@pytest.fixture
def run(trained: Path, tmp_path: Path) -> Run:
    return Run(Path(shutil.copytree(trained, tmp_path / "run")))


@pytest.fixture(scope="module")
def distilled(trained: Path, store: Store, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same, with students that two workers have trained."""
    folder = Path(shutil.copytree(trained, tmp_path_factory.mktemp("distilled") / "run"))
    distill(Run(folder), ENSEMBLE, store, [STUDENT], LocalExecutor(2))
    return folder


def load(store: Store, name: str) -> Graph:
    (graph,) = store.load(store.graphs.filter(graph=name), Plan(store.graphs, store).cache)
    return graph


def test_a_student_is_taught_by_models_that_have_not_seen_its_fold(run: Run, store: Store) -> None:
    plan = Plan(predictions.read(run.graphs), store)
    for fold in (0, 1, 2):
        used = {place for _, place, *_ in Teacher(run, ENSEMBLE, fold)._members}
        assert len(used) == 3  # of each experiment and collection
        assert all(read_job(place.parent).fold == fold for place in used)
        assert not any(
            f"{row['collection']}:{row['graph']}" in read_job(place.parent).fitted_on
            for place in used
            for row in plan.held_out(TILE, fold).iter_rows(named=True)
        )
    assert len(Teacher(run, ENSEMBLE, NO_FOLD)._members) == 9


def test_what_is_taught_does_not_depend_on_refits(run: Run, store: Store) -> None:
    folds = Teacher(run, ENSEMBLE, NO_FOLD)._members
    plan = Plan(predictions.read(run.graphs), store)
    jobs = [job for experiment in MEMBERS for job in list_refits(experiment, plan)]
    train_refits(jobs, plan, run, LocalExecutor(1))
    places = [place for name in ENSEMBLE.names() for place in run.jobs(name)]
    assert any(read_job(place).fold == NO_FOLD for place in places)
    assert Teacher(run, ENSEMBLE, NO_FOLD)._members == folds
    assert not {fold for *_, fold, _ in Teacher(run, ENSEMBLE, 1)._members} - {1}
    # What could not be divided has no others.
    for place in places:
        if read_job(place).fold != NO_FOLD and LAYOUT in read_job(place).collections:
            shutil.rmtree(place)
    left = Teacher(run, ENSEMBLE, NO_FOLD)._members
    assert {fold for _, _, taught, fold, _ in left if LAYOUT in taught} == {NO_FOLD}
    assert {fold for _, _, taught, fold, _ in left if TILE in taught} == {0, 1, 2}


def test_what_is_taught_is_the_order_of_the_ensemble(run: Run, store: Store) -> None:
    graph = load(store, "kernel_7")
    (taught,) = Teacher(run, ENSEMBLE, NO_FOLD).teach([graph])
    ranked = load_bundle(pack(run, ENSEMBLE, run.folder.parent / "bundle")).rank(graph)
    assert (taught.runtimes > 0).all()
    orders = [np.argsort(one, kind="stable") for one in (taught.runtimes, ranked.scores)]
    assert np.array_equal(*orders)


def test_layouts_that_nobody_has_timed_are_taught_as_well(
    run: Run, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("solution.training.distilling.OWN_LAYOUTS", 6)
    monkeypatch.setattr("solution.training.distilling.MADE_LAYOUTS", 5)
    graph = load(store, "program_7")
    (taught,) = Teacher(run, ENSEMBLE, NO_FOLD).teach([graph])
    own = graph.layouts.expand()[choose_configs(graph.key, graph.num_configs, 6)]
    layouts = taught.layouts.expand()
    assert np.array_equal(layouts[:6], own)
    assert 6 < len(layouts) <= 11
    ranked = load_bundle(pack(run, ENSEMBLE, run.folder.parent / "bundle")).rank(taught)
    assert np.array_equal(np.argsort(taught.runtimes, kind="stable"), ranked.order)


def test_students_are_scored_apart_and_shipped_once(
    distilled: Path, store: Store, tmp_path: Path
) -> None:
    run = Run(Path(shutil.copytree(distilled, tmp_path / "run")))
    alone = next(place for place in run.jobs(STUDENT.name) if read_job(place).fold == 1)
    together = (alone / "out_of_fold.parquet").read_bytes()
    shutil.rmtree(alone)
    distill(run, ENSEMBLE, store, [STUDENT], LocalExecutor(1))
    assert (alone / "out_of_fold.parquet").read_bytes() == together
    before = {path: path.stat().st_mtime_ns for path in run.folder.rglob("job.json")}
    distill(run, ENSEMBLE, store, [STUDENT])  # nothing is done twice
    assert before == {path: path.stat().st_mtime_ns for path in run.folder.rglob("job.json")}
    packed = pack(run, STUDENTS, tmp_path / "b", refitted=True, teacher=ENSEMBLE)
    record = read_bundle_record(packed, packed)  # trees are no students that a bundle would load
    assert {member.fold for member in record.members} == {NO_FOLD}
    assert len(record.members) == 2  # a collection each
    assert record.teacher is not None
    assert record.teacher.gain.graphs == 12
    assert set(record.scores) == set(record.teacher.scores) == {TILE, LAYOUT}
    card = (tmp_path / "b" / "README.md").read_text()
    assert "`both`" in card


def test_a_refit_learns_from_all_labelled_graphs(run: Run, store: Store, tmp_path: Path) -> None:
    experiments = [find_experiment("tile_pointwise_001")]
    recipe = Recipe(name="r", members={"tile_pointwise_001": 1.0})
    with open_experiments(experiments, store, run.folder, scheme="graph", folds=3) as (plan, _):
        run_experiments(find_backlog(experiments, plan, run), plan, run, LocalExecutor(1))
    refit(run, recipe, store, executor=LocalExecutor(1))
    bundle = load_bundle(pack(run, recipe, tmp_path / "b", refitted=True))
    (member,) = bundle.record.members
    (place,) = [p for p in run.jobs("tile_pointwise_001") if read_job(p).fold == NO_FOLD]
    job = read_job(place)
    assert len({*job.fitted_on, *job.validated_on}) == 6
    assert load_model(place / MODEL).seed == member.seed
    # Those of the folds are still the usual bundle, and both claim the same scores.
    usual = load_bundle(pack(run, recipe, tmp_path / "c")).record
    assert {m.fold for m in usual.members} == {0, 1, 2}
    assert usual.scores == bundle.record.scores
    assert "no such" in (tmp_path / "b" / "README.md").read_text()


def test_rankers_of_ones_own_are_not_refitted(run: Run, store: Store) -> None:
    with pytest.raises(InputError, match="two is"):
        refit(run, ENSEMBLE, store, executor=LocalExecutor(1))


@dataclass(frozen=True)
class OwnTrees(PointwiseSettings):
    """Of a kind that the catalogue does not know."""


def test_rankers_of_ones_own_teach_nobody(store: Store, tmp_path: Path) -> None:
    """It is said before a student is trained."""
    own = Experiment("own", (TILE,), OwnTrees(rounds=5, min_data_in_leaf=2))
    with open_experiments([own], store, tmp_path / "run", scheme="graph", folds=2) as (plan, run):
        run_experiments(find_backlog([own], plan, run), plan, run, LocalExecutor(1))
    with pytest.raises(InputError, match="no students"):
        distill(run, Recipe(name="mine", members={"own": 1.0}), store, [STUDENT])
    assert not (run.folder / "student").exists()


def test_another_teacher_teaches_anew(distilled: Path, store: Store, tmp_path: Path) -> None:
    """And where it knows one collection, the student is of that one alone."""
    run = Run(Path(shutil.copytree(distilled, tmp_path / "run")))
    (shipped,) = (run.folder / "student" / "jobs" / "tile-xla").glob(f"fold-{NO_FOLD}-*/model")
    before = {path.name: path.read_bytes() for path in shipped.iterdir()}
    renamed = ENSEMBLE.model_copy(update={"name": "the same"})
    distill(run, renamed, store, [STUDENT], LocalExecutor(1))
    assert {path.name: path.read_bytes() for path in shipped.iterdir()} == before
    # Its only member is where it falls back, too.
    other = Recipe(name="other", members={"two": 1.0}, fallback="two")
    distill(run, other, store, [STUDENT], LocalExecutor(1))
    assert {path.name: path.read_bytes() for path in shipped.iterdir()} != before
    asked = predictions.read(run.predictions("student", "test"))
    assert asked["collection"].unique().to_list() == [TILE]
    with pytest.raises(InputError, match="strange weighs"):
        find_taught(run, Recipe(name="strange", members={"nobody": 1.0}))


def test_students_are_no_members_of_their_teacher(run: Run) -> None:
    record = run.record()
    students = {OURS[0].name: {}, **record["settings"]["experiments"]}
    record["settings"]["experiments"] = students
    write_sealed(record, run.folder / "run.json")
    assert OURS[0].name in run.experiments()
    assert choose_recipe(run, "equal_weights").names() == ["one", "two"]
