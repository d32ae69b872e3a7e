"""Imitate decisions found by search: train the policy by cross-entropy, before PPO.

This follows DOPPLER (2026). PPO from scratch ends with all nodes on one device, because almost
every partition is slower than that.
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
from solution.placement.policy.graph_inputs import Inputs, find_inputs
from solution.placement.policy.network import Given, Policy
from solution.placement.simulation.decision import Decision
from solution.system.progress import track

CLIP = 1.0  # maximum norm of the gradient


def make_optimizer(net: nn.Module, learning_rate: float) -> torch.optim.Adam:
    """Return an Adam optimizer; on a GPU, its steps can be captured in a CUDA graph."""
    device = next(net.parameters()).device
    if device.type != "cuda":
        return torch.optim.Adam(net.parameters(), lr=learning_rate)
    # hide the warning about steps without a capture, such as the first step on an instance
    warnings.filterwarnings("ignore", ".*capturable=True", UserWarning)
    # a tensor, because a captured step reads the learning rate from the GPU's memory
    rate = torch.tensor(learning_rate, device=device)
    return torch.optim.Adam(net.parameters(), lr=rate, capturable=True)


def set_rate(optimizer: torch.optim.Adam, rate: float) -> None:
    """Set the learning rate of the following steps."""
    for group in optimizer.param_groups:
        if isinstance(group["lr"], Tensor):
            group["lr"].fill_(rate)
        else:
            group["lr"] = rate


@contextmanager
def separate_stream(device: torch.device) -> Iterator[None]:
    """Use a separate CUDA stream in the block, because CUDA cannot capture the default one."""
    if device.type != "cuda":
        yield
        return
    default, stream = torch.cuda.current_stream(device), torch.cuda.Stream(device)
    stream.wait_stream(default)
    with torch.cuda.stream(stream):
        yield
    default.wait_stream(stream)


class StepRunner:
    """A callable that takes optimizer steps on training instances, on a GPU by replaying CUDA
    graphs. `find_loss` must not synchronise with the GPU.

    A small net on one graph takes some thousand kernels of a few microseconds each, which Python
    would launch too slowly. The first step on an instance runs normally, the second is captured,
    later steps replay it. The graphs share a memory pool, because only weights and optimizer state
    outlive a step.
    """

    def __init__(
        self, optimizer: torch.optim.Optimizer, find_loss: Callable[[Any], Tensor]
    ) -> None:
        self.optimizer, self.find_loss = optimizer, find_loss
        self._parameters = [
            parameter for group in optimizer.param_groups for parameter in group["params"]
        ]
        # The instances, by id(). Keeping them here keeps the ids unique.
        self._seen: dict[int, Any] = {}
        self._recorded: dict[int, tuple[torch.cuda.CUDAGraph, Tensor]] = {}
        self._memory: Any = None

    def __call__(self, instance: Any) -> Tensor:
        """Take a step and return the loss before it, on the net's device."""
        key = id(instance)
        if not self._parameters[0].is_cuda or key not in self._seen:
            self._seen[key] = instance
            return self._step(instance)
        if key not in self._recorded:
            self._recorded[key] = self._record(instance)
        graph, loss = self._recorded[key]
        graph.replay()
        return loss.clone()

    def _record(self, instance: Any) -> tuple[torch.cuda.CUDAGraph, Tensor]:
        """Capture a step on the instance; return the CUDA graph, and the tensor of its loss."""
        if self._memory is None:
            self._memory = torch.cuda.graph_pool_handle()
        graph = torch.cuda.CUDAGraph()
        # Clear the gradients, so that the captured step allocates them in the graphs' memory pool.
        self.optimizer.zero_grad()
        graph.capture_begin(self._memory, capture_error_mode="thread_local")
        loss = self._step(instance)
        graph.capture_end()
        return graph, loss

    def _step(self, instance: Any) -> Tensor:
        loss = self.find_loss(instance)
        self.optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self._parameters, CLIP)
        self.optimizer.step()
        return loss.detach()


# In weigh_devices: the part of the weight that is equal for all nodes; cap on delay / mean delay.
EVEN, MOST = 0.3, 30.0


@dataclass(frozen=True, eq=False)
class TrainingInstance:
    """A training instance: a graph on a machine, and a good decision to imitate."""

    evaluator: Evaluator
    inputs: Inputs
    names: Tensor  # (renamings, devices) int64: allowed device numbers, see list_renamings
    actions: dict[str, Tensor]  # (1, nodes) int64 per decided task: the actions to imitate
    fixed: dict[str, Tensor]  # (1, nodes) int64 per task that is not decided: its actions
    weights: dict[str, Tensor]  # (nodes,) float32 per decided task: weights in the loss, sum 1


def make_instance(evaluator: Evaluator, decision: Decision) -> TrainingInstance:
    """Return the training instance for imitating `decision`."""
    inputs = find_inputs(evaluator.graph)
    actions = find_actions(evaluator.graph, decision)
    marks = {task: values.float() for task, values in inputs.decides.items()}
    if "placement" in evaluator.tasks and len(evaluator.machine) > 1:
        marks["placement"] = torch.from_numpy(weigh_devices(evaluator, decision))
    taken = {task: values for task, values in actions.items() if task in evaluator.tasks}
    weights = {task: marks[task] / marks[task].sum() for task in taken if marks[task].any()}
    names = list_renamings(evaluator.machine)
    return TrainingInstance(evaluator, inputs, names, taken, find_fixed(evaluator), weights)


