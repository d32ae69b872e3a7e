"""No model ever predicts a graph that it has seen; runs resume and end the same."""

import os
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np
import polars as pl
import pytest

from solution.data.folders import find_files
from solution.domain import predictions
from solution.domain.collection import LAYOUT, NAMES
from solution.domain.dividing import choose_configs
from solution.domain.graph import Graph
from solution.experiments.base import Experiment
from solution.features.preparation import Preparation
from solution.models.base import RankerSettings
from solution.models.nothing import NothingRanker
from solution.runs.folder import Run
from solution.runs.job import read_job
from solution.runs.record import open_run
from solution.store.preparing import prepare_store
from solution.store.store import Store
from solution.system.errors import InputError
from solution.system.report import Report, silent
from solution.training import fit, forecast
from solution.training.jobs import find_backlog
from solution.training.opening import save_split
from solution.training.out_of_fold import run_experiments
from solution.training.plan import Plan, make_plan
from tests.conftest import REPOSITORY
from tests.made.graphs import make_layout_graph, write_graph
from tests.processes import TRAINING, run_cold

EXPERIMENTS = REPOSITORY / "tests" / "made" / "experiments"


@dataclass
class Witness:
    """What the models of an experiment were shown and asked, in order."""

    seen: list[set[tuple[str, str]]] = field(default_factory=list)
    asked: list[list[tuple[str, str]]] = field(default_factory=list)
    shown: dict[tuple[str, str], int] = field(default_factory=dict)  # configurations of a graph
    labelled: list[str] = field(default_factory=list)  # graphs that it was to predict, with labels


WITNESSES: list[Witness] = []


class WitnessRanker(NothingRanker):
    """Predicts nothing, but remembers every graph that it was fitted or stopped on."""

    def __init__(self, witness: Witness) -> None:
        self.witness = witness

    def fit(
        self, graphs: Sequence[Graph], validation: Sequence[Graph], report: Report = silent
    ) -> "WitnessRanker":
        self.witness.seen.append({graph.architecture for graph in [*graphs, *validation]}
                                 | {graph.key for graph in [*graphs, *validation]})  # type: ignore[arg-type]  # fmt: skip
        self.witness.asked.append([])
        return self

    def predict(self, graph: Graph) -> np.ndarray:
        self.witness.asked[-1].append((*graph.key, graph.architecture))  # type: ignore[arg-type]
        self.witness.shown[graph.key] = graph.num_configs
        self.witness.labelled += [graph.name] if graph.runtimes is not None else []
        return super().predict(graph)


@dataclass(frozen=True)
class WitnessSettings(RankerSettings):
    number: int

    def build(self, seed: int) -> WitnessRanker:
        return WitnessRanker(WITNESSES[self.number])


def witness_of(witness: Witness) -> Experiment:
    """The experiment that it watches."""
    return Experiment("witness", NAMES, WitnessSettings(WITNESSES.index(witness)))


def run_witness(
    folder: Path, store: Store, scheme: Literal["architecture", "graph"]
) -> tuple[Witness, Plan, Run]:
    witness = Witness()
    WITNESSES.append(witness)
    experiment = witness_of(witness)
    plan = make_plan(store, scheme, num_folds=4)
    with open_run(folder, {"experiments": {}}) as run:
        save_split(plan, run)
        run_experiments(find_backlog([experiment], plan, run), plan, run)
    return witness, plan, run


@pytest.mark.parametrize("scheme", ["architecture", "graph"])
def test_no_model_predicts_what_it_has_seen(
    scheme: Literal["architecture", "graph"], tmp_path: Path, sample_store: Store
) -> None:
    witness, plan, run = run_witness(tmp_path / "run", sample_store, scheme)
    assert len(witness.seen) == 4 * len(NAMES)
    for seen, asked in zip(witness.seen, witness.asked, strict=True):
        assert seen
        for collection, graph, architecture in asked:  # type: ignore[misc]
            assert (collection, graph) not in seen
            is_test = not plan.rows(collection, pl.col("graph") == graph)["labelled"].any()
            if scheme == "architecture" and not is_test:
                assert architecture not in seen
    frame = predictions.read(run.predictions("witness", "out_of_fold"))
    labelled = plan.graphs.filter("labelled")
    assert frame.select("collection", "graph").n_unique() == len(labelled)
    folds = frame.join(labelled, on=["collection", "graph"])
    assert (folds["fold"] == folds["fold_right"]).all()


