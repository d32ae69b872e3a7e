"""What a search goes on with, and what it makes of models that fail."""

import dataclasses
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import optuna
import psutil
import pytest
from sqlalchemy import event

from solution.cli import EXIT_ENDED, KEPT
from solution.data.folders import find_files
from solution.domain.collection import TILE
from solution.experiments.base import Experiment, find_experiment
from solution.features.preparation import Preparation
from solution.models.table_ranker import TableSettings
from solution.runs import record
from solution.store.preparing import prepare_store
from solution.store.store import Store
from solution.system.errors import InputError
from solution.training.plan import make_plan
from solution.tuning.search import Search, show_study
from solution.tuning.study_file import STUDY, keep, open_storage, working_copy
from solution.tuning.study_picture import draw_study
from tests.commands.test_tune_command import assert_lint_is_content
from tests.made.graphs import make_tile_graph, write_graph
from tests.made.guarded import largest_file

OWN = '''\
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


def write_own(folder: Path, *changes: tuple[str, str]) -> Experiment:
    text = OWN
    for old, new in changes:
        assert old in text
        text = text.replace(old, new, 1)
    (folder / "mine.py").write_text(text, encoding="utf-8")
    return find_experiment(str(folder / "mine.py"))


def test_a_search_of_other_code_is_refused(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The settings say nothing of how rows are scored, nor of the package."""
    make_search(store, write_own(tmp_path), tmp_path / "search").run(1)
    changed = write_own(tmp_path, ("return rows @", "return -rows @"))
    with pytest.raises(InputError, match="another source"):
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


@pytest.mark.parametrize("form", ["", "AFTER = 1; EXPERIMENT", "if True:\n    EXPERIMENT"])
def test_the_best_of_ones_own_can_be_loaded(form: str, store: Store, tmp_path: Path) -> None:
    """It is one file, which needs the other no more, and may be searched again."""
    renamed = "import Experiment as E\nfrom solution import Table"
    changes = ("EXPERIMENT = Experiment", f"{form} = E"), ("import Experiment, Table", renamed)
    experiment = write_own(tmp_path, *(changes if form else ()))
    search = make_search(store, experiment, tmp_path / "search")
    study = search.run(2)
    path = search.best_experiment(study)
    (tmp_path / "mine.py").unlink()
    found = find_experiment(str(path))
    assert (found.name, found.collections) == ("mine_tuned", TILE)
    assert found.ranker.lambda_l2 == pytest.approx(study.best_params["lambda_l2"], rel=1e-3)  # type: ignore[attr-defined]
    assert f"# mine with the best of 2 trials: {study.best_value:.4f}." in path.read_text()
    again = make_search(store, found, tmp_path / "again")
    best = find_experiment(str(again.best_experiment(again.run(1))))
    assert best.ranker.lambda_l2 == found.ranker.lambda_l2  # type: ignore[attr-defined]
    if not form:
        assert_lint_is_content(path)


def test_the_best_brings_what_it_imports_from_beside_it(store: Store, tmp_path: Path) -> None:
    (tmp_path / "my_sign.py").write_text("SIGN = 1\n", encoding="utf-8")
    experiment = write_own(tmp_path, ("import numpy", "import my_sign\nimport numpy"))
    search = make_search(store, experiment, tmp_path / "search")
    path = search.best_experiment(search.run(1))
    for name in ("mine.py", "my_sign.py"):
        (tmp_path / name).unlink()
    load = f"from solution.experiments.base import find_experiment; find_experiment({str(path)!r})"
    subprocess.run([sys.executable, "-c", load], check=True)


@pytest.mark.parametrize("settings", [
    ["blocks: object = None", "width: tuple = (1, 2)", 'dropout: float = float("nan")'],
    ["dropout: bool = True", 'width: str = "wide"', 'rest: float = float("inf")'],
])  # fmt: skip
def test_a_setting_that_is_only_called_alike_is_not_searched(
    settings: list[str], store: Store, tmp_path: Path
) -> None:
    own = "lambda_l2: float = 10.0\n"
    experiment = write_own(tmp_path, (own, own + "".join(f"    {held}\n" for held in settings)))
    search = make_search(store, experiment, tmp_path / "search")
    study = search.run(1)
    assert list(study.best_params) == ["lambda_l2"]
    find_experiment(str(search.best_experiment(study)))


def test_a_trial_that_diverged_is_never_the_best(store: Store, tmp_path: Path) -> None:
    """Scores that are NaN would be ranked in the order of the file."""
    experiment = Experiment("mine", TILE, Diverging())
    study = make_search(store, experiment, tmp_path / "search").run(3)
    assert [trial.state.name for trial in study.trials] == ["COMPLETE", "PRUNED", "PRUNED"]
    assert study.best_trial.number == 0
    shown = str(show_study(study).title)
    assert "or infinite" in shown
    draw_study(study, tmp_path / "study.png")
    with pytest.raises(InputError, match="2.*infinite"):
        lost = Experiment("lost", TILE, Diverging(sound=0.0))
        make_search(store, lost, tmp_path / "lost").run(2)


@pytest.mark.parametrize(("condition", "meant"), [
    ("True", "ValueError: it failed .tried on kernel_. before the training"),
    ("self.lambda_l2 != 10", "ValueError: it failed .tried with lambda_l2="),
])  # fmt: skip
def test_a_model_of_ones_own_that_fails_is_one_line(
    condition: str, meant: str, store: Store, tmp_path: Path
) -> None:
    slip = f"        if {condition}:\n            raise ValueError('it failed')\n        penalty"
    experiment = write_own(tmp_path, ("        penalty", slip))
    with pytest.raises(InputError, match=f"mine.py, line 16, in fit_rows: {meant}"):
        make_search(store, experiment, tmp_path / "search").run(2)


def start_search(store: Store, tmp_path: Path) -> subprocess.Popen[str]:
    """One in two workers, when these are about to start."""
    write_own(tmp_path, ("        penalty", "        time.sleep(1)\n        penalty"),
              ("import numpy", "import time; import numpy"))  # fmt: skip
    words = f"tune mine.py --data {store.folder} --folds 2 --trials 4 --workers 2 --out search"
    command = [sys.executable, "-m", "solution", *words.split()]
    process = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    until = time.monotonic() + 60
    while len(psutil.Process(process.pid).children()) < 2 and time.monotonic() < until:
        time.sleep(0.01)  # their server, and what keeps the names of what they share
    return process


def test_stopped_while_workers_start_it_ends_with_a_sentence(store: Store, tmp_path: Path) -> None:
    """A worker that was half started would say after it that it could not begin."""
    process = start_search(store, tmp_path)
    process.send_signal(signal.SIGINT)
    _, error = process.communicate(timeout=60)
    assert process.returncode == 130
    assert error.splitlines()[-1] == KEPT


def test_asked_to_end_it_leaves_no_copy_and_nothing_shared(store: Store, tmp_path: Path) -> None:
    process = start_search(store, tmp_path)
    assert (tmp_path / "search" / ".partial-study.db").exists()
    process.terminate()
    _, error = process.communicate(timeout=60)
    assert process.returncode == EXIT_ENDED
    assert "leaked" not in error
    assert not list((tmp_path / "search").glob(".partial-*"))


@pytest.mark.parametrize("name", ["what?", "a%20b", "{name}", "x=#1?y=2", "plain"])
def test_a_study_lies_in_its_folder_however_that_is_called(name: str, tmp_path: Path) -> None:
    folder = tmp_path / name
    folder.mkdir()
    with working_copy(folder) as copy:
        study = optuna.create_study(storage=open_storage(copy), study_name="made")
        study.tell(study.ask(), 0.5)
        keep(copy, folder)
    assert {path.name for path in folder.iterdir()} == {STUDY, f"{STUDY}.seal"}
    assert [path.name for path in tmp_path.iterdir()] == [name]
    stored = optuna.load_study(storage=open_storage(folder / STUDY), study_name="made")
    assert stored.best_value == 0.5


def test_a_disk_that_gets_full_is_said_of_the_study(tmp_path: Path) -> None:
    """SQLite has a limit of its own, which it tells as it tells a full disk."""

    def limit(connection: sqlite3.Connection, _: object) -> None:
        connection.execute("PRAGMA max_page_count = 1")  # no more than there are

    full = pytest.raises(OSError, match=f"No space left on device: '{tmp_path / STUDY}'")
    with full, working_copy(tmp_path) as copy:
        storage = open_storage(copy)
        study = optuna.create_study(storage=storage, study_name="made")
        event.listen(storage.engine, "connect", limit)
        study.set_user_attr("long", "x" * 100_000)
    assert not list(tmp_path.iterdir())


def test_a_study_that_grows_past_a_limit_is_named(tmp_path: Path) -> None:
    """Of a quota and of the largest file SQLite makes the error of a disk that fails."""
    refused = pytest.raises(InputError, match="I/O error")
    with refused, working_copy(tmp_path) as copy:
        study = optuna.create_study(storage=open_storage(copy), study_name="made")
        with largest_file(copy.stat().st_size):
            study.set_user_attr("long", "x" * 100_000)
    assert not list(tmp_path.iterdir())
