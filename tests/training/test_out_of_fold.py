"""No model ever predicts a graph that it has seen; jobs are whole, or are trained again alike."""

import dataclasses
import os
import shutil
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from solution.data.folders import find_files
from solution.domain import predictions
from solution.domain.collection import LAYOUT, NAMES, NLP, TILE, XLA
from solution.domain.dividing import choose_configs
from solution.domain.graph import Graph
from solution.experiments.base import Experiment, find_experiment
from solution.features.preparation import Preparation
from solution.features.propagation import state_table
from solution.features.propagation.backend import Backend
from solution.models.base import RankerSettings
from solution.models.layout.cost_kernel import CostKernelSettings
from solution.models.layout.cost_net import CostNetSettings
from solution.models.linear import RidgeSettings
from solution.models.nothing import NothingRanker
from solution.runs.folder import Run
from solution.runs.job import read_job
from solution.runs.record import open_run
from solution.store.preparing import prepare_store
from solution.store.store import Store
from solution.system import shelf
from solution.system.errors import InputError
from solution.system.report import Report, silent
from solution.system.sealing import find_seal
from solution.training import fit, forecast
from solution.training.executors.local import LocalExecutor
from solution.training.fit import split_training
from solution.training.folds import NO_FOLD, Scheme
from solution.training.jobs import EVERYTHING, Choice, find_backlog, list_jobs, list_missing
from solution.training.opening import save_split
from solution.training.out_of_fold import run_experiments
from solution.training.plan import Plan, make_plan
from tests.conftest import REPOSITORY
from tests.made.graphs import make_layout_graph, write_graph
from tests.processes import TRAINING, run_cold

EXPERIMENTS = REPOSITORY / "tests" / "made" / "experiments"
SEEN: list[list[Graph]] = []  # what each fit of a WitnessRanker was shown, since `train` began
ASKED: list[list[Graph]] = []  # and what each was asked


class WitnessRanker(NothingRanker):
    """Predicts nothing, but remembers every graph that it was fitted or stopped on."""

    def fit(
        self, graphs: Sequence[Graph], validation: Sequence[Graph], report: Report = silent
    ) -> "WitnessRanker":
        SEEN.append([*graphs, *validation])
        ASKED.append([])
        return self

    def predict(self, graph: Graph) -> np.ndarray:
        ASKED[-1].append(graph)
        return super().predict(graph)


@dataclass(frozen=True)
class WitnessSettings(RankerSettings):
    def build(self, seed: int) -> WitnessRanker:
        return WitnessRanker()


WITNESS = Experiment("witness", NAMES, WitnessSettings())


def train(
    folder: Path, experiment: Experiment, plan: Plan, choice: Choice = EVERYTHING, workers: int = 1
) -> Run:
    SEEN.clear()
    ASKED.clear()
    with open_run(folder, {"experiments": {}}) as run:
        save_split(plan, run)
        backlog = find_backlog([experiment], plan, run, choice)
        run_experiments(backlog, plan, run, LocalExecutor(workers))
    return run


