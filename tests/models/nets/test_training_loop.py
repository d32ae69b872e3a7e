"""Optimizers, the choice of weights and what is kept of an epoch, against slow references."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from solution.models.nets import devices
from solution.models.nets.losses import pairwise_hinge
from solution.models.nets.ranking_net import Example
from solution.models.nets.training_loop import train
from solution.models.nets.training_settings import TrainingSettings
from solution.models.nets.validation import validate
from solution.system.report import silent
from solution.training.fit import LearningCurve

KEY = ("layout:xla:random", "program")


@pytest.fixture(autouse=True)
def on_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is compared with it is computed there."""
    monkeypatch.setattr(devices, "pick_device", lambda: torch.device("cpu"))


class LinearNet(nn.Module):
    """Scores rows of numbers by a product."""

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


def _net() -> LinearNet:
    torch.manual_seed(0)
    return LinearNet()


def _tile_example() -> Example[Tensor]:
    """Configurations whose best one by the first number is the fastest, whose order is not."""
    rows = np.random.default_rng(0).normal(size=(40, 3)).astype(np.float32)
    runtimes = np.exp(rows[:, 1])
    runtimes[np.argmin(rows[:, 0])] = runtimes.min() / 4
    return Example(torch.from_numpy(rows), runtimes.astype(float), ("tile:xla", "kernel"))


@pytest.mark.parametrize("chosen_by", ["score", "opa", "tau"])
def test_the_weights_are_those_of_the_epoch_that_was_best_by_what_was_asked_for(
    chosen_by: str,
) -> None:
    examples, held_out = [_example(seed) for seed in range(3)], [_tile_example()]
    settings = TrainingSettings(
        epochs=12, patience=12, chosen_by=chosen_by, learning_rate=0.3, configs_per_graph=8
    )
    curve, net = LearningCurve(silent), _net()
    train(net, examples, held_out, settings, 0, curve)
    reached: Any = validate(net, held_out, pairwise_hinge, 8)
    points, measures = curve.points(), curve.measures()
    assert getattr(reached, chosen_by) == pytest.approx(max(score for _, score in points), abs=1e-5)
    assert sorted(measures) == ["loss", "opa", "tau", "validation_loss"]
    assert all(len(values) == len(points) == 12 for values in measures.values())
    if chosen_by != "score":
        assert measures[chosen_by] == [score for _, score in points]
