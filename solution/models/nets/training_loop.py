"""Train any net: rank sampled configurations of a few graphs at each step.

A net receives a batch of graphs with the same number of sampled configurations each and returns
scores (configs, graphs). The loss compares configurations of the same graph only. With early
stopping, the fit ends with the weights of the epoch that was best on validation graphs, otherwise
with the last weights. Lightning Fabric handles device and precision.

A *visit* is one use of a graph in an epoch: large graphs may be visited several times, each time
with newly sampled configurations. A *plan* holds index arrays that some nets build before they
compute a step (solution.models.nets.ranking_net.Planning).
"""

import math
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from lightning_fabric import Fabric
from torch import Tensor, nn

from solution.models.nets.checkpoint import FitState
from solution.models.nets.devices import make_fabric, send
from solution.models.nets.losses import blend
from solution.models.nets.ranking_net import Example, Inputs, Planning, Regularised
from solution.models.nets.training_settings import TrainingSettings
from solution.models.nets.validation import validate
from solution.system.memory import SpareMemory
from solution.system.report import Report

# share of all steps over which the learning rate rises
WARM_UP = 0.1
# a graph with more than MANY times as many configurations as are drawn is sampled without a
# permutation, which would be slow
MANY = 10
LOOK_SECONDS = 2.0  # minimum number of seconds between two reports of progress inside an epoch
MAX_VALUES = 1 << 22  # maximum number of values of a layer in memory in training: 16 MB
# number of steps whose index arrays other threads compute in advance, because computing them takes
# longer than the step on a GPU
PLANNED_AHEAD = 2
# fixed cost of a training step, in the unit of net.count_values, to estimate progress
STEP_VALUES = 1 << 13
# a graph, and the indices (configs,) of the configurations that are sampled from it for a step
Drawn = tuple[Example[Inputs], np.ndarray]


