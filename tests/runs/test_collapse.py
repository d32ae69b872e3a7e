"""A model that was best early and then fell is named; what only trembles is not."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from solution.runs.collapse import find_collapsed
from solution.runs.folder import Run
from solution.runs.job import read_job, write_job
from tests.made.run import make_run

Curve = list[tuple[int, float]]


def give_curve(run: Run, curve: Curve, graphs: str = "abc") -> None:
    """To one model of the run, which stopped early on these graphs."""
    (folder,) = run.jobs("trees_001")
    record = dataclasses.replace(read_job(folder), curve=curve, validated_on=[*graphs])
    write_job(record, folder)


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return make_run(tmp_path / "run", collections=("tile:xla",))


def test_a_run_whose_models_learn_names_none(run: Run) -> None:
    assert find_collapsed(run) == []


def test_a_model_that_fell_is_named_with_its_likely_reason(run: Run) -> None:
    give_curve(run, [(step, 0.89 if step == 2 else 0.34) for step in range(1, 63)])
    (found,) = find_collapsed(run)
    words = found.describe()
    assert "trees_001, tile:xla, fold 0, seed 0: best at step 2 of 62" in words
    assert "fell from 0.89 to 0.34" in words
    assert "The 3 graphs that it stops early on are probably unlike" in words
    give_curve(run, [(step, 0.89 if step == 2 else 0.34) for step in range(1, 63)], "a")
    assert "The 1 graph that it stops early on is probably" in find_collapsed(run)[0].describe()


@pytest.mark.parametrize(
    "curve",
    [
        [(step, 0.9 + 0.04 * np.sin(step)) for step in range(60)],  # noise
        [(1, 0.9), (2, 0.2)],  # too short to say
        # Two models one after the other, the second at its beginning.
        [*((step, 0.5 + step / 40) for step in range(12)), *((s, 0.1) for s in range(6))],
    ],
)
def test_noise_and_beginnings_are_no_collapse(curve: Curve, run: Run) -> None:
    give_curve(run, curve)
    assert find_collapsed(run) == []
