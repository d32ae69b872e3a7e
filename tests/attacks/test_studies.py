"""A search that is killed at any moment goes on with the trials that were done, and no others."""

import dataclasses
import random
import time
from pathlib import Path

import optuna
import pytest

from solution.system.sealing import check_seal
from tests.attacks.stories import begin, kill
from tests.made.graphs import make_tile_graph, write_graph
from tests.processes import TRAINING

EXPERIMENT = """
from solution.experiments.base import Experiment
from solution.models.trees.lightgbm_ranker import LightGBMSettings

EXPERIMENT = Experiment("mine", ("tile:xla",), LightGBMSettings(rounds=20, min_data_in_leaf=2))
"""
TRIALS, KILLS = 30, 8


def write_data(folder: Path) -> None:
    """Kernels of two structures, so that there is something to hold out."""
    for seed in range(8):
        graph = make_tile_graph(seed, name=f"kernel_{seed}")
        edges = graph.edges[:-1] if seed % 2 else graph.edges
        write_graph(dataclasses.replace(graph, edges=edges), folder)


def read_done(folder: Path) -> dict[int, dict[str, object]]:
    """The parameters of the trials that are on the disk, by number."""
    path = folder / "study.db"
    if not path.exists():
        return {}
    study = optuna.load_study(study_name="mine", storage=f"sqlite:///{path}")
    return {trial.number: trial.params for trial in study.trials if trial.value is not None}


@pytest.mark.slow
def test_a_killed_search_keeps_what_is_done(tmp_path: Path) -> None:
    write_data(tmp_path / "data")
    generator = random.Random(0)
    (tmp_path / "mine.py").write_text(EXPERIMENT)
    words = (
        "tune",
        "mine.py",
        "--data",
        "data",
        "--folds",
        "2",
        "--trials",
        str(TRIALS),
        "--no-prune",
    )
    folder, done = tmp_path / "tuning" / "mine", {}
    for _ in range(KILLS):
        program = begin(*words, cwd=tmp_path)
        until = time.monotonic() + generator.uniform(0.2, 3)
        while program.poll() is None and time.monotonic() < until:
            time.sleep(0.01)
        if program.poll() is None:
            kill(program)
        if (folder / "study.db").exists():
            check_seal(folder / "study.db")
        found = read_done(folder)
        assert found.items() >= done.items()
        done = found
    last = TRAINING.run(*words, cwd=tmp_path)
    assert last.returncode == 0, last.stderr
    assert len(read_done(folder)) == TRIALS
    assert read_done(folder).items() >= done.items()
    assert not list(folder.glob(".*"))