@dataclass
class Steps:
    """Runs the training steps of epochs: sample, plan, compute gradients, update weights."""

    fabric: Fabric
    net: Any  # the net in Fabric's wrapper, which sets the precision
    optimizer: Any
    settings: TrainingSettings
    unwrapped: nn.Module  # the net without Fabric's wrapper
    memory: SpareMemory = field(default_factory=SpareMemory)

    def __post_init__(self) -> None:
        self.loss = blend(self.settings.loss, self.settings.regression)
        # number of steps planned ahead: on a GPU, the CPU plans while the GPU computes
        self._ahead = PLANNED_AHEAD if works_by_itself(self.fabric.device) else 0

    def run_epoch(
        self, examples: Sequence[Example[Inputs]], state: FitState, look: Callable[[float], None]
    ) -> tuple[float, float]:
        """Run the epoch's steps that `state` has not taken yet; call `look` between two steps from
        time to time, with the share of the epoch's work that is done. Return the steps' mean loss,
        and the configurations learned from per second."""
        self.net.train()
        settings, started = self.settings, time.perf_counter()
        if state.order is None:
            visits = list_visits([len(example.runtimes) for example in examples], settings)
            state.order = state.generator.permutation(visits)
        size, first, looked = settings.graphs_per_step, len(state.losses), started
        steps, done = -(-len(state.order) // size), self._share_work(examples, state.order)
        with closing(self._plan_steps(examples, state)) as plans:
            for number, plan in enumerate(plans, first):
                if settings.optimizer == "adamw":
                    passed = state.epoch * steps + number
                    factor = learning_rate_factor(passed, settings.epochs * steps)
                    for group in self.optimizer.param_groups:
                        group["lr"] = factor * settings.learning_rate
                state.losses.append(self.take(plan))
                self.memory.give_back()
                if number + 1 < steps and time.perf_counter() - looked > LOOK_SECONDS:
                    looked = time.perf_counter()
                    look(float(done[number]))
        loss, learned = float(np.mean(state.read_losses())), len(state.order) - first * size
        state.order, state.losses = None, []
        rate = learned * settings.configs_per_graph / (time.perf_counter() - started)
        return loss, rate

    def _share_work(self, examples: Sequence[Example[Inputs]], order: np.ndarray) -> np.ndarray:
        """Return the share (steps,) of an epoch's work that is done after each step, estimated
        from the sizes of graphs, which differ a hundredfold. `order`: graphs (visits,) in training
        order."""
        work = np.array([self.net.count_values(example.inputs) for example in examples], float)
        starts = np.arange(0, len(order), self.settings.graphs_per_step)
        done = np.cumsum(np.add.reduceat(work[order], starts) + STEP_VALUES)
        return np.asarray(done / done[-1])

    def _plan_steps(
        self, examples: Sequence[Example[Inputs]], state: FitState
    ) -> Generator["Plan[Inputs]"]:
        """Yield the plan of each remaining step, on a GPU up to PLANNED_AHEAD steps ahead."""
        assert state.order is not None
        size = self.settings.graphs_per_step
        batches = [state.order[n : n + size] for n in range(0, len(state.order), size)]
        left = [[examples[index] for index in batch] for batch in batches[len(state.losses) :]]
        planned: deque[Plan[Inputs]] = deque()
        with ThreadPoolExecutor(max(1, self._ahead)) as pool:
            for step in range(len(left)):
                for graphs in left[step + len(planned) : step + self._ahead + 1]:
                    # The state, and so a checkpoint, holds the configurations that are drawn ahead,
                    # because a resumed fit must use them.
                    if len(state.drawn) == len(planned):
                        state.drawn.append(self._draw(graphs, state))
                    drawn = state.drawn[len(planned)]
                    planned.append(self.plan(graphs, drawn, pool if self._ahead else None))
                state.drawn.pop(0)
                yield planned.popleft()

    def _draw(self, graphs: Sequence[Example[Inputs]], state: FitState) -> np.ndarray:
        """Draw for each graph the configurations to learn from: indices (graphs, configs)."""
        size = self.settings.configs_per_graph
        return np.stack([sample(len(e.runtimes), size, state.generator) for e in graphs])

    def plan(
        self,
        graphs: Sequence[Example[Inputs]],
        rows: np.ndarray,
        ahead: ThreadPoolExecutor | None = None,
    ) -> "Plan[Inputs]":
        """Divide a training step into parts (see Plan). `rows`: (graphs, configs) configurations to
        learn from. The threads `ahead` begin to compute the net's index arrays immediately; if
        None, `take` computes them later."""
        parts = list(self._divide(list(zip(graphs, rows, strict=True))))
        return [(len(part) / len(graphs), part, self._begin(part, ahead)) for part in parts]

    def _begin(
        self, part: list[Drawn[Inputs]], ahead: ThreadPoolExecutor | None
    ) -> Callable[[], Any]:
        if not isinstance(self.unwrapped, Planning):
            return lambda: None
        plan = partial(self.unwrapped.plan, *_list_inputs(part))
        return ahead.submit(plan).result if ahead is not None else plan

    def take(self, plan: "Plan[Inputs]") -> Tensor:
        """Update the weights by one step; return its mean ranking loss (), which a GPU may still
        be computing."""
        total = self.find_gradients(plan)
        if self.settings.optimizer == "adamw":
            nn.utils.clip_grad_norm_(self.net.parameters(), 1.0)
        self.optimizer.step()
        return total

    def find_gradients(self, plan: "Plan[Inputs]") -> Tensor:
        """Compute gradients of ranking loss and regularisation; return the ranking loss ()."""
        self.optimizer.zero_grad(set_to_none=True)
        total = torch.zeros((), dtype=torch.float64, device=self.fabric.device)
        for share, part, planned in plan:
            with self.fabric.autocast():
                loss, penalty = self._find_losses(part, planned())
            self.fabric.backward(share * (loss + penalty))
            total += share * loss.detach().double()
        return total

    def _divide(self, drawn: Sequence[Drawn[Inputs]]) -> Iterator[list[Drawn[Inputs]]]:
        """Split a step's graphs into parts of at most MAX_VALUES values of a layer (or one graph).
        The gradients of all parts are summed."""
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

    def _find_losses(
        self, part: list[Drawn[Inputs]], planned: Any
    ) -> tuple[Tensor, Tensor | float]:
        """Return a part's ranking loss, and the net's regularisation term (0 if none)."""
        batch, configs = _list_inputs(part)
        penalty: Tensor | float = 0.0
        if isinstance(self.unwrapped, Regularised):
            scores, penalty = self.net.score_and_penalise(batch, configs)
        elif isinstance(self.unwrapped, Planning):
            scores = self.net.score_planned(batch, configs, planned)
        else:
            scores = self.net.score_batch(batch, configs)
        runtimes = np.stack([example.runtimes[rows] for example, rows in part], axis=1)
        return self.loss(scores.float(), send(runtimes, scores.device)), penalty


# Parts of a step: share of its graphs, its Drawn graphs, function that returns their index arrays.
Plan = list[tuple[float, list[Drawn[Inputs]], Callable[[], Any]]]


def _list_inputs(part: Sequence[Drawn[Inputs]]) -> tuple[list[Inputs], np.ndarray]:
    """Return the net's inputs of each graph, and the sampled configurations (configs, graphs)."""
    return [e.inputs for e, _ in part], np.stack([rows for _, rows in part], axis=1)


def works_by_itself(device: torch.device) -> bool:
    """Return True if the device computes asynchronously (a GPU), so that CPU cores are free to plan
    ahead. Without a GPU, other fits use these cores."""
    return device.type != "cpu"


def list_visits(sizes: Sequence[int], settings: TrainingSettings) -> np.ndarray:
    """Return the graph of each visit of an epoch: indices (visits,). A graph with sizes[i]
    configurations is visited sizes[i] / configs_per_graph times, rounded up, but at most `visits`
    times, and less often if the epoch would have more than max_steps steps. To reach min_steps,
    the whole list of visits is repeated."""
    full_steps = -(-np.asarray(sizes) // settings.configs_per_graph)
    times, most = full_steps.clip(1, settings.visits), settings.visits
    # lower the maximum of visits until the epoch has at most max_steps steps, or one visit a graph
    if settings.max_steps is not None:
        while most > 1 and times.sum() > settings.max_steps * settings.graphs_per_step:
            most -= 1
            times = times.clip(max=most)
    visits = np.repeat(np.arange(len(sizes)), times)
    fewest = (settings.min_steps - 1) * settings.graphs_per_step + 1
    return np.tile(visits, -(-fewest // len(visits)))


def learning_rate_factor(step: int, total: int) -> float:
    """Return the learning rate's factor: linear over the first tenth, then half a cosine."""
    warm_up = max(1, round(WARM_UP * total))
    if step < warm_up:
        return (step + 1) / warm_up
    return 0.5 * (1 + math.cos(math.pi * (step - warm_up) / max(1, total - warm_up)))


def sample(count: int, size: int, generator: np.random.Generator) -> np.ndarray:
    """Draw `size` of `count` indices (size,): none twice, or, if size > count, all about equally
    often."""
    # no permutation here: one of 100,040 configurations takes longer than the rest of a step
    if count > MANY * size:
        return generator.choice(count, size, replace=False)
    return np.resize(generator.permutation(count), size)


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
    """Train `net`, which follows the RankingNet protocol, in place. Without `validation` all epochs
    are run. The folder `checkpoints` holds the state of this fit, whose identity is `fit`; a
    stopped fit resumes there and, on a CPU, ends with the same weights."""
    optimizer = make_optimizer(net, settings)
    state = FitState(net, optimizer, seed, fit)
    if checkpoints is not None:
        state.go_on_from(checkpoints)
        for done, known, measures in state.history:
            note = f"validation {known:.3f}"
            report(done, settings.epochs, note, known, measures=measures, is_recalled=True)
    fabric, note = make_fabric(), ""
    # `state` keeps the unwrapped net, so that checkpoints have the net's own parameter names.
    wrapped, wrapped_optimizer = fabric.setup(net, optimizer)
    steps = Steps(fabric, wrapped, wrapped_optimizer, settings, net)

    def look(share: float) -> None:
        if checkpoints is not None:
            state.save_now_and_then(checkpoints)
        report(state.epoch + share, settings.epochs, note)

    for _ in range(state.epoch, settings.epochs):
        loss, rate = steps.run_epoch(examples, state, look)
        score, measures, note = None, {"loss": loss}, f"loss {loss:.3f}"
        if len(validation):
            found = validate(net, validation, steps.loss, settings.configs_per_graph)
            score, measures = getattr(found, settings.chosen_by), measures | found.measures()
            state.keep_if_best(score, measures)
            note += f", validation {score:.3f}"
        state.epoch += 1
        report(state.epoch, settings.epochs, note, score, loss=loss, rate=rate, measures=measures)
        if settings.patience is not None and state.epochs_since_best >= settings.patience:
            break
        if checkpoints is not None:
            state.save_now_and_then(checkpoints)
    state.take_chosen_weights()


def make_optimizer(net: nn.Module, settings: TrainingSettings) -> torch.optim.Optimizer:
    """Return the torch optimizer of the net's parameters that settings.optimizer names."""
    if settings.optimizer == "adam":
        return torch.optim.Adam(net.parameters(), lr=settings.learning_rate, fused=True)
    return torch.optim.AdamW(
        net.parameters(), lr=settings.learning_rate, weight_decay=settings.weight_decay, fused=True
    )
