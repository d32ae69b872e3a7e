"""Experiments of one's own: a slip is one line, before anything is trained."""

from pathlib import Path

import pytest

from tests.commands.test_first_minutes import make_data
from tests.conftest import FastSlow

BROKEN = '''
"""A model with a slip of the pen."""

from dataclasses import dataclass

import numpy as np

from solution.experiments.base import Experiment
from solution.models.table_ranker import TableSettings


@dataclass(frozen=True)
class Slip(TableSettings):
    def fit_rows(self, rows, ranks):
        return np.linalg.slove(rows.T @ rows, rows.T @ ranks)

    def score_rows(self, rows, weights):
        return rows @ weights


EXPERIMENT = Experiment(name="slip", collections=("tile:xla",), ranker=Slip())
'''


def test_a_slip_in_a_model_of_ones_own_is_one_line(fastslow: FastSlow, tmp_path: Path) -> None:
    data = make_data(tmp_path / "data")
    (tmp_path / "slip.py").write_text(BROKEN, encoding="utf-8")
    done = fastslow(
        "run", data, "--experiment", "slip.py", "--folds", "2", "--scheme", "graph", "--run", "out"
    )
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert all(fact in done.stderr for fact in ("slip.py, line 15", "fit_rows", "AttributeError"))
    assert "the training" in done.stderr


@pytest.mark.parametrize(
    ("slip", "meant"),
    [
        ('collections="tile:xla"', "with a comma behind each"),
        ('collections=("tile:xal",)', "Did you mean tile:xla"),
        ('collections=("tile:xla",), seeds=3', "seeds is 3"),
        ('collections=("tile:xla", "tile:xla")', "none of them twice"),
    ],
)
def test_what_could_never_be_trained_is_refused(
    slip: str, meant: str, fastslow: FastSlow, tmp_path: Path
) -> None:
    data = make_data(tmp_path / "data")
    text = (
        "from solution import Experiment\nfrom solution.models.linear import RidgeSettings\n"
        f"EXPERIMENT = Experiment(name='mine', {slip}, ranker=RidgeSettings())\n"
    )
    (tmp_path / "mine.py").write_text(text, encoding="utf-8")
    done = fastslow("run", data, "--experiment", "mine.py", "--folds", "2", "--run", "out")
    assert done.returncode == 2
    assert meant in " ".join(done.stderr.split())
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("scores", "found"),
    [
        ("np.r_[[9.0], rows @ weights]", "(13,) of float64 for the 12 rows"),
        ("(rows @ weights)[:-1]", "(11,) of float64"),
        ("1.0", "() of float64"),
        ("np.full(len(rows), 'a')", "(12,) of <U1"),
    ],
)
def test_scores_that_are_not_one_a_row_are_refused(
    scores: str, found: str, fastslow: FastSlow, tmp_path: Path
) -> None:
    """One too many would shift the others to configurations that are not theirs."""
    data = make_data(tmp_path / "data")
    text = BROKEN.replace("np.linalg.slove(rows.T @ rows, rows.T @ ranks)", "rows.T @ ranks")
    (tmp_path / "slip.py").write_text(text.replace("rows @ weights", scores), encoding="utf-8")
    done = fastslow(
        "train", "slip.py", "--data", data, "--folds", "2", "--scheme", "graph", "--run", "out"
    )
    assert done.returncode == 2
    assert f"slip.py: score_rows of Slip returned an array {found}" in done.stderr


@pytest.mark.parametrize(
    ("learned", "scores", "found"),
    [
        ("rows.T @ ranks", "rows[:, 0] * np.nan", "score_rows of Slip gave 12 of the 12"),
        ("rows.T @ ranks", "np.full(len(rows), 1e300)", "too large for 32 bits"),
        ("[[1], [1, 2]]", "rows[:, 0]", "fit_rows of Slip returned what is no array"),
        ("sys.exit(3)", "rows[:, 0]", "slip.py, line 15, in fit_rows: SystemExit: 3"),
    ],
)
def test_what_a_model_of_ones_own_may_not_do_is_said_before_the_training(
    learned: str, scores: str, found: str, fastslow: FastSlow, tmp_path: Path
) -> None:
    data = make_data(tmp_path / "data")
    text = BROKEN.replace("np.linalg.slove(rows.T @ rows, rows.T @ ranks)", learned)
    text = text.replace("from dataclasses", "import sys; from dataclasses")
    (tmp_path / "slip.py").write_text(text.replace("rows @ weights", scores), encoding="utf-8")
    done = fastslow(
        "train", "slip.py", "--data", data, "--folds", "2", "--scheme", "graph", "--run", "out"
    )
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert f"{tmp_path / 'slip.py'}" in done.stderr
    assert found in done.stderr
    assert "in 0.0 s" not in done.stderr  # no model was trained


def test_two_experiments_of_one_name_are_refused(fastslow: FastSlow, tmp_path: Path) -> None:
    (tmp_path / "own").mkdir()
    text = BROKEN.replace('name="slip"', 'name="linear_ridge_001"')
    (tmp_path / "own" / "linear_ridge_001.py").write_text(text, encoding="utf-8")
    both = ("--experiment", "linear_ridge_001", "--experiment", "own/linear_ridge_001.py")
    done = fastslow("run", make_data(tmp_path / "data"), *both, "--run", "out")
    assert done.returncode == 2
    assert all(fact in done.stderr for fact in ("both", "linear_ridge_001"))
    assert not (tmp_path / "out").exists()
