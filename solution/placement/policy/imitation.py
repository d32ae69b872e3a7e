"""Begin with what searches found: the policy learns their decisions by cross-entropy, then by PPO.

Ours, after DOPPLER (2026): PPO from scratch ends with everything on one device, for every cut that
is not clean is worse than that.
"""

import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from itertools import permutations
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from solution.placement.evaluation import Evaluator
from solution.placement.machine import Machine
from solution.placement.policy.decisions import find_actions, find_fixed
from solution.placement.policy.inputs import Inputs, find_inputs
from solution.placement.policy.network import Given, Policy
from solution.placement.simulation.decision import Decision
from solution.system.progress import track

CLIP = 1.0  # of the gradient's norm


def make_optimizer(net: nn.Module, learning_rate: float) -> torch.optim.Adam:
    """Adam; where the net is on a GPU, one whose steps can be recorded."""
    device = next(net.parameters()).device
    if device.type != "cuda":
        return torch.optim.Adam(net.parameters(), lr=learning_rate)
    warnings.filterwarnings("ignore", ".*capturable=True", UserWarning)  # first steps are not
    rate = torch.tensor(learning_rate, device=device)  # a recorded step reads it there
    return torch.optim.Adam(net.parameters(), lr=rate, capturable=True)


def set_rate(optimizer: torch.optim.Adam, rate: float) -> None:
    """The learning rate of the steps to come."""
    for group in optimizer.param_groups:
        if isinstance(group["lr"], Tensor):
            group["lr"].fill_(rate)
        else:
            group["lr"] = rate


@contextmanager
def beside_the_default(device: torch.device) -> Iterator[None]:
    """On a GPU all is computed in a stream of its own: in the default one nothing is recorded."""
    if device.type != "cuda":
        yield
        return
    default, own = torch.cuda.current_stream(device), torch.cuda.Stream(device)
    own.wait_stream(default)
    with torch.cuda.stream(own):
        yield
    default.wait_stream(own)


class StepRunner:
    """Takes a step of the optimizer for one lesson after another.

    A small net on one graph at a time is some thousand kernels of a few microseconds each, and a
    GPU waits for Python to launch them. So the first time that a lesson comes its step is done as
    written, the second time it is recorded as a CUDA graph, and from then on that is replayed. The
    recordings share their memory: they run one after the other, and of one of them nothing lasts
    but the weights and what the optimizer remembers.

    Args:
        find_loss: of a lesson that is where the net is; it must not wait for the GPU.
    """

    def __init__(
        self, optimizer: torch.optim.Optimizer, find_loss: Callable[[Any], Tensor]
    ) -> None:
        self.optimizer, self.find_loss = optimizer, find_loss
        self._parameters = [own for group in optimizer.param_groups for own in group["params"]]
        self._seen: dict[int, Any] = {}  # by identity, which is theirs as long as they are here
        self._recorded: dict[int, tuple[torch.cuda.CUDAGraph, Tensor]] = {}
        self._memory: Any = None

    def __call__(self, lesson: Any) -> Tensor:
        """The loss before the step, where the net is."""
        key = id(lesson)
        if not self._parameters[0].is_cuda or key not in self._seen:
            self._seen[key] = lesson
            return self._step(lesson)
        if key not in self._recorded:
            self._recorded[key] = self._record(lesson)
        graph, loss = self._recorded[key]
        graph.replay()
        return loss.clone()

    def _record(self, lesson: Any) -> tuple[torch.cuda.CUDAGraph, Tensor]:
        """Nothing is computed meanwhile."""
        if self._memory is None:
            self._memory = torch.cuda.graph_pool_handle()
        graph = torch.cuda.CUDAGraph()
        self.optimizer.zero_grad()  # so that gradients, too, are in the memory of the recordings
        graph.capture_begin(self._memory, capture_error_mode="thread_local")
        loss = self._step(lesson)
        graph.capture_end()
        return graph, loss

    def _step(self, lesson: Any) -> Tensor:
        loss = self.find_loss(lesson)
        self.optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self._parameters, CLIP)
        self.optimizer.step()
        return loss.detach()


EVEN, MOST = 0.3, 30.0  # of the weights of nodes: what all have; times the mean at most


@dataclass(frozen=True, eq=False)
class Lesson:
    """A graph, and a decision of it that is good."""

    evaluator: Evaluator
    inputs: Inputs
    names: Tensor  # (ways, devices) int64: how else those that are alike may be called
    actions: dict[str, Tensor]  # (1, nodes) int64 a task that is asked for
    fixed: dict[str, Tensor]  # (1, nodes) int64 a task that is not
    # (nodes,) float32 a task in which something is decided: how much a node's action counts. They
    # add up to 1; of the placement those of all nodes whose device is decided are above 0.
    weights: dict[str, Tensor]


def make_lesson(evaluator: Evaluator, decision: Decision) -> Lesson:
    """The decision as actions."""
    inputs = find_inputs(evaluator.graph)
    actions = find_actions(evaluator.graph, decision)
    marks = {task: own.float() for task, own in inputs.decides.items()}
    if "placement" in evaluator.tasks and len(evaluator.machine) > 1:
        marks["placement"] = torch.from_numpy(weigh_devices(evaluator, decision))
    taken = {task: own for task, own in actions.items() if task in evaluator.tasks}
    weights = {task: marks[task] / marks[task].sum() for task in taken if marks[task].any()}
    names = find_names(evaluator.machine)
    return Lesson(evaluator, inputs, names, taken, find_fixed(evaluator), weights)


