"""The tables of `make go` from cells that are known by hand."""

from pathlib import Path

import numpy as np
import pytest
import typer

from benchmarks.go import Bench, choose_methods
from benchmarks.go_tables import TOGETHER, Cell, Cells, find_gain, tabulate_reach
from solution.placement.evaluation import TASKS
from solution.placement.graphs.workloads import SMALL
from solution.placement.policy.saving import SHIPPED


def make_cell(method: str, seed: int, steps: list[list[float]], count: int = 5) -> Cell:
    return Cell("rnnlm", ["placement"], method, seed, seconds=steps[-1][1], clock=9.0,
                evaluations=count, bound=0.1, reference=2.0, steps=steps)  # fmt: skip


def test_a_cell_knows_when_it_was_as_good_as_another() -> None:
    cell = make_cell("go", 0, [[2, 1.0, 0.5], [4, 0.6, 0.7]])
    assert cell.reach(1.0) == (2, 0.5) and cell.reach(0.7) == (4, 0.7)
    assert np.isnan(cell.reach(0.5)).all()
    np.testing.assert_allclose(cell.unroll(), [np.nan, 0.5, 0.5, 0.3, 0.3])


def test_how_soon_go_is_as_good_as_hdp(capsys: pytest.CaptureFixture[str]) -> None:
    hdp = [make_cell("hdp", seed, [[1, 3.0, 1.0], [40, 1.0, 8.0]], 40) for seed in (0, 1)]
    ours = [make_cell("go", seed, [[4, 0.9, 0.5]]) for seed in (0, 1)]
    tabulate_reach([*hdp, *ours])
    said = capsys.readouterr()
    text = " ".join((said.out + said.err).split())
    assert "go needs 1 / 10.0 (10.0 to 10.0) of HDP's decisions." in text
    assert "go needs 1 / 16.0 (16.0 to 16.0) of HDP's seconds of the clock." in text


def test_what_does_not_fit_is_left_out_of_a_gain() -> None:
    theirs, ours = np.array([[2.0, 2.0], [np.nan, 1.0]]), np.array([[1.0, 1.0], [1.0, 1.0]])
    assert find_gain(theirs, ours) == pytest.approx((1, 1, 1))
    assert np.isnan(find_gain(theirs[1:], ours[1:])).all()
    cells = Cells([make_cell("heft", 0, [[1, 3.0, 1.0]]), make_cell("go", 1, [[1, 2.0, 1.0]])])
    np.testing.assert_array_equal(cells.seconds("heft"), [[3.0, 3.0]])  # drawn once for all seeds
    np.testing.assert_array_equal(cells.seconds("go"), [[np.nan, 2.0]])


def test_a_cell_is_measured_once_and_found_again(tmp_path: Path) -> None:
    bench = Bench(tmp_path, 30, SHIPPED)
    methods = ["go", "single", "sequential"]
    cells = list(bench.measure_all(list(SMALL[:1]), TASKS, methods, 1))
    assert [cell.evaluations for cell in cells] == [30, *(c.evaluations for c in cells[1:])]
    assert all(cell.seconds is not None and cell.seconds >= cell.bound for cell in cells)
    assert cells[0].unroll()[-1] * cells[0].reference == pytest.approx(cells[0].seconds)
    files = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.json")}
    assert list(bench.measure_all(list(SMALL[:1]), TASKS, methods, 1)) == cells
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.json")} == files


def test_a_method_that_is_not_known_is_named() -> None:
    with pytest.raises(typer.BadParameter, match="'annealing 11 times' is none of"):
        choose_methods("go,annealing 11 times")
    assert not set(TOGETHER) & set(choose_methods(""))
