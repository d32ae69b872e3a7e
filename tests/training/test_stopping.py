"""Ctrl-C says how far the training is, and the same call goes on."""

import dataclasses
from pathlib import Path
from typing import ClassVar

import pytest

from solution.data.folders import find_files
from solution.experiments.base import Experiment
from solution.features.preparation import Preparation
from solution.models.linear import LinearRanker, RidgeSettings
from solution.store.preparing import prepare_store
from solution.training.opening import open_experiments
from solution.training.out_of_fold import run_experiments
from tests.made.graphs import make_tile_graph, write_graph


@dataclasses.dataclass(frozen=True)
class StoppedSettings(RidgeSettings):
    """Settings whose second fit is interrupted, as by Ctrl-C."""

    fits: ClassVar[int] = 0

    def build(self, seed: int) -> LinearRanker:
        type(self).fits += 1
        if type(self).fits == 2:
            raise KeyboardInterrupt
        return super().build(seed)


def test_what_is_trained_is_counted_and_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for number in range(6):
        write_graph(make_tile_graph(number, name=f"k{number}"), tmp_path / "data")
    store = prepare_store(find_files(tmp_path / "data"), tmp_path / "store", Preparation())
    stopped = Experiment("stopped", ("tile:xla",), StoppedSettings())
    options = {"scheme": "graph", "folds": 3}
    with (
        pytest.raises(KeyboardInterrupt),
        open_experiments([stopped], store, tmp_path / "run", **options) as (plan, run),  # type: ignore[arg-type]
    ):
        run_experiments([stopped], plan, run)
    assert "Stopped: 1 of 3" in capsys.readouterr().err
    assert run.count_models() == 1
    with open_experiments([stopped], store, tmp_path / "run", **options) as (plan, run):  # type: ignore[arg-type]
        run_experiments([stopped], plan, run)
    assert run.count_models() == 3
    assert StoppedSettings.fits == 4  # the one that was there was not trained again
