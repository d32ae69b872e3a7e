"""What a search goes on with, and what it makes of models that fail."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from solution.data.folders import find_files
from solution.experiments.base import Experiment, find_experiment
from solution.features.preparation import Preparation
from solution.models.table_ranker import TableSettings
from solution.runs import record
from solution.store.preparing import prepare_store
from solution.store.store import Store
from solution.system.errors import InputError
from solution.training.plan import make_plan
from solution.tuning.search import Search, show_study
from solution.tuning.study_picture import draw_study
from tests.made.graphs import make_tile_graph, write_graph

OWN = '''
"""A ridge of one's own."""

from dataclasses import dataclass

import numpy as np

from solution import Experiment, TableSettings


@dataclass(frozen=True)
class Ridge(TableSettings):
    lambda_l2: float = 10.0

    def fit_rows(self, rows, ranks):
        penalty = self.lambda_l2 * np.eye(rows.shape[1])
        return np.linalg.solve(rows.T @ rows + penalty, rows.T @ ranks)

    def score_rows(self, rows, weights):
        return rows @ weights


EXPERIMENT = Experiment(name="mine", collections=("tile:xla",), ranker=Ridge())
'''


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """Kernels of two structures, so that there is something to hold out."""
    folder = tmp_path_factory.mktemp("searched")
    for seed in range(8):
        graph = make_tile_graph(seed, name=f"kernel_{seed}", configs=12)
        edges = graph.edges[:-1] if seed % 2 else graph.edges
        write_graph(dataclasses.replace(graph, edges=edges), folder / "data")
    return prepare_store(find_files(folder / "data"), folder / "store", Preparation())


def make_search(store: Store, experiment: Experiment, folder: Path) -> Search:
    return Search(experiment, make_plan(store, "architecture", 2), folder, "random", prune=False)


def write_own(folder: Path, old: str = "", new: str = "") -> Experiment:
    (folder / "mine.py").write_text(OWN.replace(old, new) if old else OWN, encoding="utf-8")
    return find_experiment(str(folder / "mine.py"))


def test_a_search_of_other_code_is_refused(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The settings say nothing of how rows are scored, nor of the package."""
    make_search(store, write_own(tmp_path), tmp_path / "search").run(1)
    changed = write_own(tmp_path, "return rows @", "return -rows @")
    with pytest.raises(InputError, match="holds a search with another source"):
        make_search(store, changed, tmp_path / "search").run(2)
    same = make_search(store, write_own(tmp_path), tmp_path / "search")
    assert len(same.run(2).trials) == 2
    monkeypatch.setattr("solution.tuning.search.fingerprint_code", lambda: "changed")
    with pytest.raises(InputError, match=f"other code .{record.fingerprint_code()}, now changed"):
        same.run(3)


@dataclasses.dataclass(frozen=True)
class Diverging(TableSettings):
    """Scores are NaN where the penalty is not that of the experiment as it is."""

    lambda_l2: float = 10.0
    sound: float = 10.0

    def fit_rows(self, rows: np.ndarray, ranks: np.ndarray) -> np.ndarray:
        return np.asarray(rows.T @ ranks)

    def score_rows(self, rows: np.ndarray, weights: np.ndarray) -> np.ndarray:
        return np.asarray(rows @ weights * (1 if self.lambda_l2 == self.sound else np.nan))


def test_a_trial_that_diverged_is_never_the_best(store: Store, tmp_path: Path) -> None:
    """Scores that are NaN would be ranked in the order of the file."""
    experiment = Experiment("mine", ("tile:xla",), Diverging())
    study = make_search(store, experiment, tmp_path / "search").run(3)
    assert [trial.state.name for trial in study.trials] == ["COMPLETE", "PRUNED", "PRUNED"]
    assert study.best_trial.number == 0
    shown = str(show_study(study).title)
    assert "2 more given up early (2 with scores that are NaN or infinite)" in shown
    draw_study(study, tmp_path / "study.png")
    with pytest.raises(InputError, match="the scores of all 2 trials are NaN or infinite"):
        lost = Experiment("lost", ("tile:xla",), Diverging(sound=0.0))
        make_search(store, lost, tmp_path / "lost").run(2)