@lru_cache
def list_renamings(machine: Machine) -> Tensor:
    """Return all renumberings of the machine's devices that keep each device's type: permutations
    (renamings, devices) int64. Eight equal devices, the maximum, have 40,320."""
    devices = machine.devices
    ways = permutations(range(len(devices)))
    return torch.tensor(
        [way for way in ways if all(devices[a] == devices[b] for a, b in enumerate(way))]
    )


def weigh_devices(evaluator: Evaluator, decision: Decision) -> np.ndarray:
    """Return each node's weight (nodes,) float32 in the training loss of the placement.

    A node's delay (`losses`) is the share by which the program takes longer if only this node moves
    to the next device. weight = EVEN + (1 - EVEN) * min(delay / mean delay, MOST), then divided by
    the mean weight. Weights are needed because most nodes are light, and one misplaced heavy node
    may cost what the whole partition gains.
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


def rename_devices(instance: TrainingInstance, log_chances: Tensor) -> Tensor:
    """Return the instance's devices (1, nodes), with equal devices renumbered to be likeliest under
    the policy's `log_chances` (1, nodes, devices or more).

    The numbers of equal devices mean nothing: a policy trained on each instance's numbers would
    learn that all permutations of a partition are equally good. All renumberings are scored,
    because that needs no synchronisation with a GPU, unlike an assignment algorithm.
    """
    devices, placement = instance.names.shape[1], instance.actions["placement"]
    if "placement" not in instance.weights:
        return placement
    chances = log_chances.detach()[0, :, :devices].double()
    decided = (instance.weights["placement"] > 0).double()
    parts = nn.functional.one_hot(placement[0], devices).double() * decided[:, None]
    # (devices, new numbers): log probability of the new number, summed over the device's nodes
    called = parts.T @ chances
    cells = instance.names + devices * torch.arange(devices, device=called.device)
    best = called.flatten()[cells].sum(dim=1).argmax(keepdim=True)
    return instance.names.index_select(0, best)[0].index_select(0, placement[0])[None]


class Imitation:
    """A training of a policy to imitate instances, one per step, in a new random order in each
    epoch. To resume, save `done`, `losses` and the optimizer's state with the policy."""

    def __init__(self, policy: Policy, steps: int, learning_rate: float, seed: int = 0) -> None:
        self.policy, self.steps, self.learning_rate, self.seed = policy, steps, learning_rate, seed
        self.optimizer = make_optimizer(policy, learning_rate)
        self.done = 0
        self.losses: list[float] = []

    def learn(
        self,
        instances: Sequence[TrainingInstance],
        keep: Callable[[], None] | None = None,
        every: int = 500,
    ) -> None:
        """Take the steps that are left; call `keep` after each `every` steps."""
        order = draw_order(len(instances), self.steps, self.seed)
        run = StepRunner(self.optimizer, partial(find_loss, self.policy))
        device = self.policy.mean.device
        moved = move_instances(instances, device)
        losses: list[Tensor] = []
        with separate_stream(device), track(range(self.done, self.steps), "Imitating") as turns:
            for step in turns:
                set_rate(
                    self.optimizer,
                    self.learning_rate * (1 + math.cos(math.pi * self.done / self.steps)) / 2,
                )
                losses.append(run(moved[order[step]]))
                self.done += 1
                if self.done % every == 0 or self.done == self.steps:
                    self.losses += torch.stack(losses).tolist()
                    losses.clear()
                    if keep is not None and self.done % every == 0:
                        keep()


def draw_order(instances: int, steps: int, seed: int) -> np.ndarray:
    """Return each step's index of an instance (steps,); every instance comes once per epoch."""
    random = np.random.default_rng(seed)
    rounds = [random.permutation(instances) for _ in range(-(-steps // instances))]
    return np.concatenate([np.zeros(0, np.int64), *rounds])[:steps]


def move_instances(
    instances: Sequence[TrainingInstance], device: torch.device
) -> list[TrainingInstance]:
    """Return the instances on a torch device; tensors that instances share stay shared."""
    inputs = {id(value): value.to(device) for value in (instance.inputs for instance in instances)}
    names = {id(value): value.to(device) for value in (instance.names for instance in instances)}
    return [
        TrainingInstance(instance.evaluator, inputs[id(instance.inputs)], names[id(instance.names)],
               *({task: value.to(device) for task, value in part.items()}
                 for part in (instance.actions, instance.fixed, instance.weights)))
        for instance in instances
    ]  # fmt: skip


def find_loss(policy: Policy, instance: TrainingInstance) -> Tensor:
    """Return the cross-entropy of the instance's actions: weighted mean over nodes, sum over tasks.
    It never synchronises with the GPU, so a step can be captured."""
    given: dict[str, Given] = dict(instance.actions)
    if "placement" in given:
        given["placement"] = partial(rename_devices, instance)
    choices = policy(instance.inputs, instance.names.shape[1], 1, given, fixed=instance.fixed)
    parts = [-choices[task].of_actions()[0] @ weights for task, weights in instance.weights.items()]
    return torch.stack(parts).sum()
