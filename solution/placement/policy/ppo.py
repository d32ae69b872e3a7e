"""Proximal policy optimisation of a decision that is made in one step, for graphs.

Source: Schulman et al., "Proximal Policy Optimization Algorithms" (2017). A product of ratios over
10,000 nodes is 0 or infinite after one step, so a decision's ratio is the geometric mean over its
nodes, as Zheng et al., "Group Sequence Policy Optimization" (2025), have it for words. Clipped a
node, what follows the decision's advantage is clipped and what chance had against it is not: the
second step undoes the first. The advantage of a decision is its reward among those drawn for the
same graph, so no value has to be learned.
"""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from solution.features.nodes import fit_scaler
from solution.models.nets.checkpoint import (
    flatten_optimizer,
    load_checkpoint,
    restore_optimizer,
    save_checkpoint,
    seal_tensors,
    with_prefix,
    without_prefix,
)
from solution.placement.evaluation import Evaluator
from solution.placement.policy.decisions import (
    TRIES,
    evaluate_mended,
    find_fixed,
    make_decision,
    pack_decision,
    unpack_decision,
)
from solution.placement.policy.inputs import find_inputs
from solution.placement.policy.network import Choice, Policy
from solution.placement.policy.settings import PolicySettings, TrainingSettings
from solution.system.files import make_folder


def find_gain(change: Tensor, advantages: Tensor, ratio: str, clip: float) -> Tensor:
    """The mean gain that is expected of a policy that has changed.

    Args:
        change: (decisions, parts) of the logarithm of each part's probability.
        advantages: (decisions,) by how much each was better than others.
        ratio: what is clipped: "mean", the geometric mean over a decision's parts; "graph", the
            product over them; "node", each part's.
        clip: a ratio counts from 1 - clip to 1 + clip; 0: however large it is.
    """
    if ratio == "graph":
        change = change.sum(dim=1, keepdim=True)
    elif ratio == "mean":
        change = change.mean(dim=1, keepdim=True)
    ratios, advantages = change.exp(), advantages[:, None]
    gain = ratios * advantages
    if clip > 0:
        gain = torch.minimum(gain, ratios.clamp(1 - clip, 1 + clip) * advantages)
    return gain.mean()


@dataclass(frozen=True)
class Update:
    """What one update of one graph did."""

    number: int
    graph: str
    mean_reward: float
    best_seconds: float
    entropy: float  # of a node, in nats
    seconds: float  # of the clock


Watch = Callable[[Update], None]


def ignore(update: Update) -> None:
    """Watch nothing."""


