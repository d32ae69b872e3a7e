"""One training loop for every net: rank sampled configurations of a few graphs at each step.

A net sees a batch of graphs with the same number of sampled configurations each and returns scores
(configs, graphs); the loss compares inside a graph. With early stopping it ends with the weights of
the epoch that was best on validation graphs; without, with the last ones.
Device and precision are Lightning Fabric's business.
"""

import copy
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from solution.models.nets.devices import (
    make_fabric,
    move_examples,
    pick_device,
    pick_precision,
)
from solution.models.nets.fit_state import FitState, Remembering
from solution.models.nets.losses import LOSSES, blend
from solution.models.nets.ranking_net import Example, Inputs, Regularised
from solution.models.nets.stepping import learning_rate_factor, sample
from solution.models.nets.team import Team, lead
from solution.models.nets.validation import METRICS, validate
from solution.models.settings import check_choice
from solution.system.errors import InputError
from solution.system.memory import SpareMemory
from solution.system.report import Report, silent

LOOK_SECONDS = 2.0  # between two looks at how far a long epoch is
MAX_VALUES = 1 << 22  # of a layer that are in memory at once while training: 16 MB
OPTIMIZERS = ("adamw", "adam")
Drawn = tuple[Example[Inputs], np.ndarray]  # a graph and the rows (configs,) that are learned from


