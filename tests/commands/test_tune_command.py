"""A search of settings: it is found again after a stop, and its best settings are an experiment."""

import dataclasses
import subprocess
import sys
from pathlib import Path
from typing import ClassVar

import numpy as np
import optuna
import pytest

from solution.data.folders import find_files
from solution.domain.collection import TILE
from solution.experiments.base import Experiment, find_experiment
from solution.features.preparation import Preparation
from solution.models.linear import LinearRanker, RidgeSettings
from solution.models.nothing import NothingSettings
from solution.models.tile.tile_gnn import TileGnnSettings
from solution.store.preparing import prepare_store
from solution.system.errors import InputError
from solution.training.plan import Plan, make_plan
from solution.tuning.experiment_text import write_experiment
from solution.tuning.search import Search, show_study
from solution.tuning.space import SPACE, find_searched, plain_value, with_values
from solution.tuning.study_picture import make_figure
from tests.conftest import REPOSITORY, FastSlow, assert_done, assert_refused
from tests.made.graphs import make_tile_graph, write_graph
from tests.readable import assert_apart

EXPERIMENT = """
from solution.experiments.base import Experiment
from solution.models.trees.lightgbm_ranker import LightGBMSettings

EXPERIMENT = Experiment(
    name="quick_trees",
    collections=("tile:xla",),
    ranker=LightGBMSettings(rounds=5, min_data_in_leaf=5),
    seeds=(3, 4),
)
"""


@pytest.fixture
def data(tmp_path: Path) -> Path:
    for seed in range(8):
        write_graph(make_tile_graph(seed, name=f"kernel_{seed}", configs=12), tmp_path / "data")
    # Another structure, so that there is something to hold out.
    for seed in range(4):
        graph = make_tile_graph(seed, name=f"other_{seed}", configs=12)
        write_graph(dataclasses.replace(graph, edges=graph.edges[:-1]), tmp_path / "data")
    (tmp_path / "quick_trees.py").write_text(EXPERIMENT, encoding="utf-8")
    return tmp_path


def read_study(folder: Path, name: str = "quick_trees") -> optuna.Study:
    path = folder / "tuning" / name / "study.db"
    return optuna.load_study(study_name=name, storage=f"sqlite:///{path}")


def test_a_search_goes_on_and_writes_its_best(fastslow: FastSlow, data: Path) -> None:
    call = ("tune", "quick_trees.py", "--data", "data", "--folds", "2", "--sampler", "random")
    assert_done(fastslow(*call, "--trials", "2"))
    before = {trial.number: trial.params for trial in read_study(data).trials}
    assert before[0]["num_leaves"] == 15  # the experiment as it is
    said = assert_done(fastslow(*call, "--trials", "4"))
    study = read_study(data)
    after = {trial.number: trial.params for trial in study.trials}
    assert len(after) == 4
    assert {number: after[number] for number in before} == before
    assert len({str(params) for params in after.values()}) == 4  # none is drawn twice
    assert f"{study.best_value:.4f}" in said
    best = find_experiment(str(data / "tuning" / "quick_trees" / "quick_trees_tuned.py"))
    assert best.seeds == (3, 4)
    for name, value in study.best_params.items():
        assert getattr(best.ranker, name) == pytest.approx(value, rel=1e-3)
    assert_lint_is_content(data / "tuning" / "quick_trees" / "quick_trees_tuned.py")
    assert (data / "tuning" / "quick_trees" / "study.png").read_bytes().startswith(b"\x89PNG")


