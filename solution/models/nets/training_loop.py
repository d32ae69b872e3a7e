"""One training loop for every net: rank sampled configurations of a few graphs at each step.

A net sees a batch of graphs with the same number of sampled configurations each and returns scores
(configs, graphs); the loss compares inside a graph. With early stopping it ends with the weights of
the epoch that was best on validation graphs; without, with the last ones.
Device and precision are Lightning Fabric's business.
"""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar, cast

import numpy as np
import torch
from lightning_fabric import Fabric
from torch import Tensor, nn

from solution.domain.metrics import score_ranking
from solution.models.nets.fit_state import FitState
from solution.models.nets.losses import LOSSES
from solution.models.settings import check_choice
from solution.system.memory import SpareMemory
from solution.system.report import Report

WARM_UP = 0.1
MANY = 10  # times as many configurations as are sampled
MAX_VALUES = 1 << 22  # of a layer that are in memory at once while training: 16 MB

Inputs = TypeVar("Inputs")
NetInputs = TypeVar("NetInputs", contravariant=True)


@dataclass(frozen=True)
class TrainingSettings:
    """How a net is trained; one epoch visits every graph, large ones more than once."""

    loss: str = "pairwise_hinge"  # a name in models.nets.losses.LOSSES
    epochs: int = 60
    # Epochs without a better validation score before it stops. None: it never stops early and
    # learns from the validation graphs as well.
    patience: int | None = 15
    learning_rate: float = 1e-3
    weight_decay: float = 1e-4
    graphs_per_step: int = 4
    configs_per_graph: int = 48  # sampled anew at each step
    # An epoch visits a graph as often as its configurations fill a step, at most so many times.
    visits: int = 1
    # Where there are few graphs, an epoch visits all of them again, until it has so many steps.
    min_steps: int = 1
    max_configs: int | None = 1000  # distinct configurations of a graph to learn from; None: all
    validation_configs: int = 1000  # distinct configurations of a graph to stop early on

    def __post_init__(self) -> None:
        check_choice("loss", self.loss, LOSSES)

    def quick(self) -> "TrainingSettings":
        """A tenth of the epochs, each of one visit to a graph."""
        return replace(self, epochs=-(-self.epochs // 10), visits=1, min_steps=1)


@dataclass(frozen=True)
class Example(Generic[Inputs]):
    """A graph as a net takes it, with its labels."""

    inputs: Inputs
    runtimes: np.ndarray  # (distinct configs,)
    key: tuple[str, str]  # collection and name


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


def make_fabric() -> Fabric:
    """The device of `pick_device`, with bfloat16 products where it has them."""
    device = pick_device()
    is_half = device.type == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False)
    return Fabric(
        accelerator=device.type, devices=1, precision="bf16-mixed" if is_half else "32-true"
    )


@contextmanager
def one_thread() -> Iterator[None]:
    """Fit and predict with one thread: weights and scores do not depend on how many there are.

    Models are fitted beside each other instead, a core each.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def train(
    net: nn.Module,
    examples: Sequence[Example[Inputs]],
    validation: Sequence[Example[Inputs]],
    settings: TrainingSettings,
    seed: int,
    report: Report,
    checkpoints: Path | None = None,
    fit: str = "",
) -> None:
    """Train `net`, a RankingNet, in place.

    Args:
        validation: what it stops early on. Without any it runs all epochs.
        checkpoints: a folder of this fit alone, in which its state is kept while it lasts; a fit
            that was stopped goes on from there and, on a CPU, ends with the same weights.
        fit: names the fit, so that it does not go on from what another one left.
    """
    fabric = make_fabric()
    optimizer = torch.optim.AdamW(
        net.parameters(), lr=settings.learning_rate, weight_decay=settings.weight_decay, fused=True
    )
    state = FitState(net, optimizer, seed, fit)
    if checkpoints is not None:
        state.go_on_from(checkpoints)
        for done, known in state.scores:
            report(done, settings.epochs, f"validation {known:.3f}", known)
    # Only what computes is wrapped: the state's own net keeps its names.
    wrapped, wrapped_optimizer = fabric.setup(net, optimizer)
    steps = _Steps(fabric, wrapped, wrapped_optimizer, settings, state.generator)
    for epoch in range(state.epoch, settings.epochs):
        loss, rate = steps.run_epoch(examples, epoch)
        score = evaluate(net, validation) if len(validation) else None
        if score is not None:
            state.keep_if_best(score)
        state.epoch = epoch + 1
        note = f"loss {loss:.3f}" + ("" if score is None else f", validation {score:.3f}")
        report(state.epoch, settings.epochs, note, score, loss=loss, rate=rate)
        if settings.patience is not None and state.epochs_since_best >= settings.patience:
            break
        if checkpoints is not None:
            state.save_now_and_then(checkpoints)
    state.take_chosen_weights()


def learning_rate_factor(step: int, total: int) -> float:
    """Linear warm-up over a tenth of the steps, then half a cosine down to 0."""
    warm_up = max(1, round(WARM_UP * total))
    if step < warm_up:
        return (step + 1) / warm_up
    return 0.5 * (1 + math.cos(math.pi * (step - warm_up) / max(1, total - warm_up)))


def evaluate(net: nn.Module, examples: Sequence[Example[Inputs]]) -> float:
    """The mean of the collections' own metric over graphs."""
    ranking = as_ranking(net)
    scores = [score_ranking(e.key[0], ranking.score_graph(e.inputs), e.runtimes) for e in examples]
    return float(np.mean(scores))


def as_ranking(net: nn.Module) -> RankingNet[Any]:
    """The same net, seen as what the loop needs: every net here is both."""
    return cast("RankingNet[Any]", net)


@dataclass
class _Steps:
    """The optimizer's steps over the examples."""

    fabric: Fabric
    net: Any  # as Fabric wrapped it
    optimizer: Any
    settings: TrainingSettings
    generator: np.random.Generator
    memory: SpareMemory = field(default_factory=SpareMemory)

    def run_epoch(self, examples: Sequence[Example[Inputs]], epoch: int) -> tuple[float, float]:
        """The mean loss, and the configurations that were learned from per second."""
        self.net.train()
        settings, started = self.settings, time.perf_counter()
        visits = list_visits([len(example.runtimes) for example in examples], settings)
        steps = -(-len(visits) // settings.graphs_per_step)
        losses = []
        for number, batch in enumerate(self._batches(visits)):
            factor = learning_rate_factor(epoch * steps + number, settings.epochs * steps)
            for group in self.optimizer.param_groups:
                group["lr"] = factor * settings.learning_rate
            losses.append(self._step([examples[index] for index in batch]))
            self.memory.give_back()
        learned = len(visits) * settings.configs_per_graph
        return float(np.mean(losses)), learned / (time.perf_counter() - started)

    def _step(self, examples: list[Example[Inputs]]) -> float:
        self.optimizer.zero_grad(set_to_none=True)
        total = 0.0
        for part in self._parts(examples):
            with self.fabric.autocast():
                loss = self._loss(part) * (len(part) / len(examples))
            self.fabric.backward(loss)
            total += float(loss.detach())
        nn.utils.clip_grad_norm_(self.net.parameters(), 1.0)
        self.optimizer.step()
        return total

    def _batches(self, visits: np.ndarray) -> Iterator[np.ndarray]:
        order, size = self.generator.permutation(visits), self.settings.graphs_per_step
        for first in range(0, len(order), size):
            yield order[first : first + size]

    def _parts(self, examples: list[Example[Inputs]]) -> Iterator[list[Example[Inputs]]]:
        """Divide a step's graphs so that their activations fit; gradients add up to the same."""
        part: list[Example[Inputs]] = []
        values = 0
        for example in examples:
            size = self.net.count_values(example.inputs) * self.settings.configs_per_graph
            if part and values + size > MAX_VALUES:
                yield part
                part, values = [], 0
            part.append(example)
            values += size
        yield part

    def _loss(self, examples: list[Example[Inputs]]) -> Tensor:
        size = self.settings.configs_per_graph
        chosen = [sample(len(e.runtimes), size, self.generator) for e in examples]
        runtimes = [e.runtimes[rows] for e, rows in zip(examples, chosen, strict=True)]
        scores = self.net.score_batch([e.inputs for e in examples], np.stack(chosen, axis=1))
        loss: Callable[[Tensor, Tensor], Tensor] = LOSSES[self.settings.loss]
        labels = torch.from_numpy(np.stack(runtimes, axis=1)).to(scores.device)
        return loss(scores.float(), labels)


def list_visits(sizes: Sequence[int], settings: TrainingSettings) -> np.ndarray:
    """The graphs (visits,) that an epoch visits, each as often as `settings` says.

    Args:
        sizes: Distinct configurations of each graph.
    """
    full_steps = -(-np.asarray(sizes) // settings.configs_per_graph)
    visits = np.repeat(np.arange(len(sizes)), full_steps.clip(1, settings.visits))
    fewest = (settings.min_steps - 1) * settings.graphs_per_step + 1
    return np.tile(visits, -(-fewest // len(visits)))


def sample(count: int, size: int, generator: np.random.Generator) -> np.ndarray:
    """Positions (size,) of configurations; a graph with fewer than `size` repeats some."""
    if count > MANY * size:  # a permutation of 100,040 takes longer than the rest of the step
        return generator.choice(count, size, replace=False)
    return np.resize(generator.permutation(count), size)
