"""Optimizers, the choice of weights and what is kept of an epoch, against slow references."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from solution.domain.metrics import kendall_tau, ordered_pair_accuracy
from solution.models.nets import devices
from solution.models.nets.losses import list_mle, pairwise_hinge, runtime_squared_error
from solution.models.nets.ranking_net import Example
from solution.models.nets.training_loop import train
from solution.models.nets.training_settings import TrainingSettings
from solution.models.nets.validation import deal, validate
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


def _assert_same(net: nn.Module, other: nn.Module) -> None:
    for one, two in zip(net.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(one, two, atol=1e-6, rtol=1e-5)


def test_adam_is_adam_and_no_more() -> None:
    """A constant rate, no decay, no clipping: with losses this large a clip would show."""
    example, expected, found = _example(0), _net(), _net()
    settings = TrainingSettings(
        loss="list_mle", optimizer="adam", epochs=5, patience=None, learning_rate=0.1,
        weight_decay=0.5, configs_per_graph=8,
    )  # fmt: skip
    large = Example(100 * example.inputs, example.runtimes, KEY)
    train(found, [large], [], settings, 0, silent)
    optimizer = torch.optim.Adam(expected.parameters(), lr=0.1)
    for _ in range(5):
        optimizer.zero_grad()
        scores = expected.product(large.inputs)
        list_mle(scores, torch.from_numpy(large.runtimes)[:, None]).backward()
        optimizer.step()
    _assert_same(found, expected)


def test_the_blend_is_the_sum_of_both_losses() -> None:
    example, expected, found = _example(1), _net(), _net()
    settings = TrainingSettings(
        regression=0.5, optimizer="adam", epochs=3, patience=None, learning_rate=0.1,
        configs_per_graph=8,
    )  # fmt: skip
    train(found, [example], [], settings, 0, silent)
    optimizer = torch.optim.Adam(expected.parameters(), lr=0.1)
    runtimes = torch.from_numpy(example.runtimes)[:, None]
    for _ in range(3):
        optimizer.zero_grad()
        scores = expected.product(example.inputs)
        loss = pairwise_hinge(scores, runtimes) + 0.5 * runtime_squared_error(scores, runtimes)
        loss.backward()
        optimizer.step()
    _assert_same(found, expected)


def test_a_validation_is_the_mean_of_the_graphs() -> None:
    net, examples = _net(), [_example(seed, configs) for seed, configs in ((2, 9), (3, 4))]
    found = validate(net, examples, pairwise_hinge, 4)
    scores = [net.score_graph(example.inputs) for example in examples]
    pairs = [(s, e.runtimes) for s, e in zip(scores, examples, strict=True)]
    assert found.tau == found.score == pytest.approx(np.mean([kendall_tau(*p) for p in pairs]))
    assert found.opa == pytest.approx(np.mean([ordered_pair_accuracy(*p) for p in pairs]))
    losses = [
        pairwise_hinge(*(torch.from_numpy(deal(values, 4)) for values in pair)) for pair in pairs
    ]
    assert found.loss == pytest.approx(float(sum(losses)) / 2)
    flat = Example(examples[0].inputs, np.ones(9), KEY)
    assert validate(net, [flat], pairwise_hinge, 4).opa == 0.5


def test_lists_have_all_configurations_and_the_length_of_a_step() -> None:
    dealt = deal(np.arange(7), 3)
    assert dealt.shape == (3, 3)
    assert set(dealt.ravel()) == set(range(7))


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
