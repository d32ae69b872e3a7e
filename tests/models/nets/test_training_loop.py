"""A fit that is stopped anywhere ends with the same weights, which are those of the best epoch."""

import dataclasses
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from solution.models.base import Ranker
from solution.models.layout.layout_gnn import LayoutGnnSettings
from solution.models.nets import checkpoint, devices, training_loop
from solution.models.nets.checkpoint import NAME, load_checkpoint
from solution.models.nets.losses import pairwise_hinge
from solution.models.nets.ranking_net import Example
from solution.models.nets.training_loop import train
from solution.models.nets.training_settings import TrainingSettings
from solution.models.nets.validation import validate
from solution.papers.wrappers import SublistAverageSettings
from solution.system.report import silent
from solution.training.fit import LearningCurve
from tests.made.graphs import make_layout_graph

GRAPHS = [make_layout_graph(seed, configs=16, name=f"program_{seed}") for seed in range(4)]
WHOLE = TrainingSettings(epochs=6, patience=None, graphs_per_step=2, configs_per_graph=8)
STOPPED_EARLY = dataclasses.replace(WHOLE, patience=2)


class KillError(Exception):
    """Stands for a kill: nothing of the fit is left but its files."""


def fit(
    training: TrainingSettings,
    folder: Path | None = None,
    kill_at: float | None = None,
    width: int = 8,
    graphs: slice = slice(0, 3),
) -> tuple[Ranker, list[float]]:
    """Fit on three graphs; the ranker and the epochs that were run, and parts of them."""
    ranker = LayoutGnnSettings(width=width, rounds=(8,), training=training).build(0)
    if folder is not None:
        ranker.keep_checkpoints(folder)
    epochs: list[float] = []

    def report(done: float, *_: object, **__: object) -> None:
        epochs.append(done)
        if kill_at is not None and done >= kill_at:
            raise KillError

    return ranker.fit(GRAPHS[graphs], GRAPHS[3:], report), epochs


@cache
def fit_at_once(training: TrainingSettings) -> tuple[np.ndarray, list[float]]:
    """What a fit that nobody stops predicts, and its epochs."""
    ranker, epochs = fit(training)
    return ranker.predict(GRAPHS[3]), epochs


@pytest.fixture(autouse=True)
def _save_every_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint, "SECONDS_BETWEEN", 0.0)
    # a busy machine must not report parts of an epoch, which tests count as epochs
    monkeypatch.setattr(training_loop, "LOOK_SECONDS", np.inf)


@pytest.mark.parametrize("training", [WHOLE, STOPPED_EARLY], ids=["all epochs", "stopped early"])
@pytest.mark.parametrize("part", [0, 0.5, 1], ids=["at once", "halfway", "before the last"])
def test_a_killed_fit_ends_alike(training: TrainingSettings, part: float, tmp_path: Path) -> None:
    expected, epochs = fit_at_once(training)
    assert (len(epochs) < training.epochs) == (training.patience is not None)
    kill_at = 1 + round(part * (len(epochs) - 2))
    with pytest.raises(KillError):
        fit(training, tmp_path, kill_at)
    torch.manual_seed(99)  # another process has other random numbers
    ranker, went_on = fit(training, tmp_path)
    told_again = kill_at - 1 if training.patience else 0  # the learning curve so far
    assert went_on[told_again:] == epochs[kill_at - 1 :]  # the epoch of the kill was not saved
    np.testing.assert_array_equal(ranker.predict(GRAPHS[3]), expected)