class Trainer:
    """A policy in training on some graphs; the same settings give the same policy.

    Args:
        budget: evaluations that each evaluator may have counted at the end; None: any number.
    """

    def __init__(
        self,
        policy: Policy,
        evaluators: Sequence[Evaluator],
        settings: TrainingSettings,
        budget: int | None = None,
    ) -> None:
        self.policy, self.evaluators, self.settings = policy, list(evaluators), settings
        self.budget = budget
        self._name = self._describe()
        self.optimizer = torch.optim.Adam(policy.parameters(), lr=settings.learning_rate)
        self.generator = torch.Generator().manual_seed(settings.seed)
        self.done = 0

    def train(self, watch: Watch = ignore, folder: Path | None = None, every: int = 10) -> None:
        """Go on to the last update.

        Args:
            folder: where checkpoints lie, one each `every` updates; a training that was stopped
                goes on from the last one with the same decisions.
        """
        if folder is not None:
            self.resume(folder)
        while not self.is_done:
            self.update(watch)
            if folder is not None and (self.done % every == 0 or self.is_done):
                self.save(folder)

    @property
    def is_done(self) -> bool:
        used = max(len(evaluator.curve) for evaluator in self.evaluators)
        spent = self.budget is not None and self.budget - used < self.settings.samples
        return spent or self.done >= self.settings.updates

    def update(self, watch: Watch = ignore) -> None:
        """Draw, evaluate and learn once, for the next graphs in turn."""
        for turn in range(self.settings.graphs):
            place = (self.done * self.settings.graphs + turn) % len(self.evaluators)
            watch(self._learn(self.evaluators[place]))
        self.done += 1

    def _learn(self, evaluator: Evaluator) -> Update:
        began, settings = time.perf_counter(), self.settings
        inputs, devices = find_inputs(evaluator.graph), len(evaluator.machine)
        fixed = find_fixed(evaluator)
        with torch.no_grad():
            drawn = self.policy(inputs, devices, settings.samples, generator=self.generator,
                                fixed=fixed)  # fmt: skip
        before = {task: choice.of_actions() for task, choice in drawn.items()}
        rewards = np.array([self._reward(evaluator, drawn, k) for k in range(settings.samples)])
        spread = rewards.std()
        advantages = torch.from_numpy((rewards - rewards.mean()) / max(spread, 1e-8)).float()
        given = {task: choice.actions for task, choice in drawn.items()}
        entropy = 0.0
        for _ in range(settings.epochs if spread > 1e-8 else 0):
            choices = self.policy(inputs, devices, settings.samples, given, fixed=fixed)
            loss, entropy = self._find_loss(choices, before, inputs.decides, advantages)
            self.optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(self.policy.parameters(), settings.gradient_norm)
            self.optimizer.step()
        clock = time.perf_counter() - began
        return Update(self.done, evaluator.graph.name, float(rewards.mean()), evaluator.seconds,
                      entropy, clock)  # fmt: skip

    def _reward(self, evaluator: Evaluator, drawn: dict[str, Choice], place: int) -> float:
        later = self.settings.samples - place - 1  # decisions that have one evaluation each
        left = TRIES if self.budget is None else self.budget - len(evaluator.curve) - later
        most = min(TRIES, left) if self.settings.repair else 1
        decision = make_decision(evaluator.base, drawn, place)
        seconds = evaluate_mended(evaluator, decision, most)[1]
        return evaluator.reward(seconds, self.settings.penalty)

    def _find_loss(
        self,
        choices: dict[str, Choice],
        before: dict[str, Tensor],
        decides: dict[str, Tensor],
        advantages: Tensor,
    ) -> tuple[Tensor, float]:
        """The loss, and the entropy of a node."""
        settings = self.settings
        weight = settings.entropy * (1 - self.done / settings.updates)
        loss, entropies = torch.zeros(()), []
        for task, choice in choices.items():
            marks = decides[task]
            if not marks.any():
                continue
            change = (choice.of_actions() - before[task])[:, marks]
            gain = find_gain(change, advantages, settings.ratio, settings.clip)
            entropy = choice.entropy()[:, marks].mean()
            # All nodes share an advantage, and one's part in it is about 1 / sqrt(nodes): a bonus
            # that does not shrink as much is all that many nodes follow.
            loss = loss - gain - weight / math.sqrt(int(marks.sum())) * entropy
            entropies.append(entropy.item())
        return loss, float(np.mean(entropies)) if entropies else 0.0

    def save(self, folder: Path) -> None:
        """Write a checkpoint."""
        make_folder(folder)
        tensors = {
            **with_prefix("policy.", self.policy.state_dict()),
            **with_prefix("optimizer.", flatten_optimizer(self.optimizer)),
            "generator": self.generator.get_state(),
        }
        for place, evaluator in enumerate(self.evaluators):
            if evaluator.best is not None:
                tensors |= pack_decision(f"best.{place}.", evaluator.best)
        curves = [evaluator.curve for evaluator in self.evaluators]
        save_checkpoint(folder, tensors, {"fit": self._name, "done": self.done, "curves": curves})

    def resume(self, folder: Path) -> None:
        """Go on from a checkpoint of the same training, if there is one."""
        found = load_checkpoint(folder, self._name)
        if found is None:
            return
        tensors, record = found
        self.policy.load_state_dict(without_prefix("policy.", tensors))
        restore_optimizer(self.optimizer, without_prefix("optimizer.", tensors))
        self.generator.set_state(tensors["generator"])
        self.done = record["done"]
        curves = zip(self.evaluators, record["curves"], strict=True)
        for place, (evaluator, curve) in enumerate(curves):
            evaluator.restore(unpack_decision(f"best.{place}.", tensors), curve)

    def _describe(self) -> str:
        """Which training it is; of another policy to begin with it is another."""
        graphs = [(e.graph.name, len(e.machine), e.tasks) for e in self.evaluators]
        begin = seal_tensors(self.policy.state_dict(), "")
        settings = asdict(self.settings), asdict(self.policy.settings)
        return repr((*settings, graphs, self.budget, begin))


def make_policy(settings: PolicySettings, evaluators: Sequence[Evaluator]) -> Policy:
    """One that knows nothing but the scale of the inputs of these questions."""
    policy = Policy(settings)
    scaler = fit_scaler(find_inputs(evaluator.graph).columns.numpy() for evaluator in evaluators)
    policy.set_scale(torch.from_numpy(scaler.mean), torch.from_numpy(scaler.scale))
    return policy