@lru_cache
def find_names(machine: Machine) -> Tensor:
    """All ways (ways, devices) int64 to call the devices so that each stays of its kind.

    Of eight devices, as many as a policy knows, there are 40,320.
    """
    own = machine.devices
    ways = permutations(range(len(own)))
    return torch.tensor([way for way in ways if all(own[a] == own[b] for a, b in enumerate(way))])


def weigh_devices(evaluator: Evaluator, decision: Decision) -> np.ndarray:
    """Weights (nodes,) float32 of mean 1 over the nodes whose device is decided.

    EVEN of it goes to all alike, the rest by how much longer the step takes with the node alone on
    the next device: most nodes are light, and to have one heavy node astray may cost as much as the
    whole division gains.
    """
    graph, devices = evaluator.graph, len(evaluator.machine)
    nodes, runtime = np.flatnonzero(graph.decides_device), evaluator.environment.runtime
    placement, seconds = decision.placement[graph.leaders], runtime(decision).seconds
    losses = np.zeros(graph.num_nodes)
    for node in nodes:
        moved = placement.copy()
        moved[node] = (moved[node] + 1) % devices
        other = runtime(replace(decision, placement=moved[graph.leaders]))
        losses[node] = max(other.seconds / seconds - 1, 0)
    shares = losses / max(losses.sum(), 1e-30) * len(nodes)
    weights = np.where(graph.decides_device, EVEN + (1 - EVEN) * np.minimum(shares, MOST), 0)
    return (weights / weights[nodes].mean()).astype(np.float32)


def call_as_the_policy(lesson: Lesson, log_chances: Tensor) -> Tensor:
    """The devices (1, nodes), those that are alike called as the policy most likely calls them.

    Which of them is the first means nothing; a policy that is told the names of each lesson learns
    that every division is as good the other way round, and decides for neither. All ways are
    tried: that nobody waits for a GPU's answer is worth more than the least number of sums.

    Args:
        log_chances: (1, nodes, devices or more) of the policy.
    """
    devices, placement = lesson.names.shape[1], lesson.actions["placement"]
    if "placement" not in lesson.weights:
        return placement
    chances = log_chances.detach()[0, :, :devices].double()
    decided = (lesson.weights["placement"] > 0).double()
    parts = nn.functional.one_hot(placement[0], devices).double() * decided[:, None]
    called = parts.T @ chances  # of the nodes of each part, by each name
    cells = lesson.names + devices * torch.arange(devices, device=called.device)
    best = called.flatten()[cells].sum(dim=1).argmax(keepdim=True)
    return lesson.names.index_select(0, best)[0].index_select(0, placement[0])[None]


class Imitation:
    """Learns lessons in turn, in an order drawn anew each time.

    Attributes:
        done: steps so far.
        losses: of each of them, but of those since the last that was kept.
        optimizer: what is to be kept of it, beside the policy and these two, to go on.
    """

    def __init__(self, policy: Policy, steps: int, learning_rate: float, seed: int = 0) -> None:
        self.policy, self.steps, self.learning_rate, self.seed = policy, steps, learning_rate, seed
        self.optimizer = make_optimizer(policy, learning_rate)
        self.done = 0
        self.losses: list[float] = []

    def learn(
        self, lessons: Sequence[Lesson], keep: Callable[[], None] | None = None, every: int = 500
    ) -> None:
        """Go on to the last step.

        Args:
            keep: called after each `every` steps.
        """
        order = draw_order(len(lessons), self.steps, self.seed)
        run = StepRunner(self.optimizer, partial(find_loss, self.policy))
        device = self.policy.mean.device
        moved = move_lessons(lessons, device)
        losses: list[Tensor] = []
        with (
            beside_the_default(device),
            track(range(self.done, self.steps), "Imitating") as turns,
        ):
            for step in turns:
                set_rate(self.optimizer, self._find_rate())
                losses.append(run(moved[order[step]]))
                self.done += 1
                if self.done % every == 0 or self.done == self.steps:
                    self.losses += torch.stack(losses).tolist()
                    losses.clear()
                    if keep is not None and self.done % every == 0:
                        keep()

    def _find_rate(self) -> float:
        return self.learning_rate * (1 + math.cos(math.pi * self.done / self.steps)) / 2


def draw_order(lessons: int, steps: int, seed: int) -> np.ndarray:
    """Which lesson in which step: (steps,) numbers; each once before any comes again."""
    random = np.random.default_rng(seed)
    rounds = [random.permutation(lessons) for _ in range(-(-steps // lessons))]
    return np.concatenate([np.zeros(0, np.int64), *rounds])[:steps]


def move_lessons(lessons: Sequence[Lesson], device: torch.device) -> list[Lesson]:
    """The same on another device; what lessons share stays shared."""
    inputs = {id(own): own.to(device) for own in (lesson.inputs for lesson in lessons)}
    names = {id(own): own.to(device) for own in (lesson.names for lesson in lessons)}
    return [
        Lesson(lesson.evaluator, inputs[id(lesson.inputs)], names[id(lesson.names)],
               *({task: own.to(device) for task, own in part.items()}
                 for part in (lesson.actions, lesson.fixed, lesson.weights)))
        for lesson in lessons
    ]  # fmt: skip


def find_loss(policy: Policy, lesson: Lesson) -> Tensor:
    """Cross-entropy of a node, summed over the tasks.

    Nothing in it asks a GPU for an answer, so that a step can be kept as one CUDA graph.
    """
    given: dict[str, Given] = dict(lesson.actions)
    if "placement" in given:
        given["placement"] = partial(call_as_the_policy, lesson)
    choices = policy(lesson.inputs, lesson.names.shape[1], 1, given, fixed=lesson.fixed)
    parts = [-choices[task].of_actions()[0] @ own for task, own in lesson.weights.items()]
    return torch.stack(parts).sum()