@pytest.mark.parametrize("ahead", [(False, False), (True, True), (True, False), (False, True)])
@pytest.mark.parametrize("training", [WHOLE, STOPPED_EARLY], ids=["all epochs", "stopped early"])
def test_a_fit_that_was_killed_inside_an_epoch_goes_on_there(
    training: TrainingSettings,
    ahead: tuple[bool, bool],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What was learned before the kill is not learned again; planned ahead, as on a GPU, or not."""
    training = dataclasses.replace(training, graphs_per_step=1)
    expected, epochs = fit_at_once(training)
    monkeypatch.setattr(training_loop, "LOOK_SECONDS", -1.0)
    monkeypatch.setattr(training_loop, "works_by_itself", lambda device: ahead[0])
    with pytest.raises(KillError):
        fit(training, tmp_path, kill_at=2.5)
    monkeypatch.setattr(training_loop, "works_by_itself", lambda device: ahead[1])
    torch.manual_seed(99)
    ranker, went_on = fit(training, tmp_path)
    told_again = 2 if training.patience else 0
    assert 2.5 < went_on[told_again] <= 3
    assert [done for done in went_on if done == int(done)][told_again:] == epochs[2:]
    np.testing.assert_array_equal(ranker.predict(GRAPHS[3]), expected)


@pytest.mark.parametrize("change", ["training", "width", "graphs"])
def test_another_fit_does_not_go_on_from_it(change: str, tmp_path: Path) -> None:
    with pytest.raises(KillError):
        fit(WHOLE, tmp_path, kill_at=4)
    assert (tmp_path / NAME).is_file()
    training = dataclasses.replace(WHOLE, learning_rate=0.01) if change == "training" else WHOLE
    width, graphs = 16 if change == "width" else 8, slice(0, 2 if change == "graphs" else 3)
    _, epochs = fit(training, tmp_path, width=width, graphs=graphs)
    assert epochs == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize("content", [b"", b"no safetensors", b"\xff" * 4096])
def test_a_checkpoint_that_cannot_be_read_is_passed_over(content: bytes, tmp_path: Path) -> None:
    (tmp_path / NAME).write_bytes(content)
    assert load_checkpoint(tmp_path, "any") is None
    _, epochs = fit(WHOLE, tmp_path)
    assert epochs[0] == 1


def test_a_wrapped_ranker_keeps_checkpoints_too(tmp_path: Path) -> None:
    inner = LayoutGnnSettings(width=8, rounds=(8,), training=WHOLE)
    ranker = SublistAverageSettings(inner, size=8).build(0)
    ranker.keep_checkpoints(tmp_path)
    ranker.fit(GRAPHS[:2], [])
    assert (tmp_path / NAME).is_file()


KEY = ("layout:xla:random", "program")


class LinearNet(nn.Module):
    """Scores rows of numbers by a matrix product."""

    def __init__(self) -> None:
        super().__init__()
        self.product = nn.Linear(3, 1, bias=False)  # a shift changes no order

    def score_batch(self, batch: Sequence[Tensor], configs: np.ndarray) -> Tensor:
        chosen = [rows[configs[:, i]] for i, rows in enumerate(batch)]
        return self.product(torch.stack(chosen, dim=1)).squeeze(-1)

    def count_values(self, inputs: Tensor) -> int:
        return inputs.shape[1]

    @torch.inference_mode()
    def score_graph(self, inputs: Tensor) -> np.ndarray:
        return self.product(inputs).squeeze(-1).numpy()


def _example(seed: int, configs: int = 8) -> Example[Tensor]:
    generator = np.random.default_rng(seed)
    rows = generator.normal(size=(configs, 3)).astype(np.float32)
    return Example(torch.from_numpy(rows), np.exp(rows.sum(axis=1)).astype(float), KEY)


def _tile_example() -> Example[Tensor]:
    """Configurations whose best one by the first number is the fastest, whose order is not."""
    rows = np.random.default_rng(0).normal(size=(40, 3)).astype(np.float32)
    runtimes = np.exp(rows[:, 1])
    runtimes[np.argmin(rows[:, 0])] = runtimes.min() / 4
    return Example(torch.from_numpy(rows), runtimes.astype(float), ("tile:xla", "kernel"))


@pytest.mark.parametrize("chosen_by", ["score", "opa", "tau"])
def test_the_weights_are_those_of_the_epoch_that_was_best_by_what_was_asked_for(
    chosen_by: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As what it is compared with.
    monkeypatch.setattr(devices, "pick_device", lambda: torch.device("cpu"))
    examples, held_out = [_example(seed) for seed in range(3)], [_tile_example()]
    settings = TrainingSettings(
        epochs=12, patience=12, chosen_by=chosen_by, learning_rate=0.3, configs_per_graph=8
    )
    torch.manual_seed(0)
    curve, net = LearningCurve(silent), LinearNet()
    train(net, examples, held_out, settings, 0, curve)
    reached: Any = validate(net, held_out, pairwise_hinge, 8)
    points, measures = curve.points(), curve.measures()
    assert getattr(reached, chosen_by) == pytest.approx(max(score for _, score in points), abs=1e-5)
    assert sorted(measures) == ["loss", "opa", "tau", "validation_loss"]
    assert all(len(values) == len(points) == 12 for values in measures.values())
    if chosen_by != "score":
        assert measures[chosen_by] == [score for _, score in points]