def assert_lint_is_content(path: Path) -> None:
    """As for a file of this project."""
    rules = f"--config={REPOSITORY / 'pyproject.toml'}"
    for words in (["check", "--no-cache"], ["format", "--check", "--no-cache"]):
        command = [sys.executable, "-m", "ruff", *words, rules, str(path)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + path.read_text()


@pytest.mark.parametrize("name", ["layout_gnn_001", "tile_gnn_001", "tile_lightgbm_001"])
def test_what_is_found_is_written_as_people_would(name: str, tmp_path: Path) -> None:
    searched = find_experiment(name)
    values = {"training.learning_rate": 0.0012345678901234567} if "gnn" in name else {}
    items = {item.name: item for item in find_searched(searched.ranker)}
    plain = {key: plain_value(items[key], value) for key, value in values.items()}
    settings = with_values(searched.ranker, plain)
    path = tmp_path / "found.py"
    path.write_text(write_experiment("found", searched, settings, f"{name}: 0.9."), "utf-8")
    assert_lint_is_content(path)
    found = find_experiment(str(path))
    assert found.ranker == settings
    assert (found.seeds, found.train_jointly) == (searched.seeds, searched.train_jointly)
    assert "0.001235" in path.read_text() or not values


def test_other_settings_are_refused(
    fastslow: FastSlow, fastslow_here: FastSlow, data: Path
) -> None:
    call = ("tune", "quick_trees.py", "--data", "data", "--trials", "1", "--out", "search")
    assert_done(fastslow(*call, "--folds", "2"))
    (data / "quick_trees.py").write_text(EXPERIMENT.replace("rounds=5", "rounds=6"))
    assert_refused(fastslow_here(*call, "--folds", "2"), "another ranker")


def test_what_cannot_be_searched_is_refused_before_the_data_is_prepared(
    fastslow_here: FastSlow, data: Path
) -> None:
    """A collection that the experiment is not for, and what is for a cluster."""
    other = fastslow_here("tune", "tile_lightgbm_001", "--collection", "layout:xla:random")
    assert_refused(other, "tile_lightgbm_001", "layout:xla:random", "tile:xla")
    for words in (("--gpu-share", "0.5"), ("--address", "auto")):
        cluster = fastslow_here("tune", "quick_trees.py", "--data", "data", *words)
        assert_refused(cluster, "executor ray")
    assert not (data / "tuning").exists() and not (data / "stores").exists()


def test_what_has_nothing_to_search_is_refused() -> None:
    with pytest.raises(InputError, match="no setting"):
        find_searched(NothingSettings())


def test_what_cannot_be_divided_is_refused(fastslow_here: FastSlow, tmp_path: Path) -> None:
    """Kernels of one architecture: none may be held out."""
    for seed in range(4):
        write_graph(make_tile_graph(seed, name=f"kernel_{seed}"), tmp_path / "data")
    (tmp_path / "quick_trees.py").write_text(EXPERIMENT, encoding="utf-8")
    call = ("tune", "quick_trees.py", "--data", "data", "--trials", "1", "--folds", "2")
    assert_refused(fastslow_here(*call), "tile:xla")


def test_nested_settings_are_searched_and_replaced() -> None:
    settings = TileGnnSettings()
    names = {item.name for item in find_searched(settings)}
    assert {"width", "training.learning_rate"} <= names <= set(SPACE)
    changed = with_values(settings, {"width": 32, "training.loss": "list_mle"})
    assert (changed.width, changed.training.loss) == (32, "list_mle")
    assert changed.training.epochs == settings.training.epochs


@pytest.mark.parametrize("seed", [0, 60, 83, 116])  # the last three have narrow ranges
def test_the_numbers_of_every_setting_can_be_read(seed: int) -> None:
    """Whole numbers are written as such, and no number prints over the next."""
    sampler = optuna.samplers.RandomSampler(seed=seed)
    study = optuna.create_study(study_name="made", direction="maximize", sampler=sampler)
    generator = np.random.default_rng(0)
    for _ in range(8):
        trial = study.ask(SPACE)
        study.tell(trial, float(generator.random()))
    figure = make_figure(study)
    assert_apart(figure)
    _, *panels = figure.axes
    assert [axes.get_xlabel() for axes in panels] == list(SPACE)
    for axes in panels:
        assert not any("10^" in label.get_text() for label in axes.get_xticklabels())
    few = optuna.create_study(study_name="few", direction="maximize")
    few.add_trials(study.trials[:3])
    assert len(make_figure(few).axes) == 1  # three dots say nothing of a setting


@dataclasses.dataclass(frozen=True)
class EndingSettings(RidgeSettings):
    """Settings of which one fit ends in an error."""

    num_leaves: int = 15
    fits: ClassVar[int] = 0
    last: ClassVar[int]
    error: ClassVar[BaseException]

    def build(self, seed: int) -> LinearRanker:
        type(self).fits += 1
        if type(self).fits == self.last:
            raise self.error
        return super().build(seed)


class StoppedSettings(EndingSettings):
    """The first fit is interrupted, as by Ctrl-C."""

    last, error = 1, KeyboardInterrupt()


class FailingThirdSettings(EndingSettings):
    """The second trial fails; a trial has two fits."""

    last, error = 3, ValueError("the third fit")


@pytest.fixture
def plan(data: Path) -> Plan:
    store = prepare_store(find_files(data / "data"), data / "store", Preparation())
    return make_plan(store, "architecture", 2)


def test_the_experiment_itself_is_tried_again_after_a_stop(data: Path, plan: Plan) -> None:
    search = Search(Experiment("stopped", TILE, StoppedSettings()), plan, data / "search")
    with pytest.raises(KeyboardInterrupt):
        search.run(2)
    study = search.run(2)
    (trial,) = [t for t in study.trials if t.value is not None and t.params == {"num_leaves": 15}]
    assert trial.number == 1
    assert "Trial 1" in str(show_study(study).caption)
    assert len(search.run(3).trials) == 4  # it is not tried a third time


def test_trials_that_were_done_beside_one_that_failed_are_kept(data: Path, plan: Plan) -> None:
    experiment = Experiment("stopped", TILE, FailingThirdSettings())
    search = Search(experiment, plan, data / "tuning" / "stopped", at_once=3)
    with pytest.raises(ValueError, match="the third"):
        search.run(3)
    done = [trial for trial in read_study(data, "stopped").trials if trial.value]
    assert [trial.number for trial in done] == [0]