def test_state_tables_of_large_graphs_are_computed_once(
    tmp_path: Path, sample_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For all folds, seeds and cost models; the predictions are those without files."""
    computed: list[Graph] = []
    describe = state_table._describe_states

    def count(graph: Graph, backend: Backend) -> state_table.StateTable:
        computed.append(graph)
        return describe(graph, backend)

    monkeypatch.setattr(state_table, "_describe_states", count)
    monkeypatch.setenv("FASTSLOW_TABLES", str(tmp_path / "tables"))
    monkeypatch.setattr(shelf, "LEFT_FREE", 0)
    plan = make_plan(sample_store, "graph", num_folds=2)
    training = dataclasses.replace(
        CostNetSettings().training, epochs=1, max_configs=9, configs_per_graph=4
    )
    models = {"net": CostNetSettings(backend="cpu", training=training),
              "kernel": CostKernelSettings(backend="cpu", max_configs=9, cosines=8)}  # fmt: skip
    scores, counts = [], []
    for many in (1 << 62, 0):
        monkeypatch.setattr(state_table, "MANY", many)
        computed.clear()
        for name, settings in models.items():
            experiment = Experiment(name, ("layout:nlp:default",), settings, seeds=(0, 1))
            run = train(tmp_path / f"{name}{many}", experiment, plan)
            scores.append(predictions.read(run.predictions(name, "out_of_fold")))
        counts.append(len(computed))
    assert scores[0].equals(scores[2]) and scores[1].equals(scores[3])
    # two tables of a graph: of the configurations to learn from, and of those to predict
    assert counts[1] <= 2 * len(plan.graphs.filter(collection="layout:nlp:default")) < counts[0]


@pytest.mark.parametrize("scheme", ["architecture", "graph"])
def test_no_model_predicts_what_it_saw(scheme: Scheme, tmp_path: Path, sample_store: Store) -> None:
    """And early stopping and fitting share no graph."""
    plan = make_plan(sample_store, scheme, num_folds=3)
    run = train(tmp_path / "run", WITNESS, plan)
    assert len(SEEN) == 3 * len(NAMES)
    labelled = plan.graphs.filter("labelled")
    known = set(labelled.select("collection", "graph").rows())
    for seen, asked in zip(SEEN, ASKED, strict=True):
        keys, architectures = ({g.key for g in seen}, {g.architecture for g in seen})
        assert keys
        for graph in asked:
            assert graph.key not in keys
            is_free = scheme == "graph" or graph.key not in known
            assert is_free or graph.architecture not in architectures
    frame = predictions.read(run.predictions("witness", "out_of_fold"))
    assert frame.select("collection", "graph").n_unique() == len(labelled)
    folds = frame.join(labelled, on=["collection", "graph"])
    assert (folds["fold"] == folds["fold_right"]).all()
    named = pl.concat_str("collection", "graph", separator=":")
    groups = dict(plan.graphs.select(named, "group").rows())
    for folder in run.jobs("witness"):
        record = read_job(folder)
        fitted = {groups[name] for name in record.fitted_on}
        stopped = {groups[name] for name in record.validated_on}
        assert fitted and stopped
        assert not fitted & stopped


def test_a_model_is_shown_the_configurations_that_are_scored(
    tmp_path: Path, sample_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the test split all, out of fold no others: a score may depend on the list. No labels."""
    for module in (fit, forecast):
        monkeypatch.setattr(module, "MAX_CONFIGS", 20)
    monkeypatch.setattr(choose_configs, "__defaults__", (20,))
    plan = make_plan(sample_store, "architecture", num_folds=3)
    run = train(tmp_path / "run", WITNESS, plan)
    asked = [graph for one in ASKED for graph in one]
    shown = {graph.key: graph.num_configs for graph in asked}
    for row in plan.graphs.iter_rows(named=True):
        wanted = row["configs"] if row["split"] == "test" else min(row["configs"], 20)
        assert shown[row["collection"], row["graph"]] == wanted
    assert max(shown.values()) > 20
    assert all(graph.runtimes is None for graph in asked)
    scored = sum(len(pl.read_parquet(path)) for path in run.folder.rglob("jobs/**/*.parquet"))
    found = forecast.forecast([WITNESS], plan, 1)
    assert sum(line.predictions for line in found) == scored


def prepare(folder: Path) -> Store:
    """The store of folder/data."""
    return prepare_store(find_files(folder / "data"), folder / "store", Preparation())


def describe_run(folder: Path, sample: Path) -> list[str]:
    """The arguments of `fastslow` in the folder above."""
    recipe = folder.parent / "quick.toml"
    recipe.write_text('fallback = "nothing_001"\n[members]\nquick_tile_gnn = 1\n', "utf-8")
    arguments = ["run", str(sample), "--limit"]
    arguments += ["--run", str(folder), "--folds", "2", "--recipe", recipe.name]
    nets = [str(EXPERIMENTS / f"{name}.py") for name in ("quick_layout_gnn", "quick_tile_gnn")]
    for experiment in (*nets, "nothing_001"):
        arguments += ["--experiment", experiment]
    return arguments


def count_jobs(folder: Path) -> int:
    return len(list(folder.glob("*/jobs/*/fold-*")))


def test_killed_run_resumes_and_ends_with_the_same_bytes(tmp_path: Path, sample: Path) -> None:
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    # With a hash seed of its own, and one model after the other.
    done = run_cold(*describe_run(whole, sample), "--workers", "1", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    arguments = describe_run(killed, sample)
    process = TRAINING.start(*arguments, cwd=tmp_path)
    while count_jobs(killed) < 3 and process.poll() is None:
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    count = count_jobs(killed)
    assert 3 <= count < count_jobs(whole)
    assert not (killed / "submission.csv").exists()
    before = {path: path.stat().st_mtime_ns for path in killed.glob("*/jobs/*/fold-*/job.json")}
    done = TRAINING.run(*arguments, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert all(path.stat().st_mtime_ns == time_ for path, time_ in before.items())
    files = [path.relative_to(whole) for path in whole.rglob("*.parquet")]
    assert len(files) > 10
    for name in [*files, Path("submission.csv")]:
        assert (killed / name).read_bytes() == (whole / name).read_bytes(), name
    assert not list(killed.rglob(".partial-*"))


def test_labels_of_test_graphs_are_never_used(tmp_path: Path) -> None:
    """Somebody may have them; they are still not trained on."""
    for seed in range(4):
        write_graph(make_layout_graph(seed, name=f"known_{seed}"), tmp_path / "data")
    write_graph(make_layout_graph(9, name="secret"), tmp_path / "data", "test")
    plan = make_plan(prepare(tmp_path), "graph", num_folds=2)
    assert "secret" not in plan.graphs.filter("labelled")["graph"].to_list()
    assert "secret" not in plan.labels()["graph"].to_list()
    assert "secret" in plan.test_questions("layout:xla:random")["graph"].to_list()


@dataclass(frozen=True)
class BrokenSettings(RankerSettings):
    scores: tuple[float, ...]
    learns = False

    def build(self, seed: int) -> "BrokenRanker":
        ranker = BrokenRanker()
        ranker.scores = np.array(self.scores, np.float32)
        return ranker


class BrokenRanker(NothingRanker):
    scores: np.ndarray

    def predict(self, graph: Graph) -> np.ndarray:
        return self.scores


@pytest.mark.parametrize(
    ("scores", "message"), [((float("nan"),) * 12, "NaN"), ((0.0,) * 3, "shape")]
)
def test_bad_scores_are_not_kept(scores: tuple[float, ...], message: str, tmp_path: Path) -> None:
    write_graph(make_layout_graph(0, labelled=False), tmp_path / "data", "test")
    plan = make_plan(prepare(tmp_path), "graph", num_folds=2)
    experiment = Experiment("broken", LAYOUT, BrokenSettings(scores))
    with pytest.raises(InputError, match=message):
        train(tmp_path / "run", experiment, plan)
    assert count_jobs(tmp_path / "run") == 0


RIDGE = Experiment("ridge", TILE, RidgeSettings(max_configs=5, grid=(1.0,)), seeds=(0, 1))


@pytest.fixture(scope="module")
def plan(sample_store: Store) -> Plan:
    return make_plan(sample_store, "architecture", num_folds=2, limit=True)


@pytest.fixture(scope="module")
def trained(plan: Plan, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trained") / "run"
    train(folder, RIDGE, plan)
    return folder


def contents(run: Run) -> dict[str, bytes]:
    return {part: run.predictions("ridge", part).read_bytes() for part in predictions.PARTS}


def rewrite(path: Path, change: Callable[[bytes], bytes]) -> None:
    path.write_bytes(change(path.read_bytes()))


def flip_a_bit(content: bytes) -> bytes:
    half = len(content) // 2
    return content[:half] + bytes([content[half] ^ 1]) + content[half + 1 :]


FORGED = (b'"seed": 0', b'"seed": 1')
# Each is given a job's folder and that of the other seed.
DAMAGES: dict[str, Callable[[Path, Path], object]] = {
    "other record": lambda job, _: (job / "job.json").write_text("[]"),
    "forged record": lambda job, _: rewrite(job / "job.json", lambda x: x.replace(*FORGED)),
    "cut": lambda job, _: rewrite(job / "test.parquet", lambda x: x[:-10]),
    "flipped": lambda job, _: rewrite(job / "out_of_fold.parquet", flip_a_bit),
    "empty": lambda job, _: shutil.rmtree(job) or job.mkdir(),
    "a file": lambda job, _: shutil.rmtree(job) or job.write_text("no folder"),
    "the other seed": lambda job, other: shutil.rmtree(job) or shutil.copytree(other, job),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_what_is_not_whole_is_said_and_trained_again(
    damage: str, plan: Plan, trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(trained, tmp_path / "run")
    run = Run(tmp_path / "run")
    expected = contents(run)
    one, other = (job.folder(run) for job in list_jobs(RIDGE, plan)[:2])
    DAMAGES[damage](one, other)
    assert [job.folder(run) for job in list_missing([RIDGE], plan, run)] == [one]
    assert contents(train(run.folder, RIDGE, plan)) == expected
    assert read_job(one).seed == 0
    assert "trained again" in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize("name", ["graphs.parquet", "labels.parquet", "labels.parquet.seal"])
@pytest.mark.parametrize("how", ["deleted", "cut"])
def test_a_damaged_split_is_drawn_again_and_the_same(
    name: str, how: str, plan: Plan, trained: Path, tmp_path: Path
) -> None:
    shutil.copytree(trained, tmp_path / "run")
    run = Run(tmp_path / "run")
    split = [path for table in (run.graphs, run.labels) for path in (table, find_seal(table))]
    before = {path.name: path.read_bytes() for path in split}
    path = run.folder / name
    path.unlink() if how == "deleted" else path.write_bytes(path.read_bytes()[:20])
    train(run.folder, RIDGE, plan)
    assert before == {path.name: path.read_bytes() for path in split}


JOINTLY = Experiment("jointly", XLA, WitnessSettings(), seeds=(0, 1), train_jointly=(XLA,))


def list_seen() -> list[tuple[str, ...]]:
    """The collections that each fit was shown."""
    return [tuple(sorted({graph.collection.name for graph in seen})) for seen in SEEN]


@pytest.fixture(scope="module")
def whole(sample_store: Store) -> Plan:
    return make_plan(sample_store, "architecture", num_folds=2)


def test_a_fold_is_left_out_of_all_collections(whole: Plan) -> None:
    for group in (XLA, NLP):
        for fold in range(2):
            shown = pl.concat(split_training(whole, group, fold, seed=0))
            assert set(shown["collection"]) == set(group)
            for collection in group:
                held_out = whole.held_out(collection, fold)
                assert len(held_out)
                assert not set(held_out["group"]) & set(shown["group"])


def test_one_fit_ranks_both_collections(plan: Plan, tmp_path: Path) -> None:
    run = train(tmp_path / "run", JOINTLY, plan)
    assert list_seen() == [XLA] * 4  # two folds, two seeds
    frame = predictions.read(run.predictions("jointly", "out_of_fold"))
    labelled = plan.graphs.filter("labelled", pl.col("collection").is_in(XLA))
    assert frame.select("collection", "graph").n_unique() == len(labelled)


def test_who_trains_one_collection_gets_the_model_of_both(plan: Plan, tmp_path: Path) -> None:
    run = train(tmp_path / "run", JOINTLY, plan, Choice((XLA[1],)))
    assert list_seen() == [XLA] * 4
    assert all(read_job(folder).collections == XLA for folder in run.jobs("jointly"))
    assert run.jobs("jointly", XLA[0]) == run.jobs("jointly", XLA[1]) == run.jobs("jointly")


def test_a_collection_that_cannot_be_divided_has_a_model_of_its_own(whole: Plan) -> None:
    """It learns from all graphs and ranks the test graphs; the other has one a fold."""
    default, random = XLA
    (group,) = whole.rows(default, pl.col("fold") == 0)["group"].unique()[:1]
    kept = (pl.col("collection") != default) | (pl.col("group") == group) | (pl.col("fold") < 0)
    few = dataclasses.replace(whole, graphs=whole.graphs.filter(kept))
    jobs = list_jobs(dataclasses.replace(JOINTLY, seeds=(0,)), few)
    models = [((default,), NO_FOLD), ((random,), 0), ((random,), 1)]
    assert [(job.collections, job.fold) for job in jobs] == models


def test_any_number_of_workers_trains_each_model_once(
    plan: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that counts its fits, in whatever process: two folds, one model each."""
    counts = tmp_path / "fits"
    counts.mkdir()
    monkeypatch.setenv("COUNTED_FITS", str(counts))
    experiment = find_experiment(str(EXPERIMENTS / "counted_fits.py"))
    train(tmp_path / "run", experiment, plan, workers=3)
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
    assert list_seen() == [XLA[:1]] * 4