@dataclass(frozen=True)
class TrainingSettings:
    """How a net is trained; one epoch visits every graph, large ones more than once."""

    loss: str = "pairwise_hinge"  # a name in models.nets.losses.LOSSES
    regression: float = 0.0  # how much the squared error of runtimes counts beside the loss
    # "adamw" warms up, falls by half a cosine and clips gradients; "adam" is Adam and no more.
    optimizer: str = "adamw"
    epochs: int = 60
    # Epochs without a better validation score before it stops. None: it never stops early and
    # learns from the validation graphs as well.
    patience: int | None = 15
    chosen_by: str = "score"  # of a validation: the collection's own score, "opa" or "tau"
    learning_rate: float = 1e-3
    weight_decay: float = 1e-4  # of adamw
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
        check_choice("optimizer", self.optimizer, OPTIMIZERS)
        check_choice("chosen_by", self.chosen_by, METRICS)

    @property
    def most_devices(self) -> int:
        """The graphs of a step are divided among devices."""
        return self.graphs_per_step

    def quick(self) -> "TrainingSettings":
        """A tenth of the epochs, each of one visit to a graph."""
        return replace(self, epochs=-(-self.epochs // 10), visits=1, min_steps=1)

    def shortened(self, share: float) -> "TrainingSettings":
        """So much of the epochs, one at least."""
        return replace(self, epochs=math.ceil(self.epochs * share))


def train(
    net: nn.Module,
    examples: Sequence[Example[Inputs]],
    validation: Sequence[Example[Inputs]],
    settings: TrainingSettings,
    seed: int,
    report: Report,
    checkpoints: Path | None = None,
    fit: str = "",
    devices: int = 1,
) -> None:
    """Train `net`, a RankingNet, in place.

    Args:
        validation: what it stops early on. Without any it runs all epochs.
        checkpoints: a folder of this fit alone, in which its state is kept while it lasts; a fit
            that was stopped goes on from there and, on a CPU, ends with the same weights.
        fit: names the fit, so that it does not go on from what another one left.
        devices: of this machine, among which each step's graphs are divided.

    Raises InputError where a net cannot be trained on several devices.
    """
    given = (net, examples, validation, settings, seed, checkpoints, fit)
    if devices == 1:
        _train(Team(make_fabric()), report, *given)
        return
    if isinstance(net, Remembering):
        raise InputError(
            f"{type(net).__name__} remembers what it saw of each graph, so it cannot be trained on "
            f"{devices} devices: leave out --devices."
        )
    moved = (move_examples(part, "cpu") for part in (examples, validation))
    apart = (copy.deepcopy(net).cpu(), *moved, *given[3:])
    with lead(devices, pick_device().type, pick_precision(), _train_too, *apart) as team:
        _train(team, report, *given)


def _train_too(team: Team, *given: Any) -> None:
    """What the other processes of a fit do: the same, and they say nothing."""
    net, examples, validation, settings, seed, *rest = given
    net.to(team.fabric.device)
    torch.manual_seed(seed + 1000 * team.rank)  # of the units that are dropped
    here = [move_examples(part, team.fabric.device) for part in (examples, validation)]
    _train(team, silent, net, here[0], here[1], settings, seed, *rest)


def _train(
    team: Team,
    report: Report,
    net: nn.Module,
    examples: Sequence[Example[Inputs]],
    validation: Sequence[Example[Inputs]],
    settings: TrainingSettings,
    seed: int,
    checkpoints: Path | None,
    fit: str,
) -> None:
    optimizer = make_optimizer(net, settings)
    state = FitState(net, optimizer, seed, fit)
    if checkpoints is not None:
        state.go_on_from(checkpoints)
        for done, known, measures in state.history:
            note = f"validation {known:.3f}"
            report(done, settings.epochs, note, known, measures=measures)
    # Only what computes is wrapped: the state's own net keeps its names.
    wrapped, wrapped_optimizer = team.fabric.setup(net, optimizer)
    steps = Steps(
        team, wrapped, wrapped_optimizer, settings, state.generator, isinstance(net, Regularised)
    )
    team.wait()  # nobody writes a checkpoint that another one has not read
    note, kept_in = "", checkpoints if team.rank == 0 else None

    def look(share: float) -> None:
        if kept_in is not None:
            state.save_now_and_then(kept_in)
        report(state.epoch + share, settings.epochs, note)

    for _ in range(state.epoch, settings.epochs):
        loss, rate = steps.run_epoch(examples, state, look)
        score, measures, note = None, {"loss": loss}, f"loss {loss:.3f}"
        if len(validation):
            found = team.from_leader(
                lambda: validate(net, validation, steps.loss, settings.configs_per_graph)
            )
            score, measures = getattr(found, settings.chosen_by), measures | found.measures()
            state.keep_if_best(score, measures)
            note += f", validation {score:.3f}"
        state.epoch += 1
        report(state.epoch, settings.epochs, note, score, loss=loss, rate=rate, measures=measures)
        if settings.patience is not None and state.epochs_since_best >= settings.patience:
            break
        if kept_in is not None:
            state.save_now_and_then(kept_in)
    state.take_chosen_weights()


def make_optimizer(net: nn.Module, settings: TrainingSettings) -> torch.optim.Optimizer:
    """The optimizer of a name in OPTIMIZERS."""
    if settings.optimizer == "adam":
        return torch.optim.Adam(net.parameters(), lr=settings.learning_rate, fused=True)
    return torch.optim.AdamW(
        net.parameters(), lr=settings.learning_rate, weight_decay=settings.weight_decay, fused=True
    )


@dataclass
class Steps:
    """The optimizer's steps over the examples."""

    team: Team
    net: Any  # as Fabric wrapped it
    optimizer: Any
    settings: TrainingSettings
    generator: np.random.Generator
    is_regularised: bool
    memory: SpareMemory = field(default_factory=SpareMemory)

    def __post_init__(self) -> None:
        self.loss = blend(self.settings.loss, self.settings.regression)

    def run_epoch(
        self, examples: Sequence[Example[Inputs]], state: FitState, look: Callable[[float], None]
    ) -> tuple[float, float]:
        """Go on to the end of the state's epoch.

        Args:
            look: called now and then, between two steps, with the share of the epoch that is done.

        Returns the mean loss, and the configurations that were learned from per second.
        """
        self.net.train()
        settings, started = self.settings, time.perf_counter()
        if state.order is None:
            visits = list_visits([len(example.runtimes) for example in examples], settings)
            state.order = self.generator.permutation(visits)
        size, first, looked = settings.graphs_per_step, len(state.losses), started
        steps = -(-len(state.order) // size)
        for number in range(first, steps):
            if settings.optimizer == "adamw":
                factor = learning_rate_factor(state.epoch * steps + number, settings.epochs * steps)
                for group in self.optimizer.param_groups:
                    group["lr"] = factor * settings.learning_rate
            batch = state.order[number * size : (number + 1) * size]
            state.losses.append(self._step([examples[index] for index in batch]))
            self.memory.give_back()
            if number + 1 < steps and time.perf_counter() - looked > LOOK_SECONDS:
                looked = time.perf_counter()
                look((number + 1) / steps)
        loss, learned = float(np.mean(state.losses)), len(state.order) - first * size
        state.order, state.losses = None, []
        rate = learned * settings.configs_per_graph / (time.perf_counter() - started)
        return loss, rate

    def _step(self, examples: list[Example[Inputs]]) -> float:
        total = self.find_gradients(examples)
        if self.settings.optimizer == "adamw":
            nn.utils.clip_grad_norm_(self.net.parameters(), 1.0)
        self.optimizer.step()
        return total

    def find_gradients(self, examples: list[Example[Inputs]]) -> float:
        """Give the parameters the gradients of the graphs' mean loss; the loss."""
        self.optimizer.zero_grad(set_to_none=True)
        size, total = self.settings.configs_per_graph, 0.0
        # Drawn for all graphs in every process, so that all draw the same.
        drawn = [(e, sample(len(e.runtimes), size, self.generator)) for e in examples]
        for part in self._parts(self.team.share(drawn)):
            share = len(part) / len(examples)
            with self.team.fabric.autocast():
                loss, penalty = self._losses(part)
            self.team.fabric.backward(share * (loss + penalty))
            total += share * float(loss.detach())
        self.team.add_up(self.net.parameters())
        return self.team.sum_number(total)

    def _parts(self, drawn: Sequence[Drawn[Inputs]]) -> Iterator[list[Drawn[Inputs]]]:
        """Divide a step's graphs so that their activations fit; gradients add up to the same."""
        part: list[Drawn[Inputs]] = []
        values = 0
        for example, rows in drawn:
            size = self.net.count_values(example.inputs) * self.settings.configs_per_graph
            if part and values + size > MAX_VALUES:
                yield part
                part, values = [], 0
            part.append((example, rows))
            values += size
        if part:
            yield part

    def _losses(self, drawn: list[Drawn[Inputs]]) -> tuple[Tensor, Tensor | float]:
        """The loss of sampled configurations, and what the net adds to it."""
        runtimes = [example.runtimes[rows] for example, rows in drawn]
        batch = [example.inputs for example, _ in drawn]
        configs = np.stack([rows for _, rows in drawn], axis=1)
        penalty: Tensor | float = 0.0
        if self.is_regularised:
            scores, penalty = self.net.score_and_penalise(batch, configs)
        else:
            scores = self.net.score_batch(batch, configs)
        labels = torch.from_numpy(np.stack(runtimes, axis=1)).to(scores.device)
        return self.loss(scores.float(), labels), penalty


def list_visits(sizes: Sequence[int], settings: TrainingSettings) -> np.ndarray:
    """The graphs (visits,) that an epoch visits, each as often as `settings` says.

    Args:
        sizes: Distinct configurations of each graph.
    """
    full_steps = -(-np.asarray(sizes) // settings.configs_per_graph)
    visits = np.repeat(np.arange(len(sizes)), full_steps.clip(1, settings.visits))
    fewest = (settings.min_steps - 1) * settings.graphs_per_step + 1
    return np.tile(visits, -(-fewest // len(visits)))
