"""One training loop for every net: rank sampled configurations of a few graphs at each step.

A net sees a batch of graphs with the same number of sampled configurations each and returns scores
(configs, graphs); the loss compares inside a graph. It stops early on validation graphs' own
metric, and keeps the weights of the best epoch.
"""

import copy
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, Protocol, TypeVar, cast

import numpy as np
import torch
from torch import Tensor, nn

from solution.metrics import score_ranking
from solution.models.base import Report
from solution.models.losses import LOSSES

WARM_UP = 0.1
MANY = 10  # times as many configurations as are sampled
MAX_VALUES = 1 << 22  # of a layer that are in memory at once while training: 16 MB

Inputs = TypeVar("Inputs")
NetInputs = TypeVar("NetInputs", contravariant=True)


@dataclass(frozen=True)
class TrainingSettings:
    """How a net is trained; one epoch visits every graph once."""

    loss: str = "pairwise_hinge"
    epochs: int = 60
    patience: int = 15  # epochs without a better validation score before it stops
    learning_rate: float = 1e-3
    weight_decay: float = 1e-4
    graphs_per_step: int = 4
    configs_per_graph: int = 48  # sampled anew at each step
    max_configs: int | None = 1000  # distinct configurations of a graph to learn from; None: all
    validation_configs: int = 1000  # distinct configurations of a graph to stop early on


@dataclass(frozen=True)
class Example(Generic[Inputs]):
    """A graph as a net takes it, with its labels."""

    inputs: Inputs
    runtimes: np.ndarray  # (distinct configs,)
    collection: str


class RankingNet(Protocol[NetInputs]):
    """What the loop needs of a net beside being a torch module."""

    def score_batch(self, batch: Sequence[NetInputs], configs: np.ndarray) -> Tensor:
        """Scores (configs, graphs) of the configurations `configs` (configs, graphs) int64."""
        ...

    def count_values(self, inputs: NetInputs) -> int:
        """How many values a layer holds for one configuration of the graph."""
        ...

    def score_graph(self, inputs: NetInputs) -> np.ndarray:
        """Scores (distinct configs,) of a graph."""
        ...


def pick_device() -> torch.device:
    """The GPU where there is one."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def train(
    net: nn.Module,
    examples: Sequence[Example[Inputs]],
    validation: Sequence[Example[Inputs]],
    settings: TrainingSettings,
    seed: int,
    report: Report,
) -> None:
    """Train `net`, a RankingNet, in place; it ends with the weights of the best validation epoch.

    Without validation graphs it runs all epochs and keeps the last weights.
    """
    generator = np.random.default_rng(seed)
    steps = -(-len(examples) // settings.graphs_per_step)
    optimizer = torch.optim.AdamW(
        net.parameters(), lr=settings.learning_rate, weight_decay=settings.weight_decay
    )
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, partial(learning_rate_factor, total=settings.epochs * steps)
    )
    best = _Best(settings.patience)
    for epoch in range(settings.epochs):
        net.train()
        for batch in _batches(len(examples), settings.graphs_per_step, generator):
            optimizer.zero_grad(set_to_none=True)
            for part in _parts(net, [examples[index] for index in batch], settings):
                loss = _loss(net, part, settings, generator) * (len(part) / len(batch))
                loss.backward()
            nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            optimizer.step()
            schedule.step()
        if len(validation):
            score = evaluate(net, validation)
            best.update(score, net)
            report(epoch + 1, settings.epochs, f"validation {score:.3f}", score)
            if best.is_over:
                break
        else:
            report(epoch + 1, settings.epochs)
    best.restore(net)


def learning_rate_factor(step: int, total: int) -> float:
    """Linear warm-up over a tenth of the steps, then half a cosine down to 0."""
    warm_up = max(1, round(WARM_UP * total))
    if step < warm_up:
        return (step + 1) / warm_up
    return 0.5 * (1 + math.cos(math.pi * (step - warm_up) / max(1, total - warm_up)))


def evaluate(net: nn.Module, examples: Sequence[Example[Inputs]]) -> float:
    """The mean of the collections' own metric over graphs."""
    ranking = as_ranking(net)
    scores = [
        score_ranking(e.collection, ranking.score_graph(e.inputs), e.runtimes) for e in examples
    ]
    return float(np.mean(scores))


class _Best:
    """Remembers the best weights and when they were found."""

    def __init__(self, patience: int) -> None:
        self._patience = patience
        self._score = -np.inf
        self._state: dict[str, Tensor] | None = None
        self._epochs_since = 0

    def update(self, score: float, net: nn.Module) -> None:
        self._epochs_since += 1
        if score > self._score:
            self._score, self._epochs_since = score, 0
            self._state = copy.deepcopy(net.state_dict())

    @property
    def is_over(self) -> bool:
        return self._epochs_since >= self._patience

    def restore(self, net: nn.Module) -> None:
        if self._state is not None:
            net.load_state_dict(self._state)


def as_ranking(net: nn.Module) -> RankingNet[Any]:
    """The same net, seen as what the loop needs: every net here is both."""
    return cast("RankingNet[Any]", net)


def _batches(count: int, size: int, generator: np.random.Generator) -> Iterator[np.ndarray]:
    order = generator.permutation(count)
    for first in range(0, count, size):
        yield order[first : first + size]


def _parts(
    net: nn.Module, examples: list[Example[Inputs]], settings: TrainingSettings
) -> Iterator[list[Example[Inputs]]]:
    """Divide a step's graphs so that their activations fit; gradients add up to the same step."""
    part: list[Example[Inputs]] = []
    values = 0
    for example in examples:
        size = as_ranking(net).count_values(example.inputs) * settings.configs_per_graph
        if part and values + size > MAX_VALUES:
            yield part
            part, values = [], 0
        part.append(example)
        values += size
    yield part


def _loss(
    net: nn.Module,
    examples: list[Example[Inputs]],
    settings: TrainingSettings,
    generator: np.random.Generator,
) -> Tensor:
    size = settings.configs_per_graph
    chosen = np.stack([_sample(len(e.runtimes), size, generator) for e in examples], axis=1)
    runtimes = np.stack(
        [e.runtimes[chosen[:, column]] for column, e in enumerate(examples)], axis=1
    )
    scores = as_ranking(net).score_batch([e.inputs for e in examples], chosen)
    loss: Callable[[Tensor, Tensor], Tensor] = LOSSES[settings.loss]
    return loss(scores, torch.from_numpy(runtimes).to(scores.device))


def _sample(count: int, size: int, generator: np.random.Generator) -> np.ndarray:
    """Positions (size,) of configurations; a graph with fewer than `size` repeats some."""
    if count > MANY * size:  # a permutation of 100,040 takes longer than the rest of the step
        return generator.choice(count, size, replace=False)
    return np.resize(generator.permutation(count), size)