def test_a_model_is_shown_the_configurations_that_are_scored(
    tmp_path: Path, sample_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the test split all, out of fold no others: a score may depend on the list. No labels."""
    for module in (fit, forecast):
        monkeypatch.setattr(module, "MAX_CONFIGS", 20)
    monkeypatch.setattr(choose_configs, "__defaults__", (20,))
    witness, plan, run = run_witness(tmp_path / "run", sample_store, "architecture")
    for key, split, configs in plan.graphs.select(
        pl.concat_list("collection", "graph"), "split", "configs"
    ).rows():
        assert witness.shown[tuple(key)] == (configs if split == "test" else min(configs, 20))
    assert max(witness.shown.values()) > 20
    assert not witness.labelled
    scored = sum(len(pl.read_parquet(path)) for path in run.folder.rglob("jobs/**/*.parquet"))
    found = forecast.forecast([witness_of(witness)], plan, 1)
    assert sum(line.predictions for line in found) == scored


def test_early_stopping_and_fitting_share_no_graph(tmp_path: Path, sample_store: Store) -> None:
    _, plan, run = run_witness(tmp_path / "run", sample_store, "architecture")
    named = pl.concat_str("collection", "graph", separator=":")
    groups = dict(plan.graphs.select(named, "group").rows())
    for collection in NAMES:
        for folder in run.jobs("witness", collection):
            record = read_job(folder)
            fitted = {groups[name] for name in record.fitted_on}
            stopped = {groups[name] for name in record.validated_on}
            assert fitted
            assert stopped
            assert not fitted & stopped


def prepare(folder: Path) -> Store:
    """The store of folder/data."""
    return prepare_store(find_files(folder / "data"), folder / "store", Preparation())


def describe_run(folder: Path, sample: Path) -> list[str]:
    """The arguments of `fastslow` in the folder above."""
    arguments = ["run", str(sample), "--limit"]
    arguments += ["--run", str(folder), "--folds", "2", "--recipe", "quick.toml"]
    for name in ("quick_layout_gnn", "quick_tile_gnn"):
        arguments += ["--experiment", str(EXPERIMENTS / f"{name}.py")]
    arguments += ["--experiment", "nothing_001"]
    recipe = folder.parent / "quick.toml"
    recipe.write_text('fallback = "nothing_001"\n[members]\nquick_tile_gnn = 1\n', "utf-8")
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
        return BrokenRanker(self.scores)


class BrokenRanker(NothingRanker):
    def __init__(self, scores: tuple[float, ...]) -> None:
        self.scores = scores

    def predict(self, graph: Graph) -> np.ndarray:
        return np.array(self.scores, np.float32)


@pytest.mark.parametrize(
    ("scores", "message"), [((float("nan"),) * 12, "NaN"), ((0.0,) * 3, "shape")]
)
def test_a_model_with_unusable_scores_is_not_kept(
    scores: tuple[float, ...], message: str, tmp_path: Path
) -> None:
    write_graph(make_layout_graph(0, labelled=False), tmp_path / "data", "test")
    plan = make_plan(prepare(tmp_path), "graph", num_folds=2)
    experiment = Experiment("broken", LAYOUT, BrokenSettings(scores))
    with open_run(tmp_path / "run", {"experiments": {}}) as run:
        save_split(plan, run)
        with pytest.raises(InputError, match=message):
            run_experiments(find_backlog([experiment], plan, run), plan, run)
    assert count_jobs(tmp_path / "run") == 0
