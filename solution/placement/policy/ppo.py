"""Proximal policy optimisation of graph decisions that are made in one step.

Source: Schulman et al., "Proximal Policy Optimization Algorithms" (2017). PPO clips the ratio of a
decision's new to its old probability. The product of 10,000 nodes' ratios is 0 or infinite after
one step, so a decision's ratio is the geometric mean over its nodes, as Zheng et al., "Group
Sequence Policy Optimization" (2025), use it for tokens. With clipping per node, changes along a
decision's advantage are clipped but random changes against it are not, so the second step undoes
the first. The advantage of a decision is its reward relative to the other samples of the same
graph, so no value function is needed.
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
from solution.models.nets import checkpoint
from solution.placement.evaluation import Evaluator
from solution.placement.policy import decisions
from solution.placement.policy.graph_inputs import find_inputs
from solution.placement.policy.network import Policy, PolicyChoice
from solution.placement.policy.policy_settings import PolicySettings, PolicyTraining
from solution.system.files import make_folder


def find_gain(change: Tensor, advantages: Tensor, ratio: str, clip: float) -> Tensor:
    """Return the mean of PPO's clipped surrogate objective. `change`: (decisions, nodes) new log
    probability of each action - old. `advantages`: (decisions,). `ratio`, `clip`: see
    PolicyTraining."""
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
    """Statistics of one update on one graph."""

    number: int
    graph: str
    mean_reward: float
    best_seconds: float
    entropy: float  # mean entropy of the actions, in nats per node
    seconds: float  # wall-clock time of the update


Watch = Callable[[Update], object]


class Trainer:
    """A training of a policy by PPO on some graphs; equal settings give equal policies. `budget`:
    maximum number of evaluations of each evaluator; None: no limit."""

    def __init__(
        self,
        policy: Policy,
        evaluators: Sequence[Evaluator],
        settings: PolicyTraining,
        budget: int | None = None,
    ) -> None:
        self.policy, self.evaluators, self.settings = policy, list(evaluators), settings
        self.budget = budget
        self._name = self._describe()
        self.optimizer = torch.optim.Adam(policy.parameters(), lr=settings.learning_rate)
        self.generator = torch.Generator().manual_seed(settings.seed)
        self.done = 0

    def train(
        self, watch: Watch = lambda _: None, folder: Path | None = None, every: int = 10
    ) -> None:
        """Make the updates that are left; `watch` gets the statistics of each. A checkpoint is
        written to `folder` after each `every` updates; an interrupted training resumes from it and
        makes the same decisions."""
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

    def update(self, watch: Watch = lambda _: None) -> None:
        """Make one update: on each of the next graphs, evaluate sampled decisions and learn."""
        for turn in range(self.settings.graphs):
            index = (self.done * self.settings.graphs + turn) % len(self.evaluators)
            watch(self._learn(self.evaluators[index]))
        self.done += 1

    def _learn(self, evaluator: Evaluator) -> Update:
        began, settings = time.perf_counter(), self.settings
        inputs, devices = find_inputs(evaluator.graph), len(evaluator.machine)
        fixed = decisions.find_fixed(evaluator)
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

    def _reward(self, evaluator: Evaluator, drawn: dict[str, PolicyChoice], number: int) -> float:
        later = self.settings.samples - number - 1  # decisions still to come, one evaluation each
        left = (
            decisions.TRIES if self.budget is None else self.budget - len(evaluator.curve) - later
        )
        most = min(decisions.TRIES, left) if self.settings.repair else 1
        decision = decisions.make_decision(evaluator.base, drawn, number)
        seconds = decisions.evaluate_repaired(evaluator, decision, most)[1]
        return evaluator.reward(seconds, self.settings.penalty)

    def _find_loss(
        self,
        choices: dict[str, PolicyChoice],
        before: dict[str, Tensor],
        decides: dict[str, Tensor],
        advantages: Tensor,
    ) -> tuple[Tensor, float]:
        """Return the loss of `choices`, and the mean entropy per node in nats. `before`: by task,
        the actions' log probabilities (decisions, nodes) under the policy that sampled them.
        `decides`: by task, mask (nodes,) of the nodes that choose an action. `advantages`:
        (decisions,)."""
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
            # divided by sqrt(nodes), because a node's part of the advantage falls by this factor
            loss = loss - gain - weight / math.sqrt(int(marks.sum())) * entropy
            entropies.append(entropy.item())
        return loss, float(np.mean(entropies)) if entropies else 0.0

    def save(self, folder: Path) -> None:
        """Write a checkpoint of the policy, the optimizer, the random state and the evaluations."""
        make_folder(folder)
        tensors = {
            **checkpoint.with_prefix("policy.", self.policy.state_dict()),
            **checkpoint.with_prefix("optimizer.", checkpoint.flatten_optimizer(self.optimizer)),
            "generator": self.generator.get_state(),
        }
        for index, evaluator in enumerate(self.evaluators):
            if evaluator.best is not None:
                tensors |= decisions.pack_decision(f"best.{index}.", evaluator.best)
        curves = [evaluator.curve for evaluator in self.evaluators]
        checkpoint.save_checkpoint(
            folder, tensors, {"fit": self._name, "done": self.done, "curves": curves}
        )

    def resume(self, folder: Path) -> None:
        """Resume from a checkpoint of the same training, if there is one."""
        found = checkpoint.load_checkpoint(folder, self._name)
        if found is None:
            return
        tensors, record = found
        self.policy.load_state_dict(checkpoint.without_prefix("policy.", tensors))
        checkpoint.restore_optimizer(
            self.optimizer, checkpoint.without_prefix("optimizer.", tensors)
        )
        self.generator.set_state(tensors["generator"])
        self.done = record["done"]
        curves = zip(self.evaluators, record["curves"], strict=True)
        for index, (evaluator, curve) in enumerate(curves):
            evaluator.restore(decisions.unpack_decision(f"best.{index}.", tensors), curve)

    def _describe(self) -> str:
        """Return a fingerprint of the settings and the initial policy, to recognise checkpoints."""
        graphs = [(e.graph.name, len(e.machine), e.tasks) for e in self.evaluators]
        begin = checkpoint.seal_tensors(self.policy.state_dict(), "")
        settings = asdict(self.settings), asdict(self.policy.settings)
        return repr((*settings, graphs, self.budget, begin))


def make_policy(settings: PolicySettings, evaluators: Sequence[Evaluator]) -> Policy:
    """Return an untrained policy that standardises its inputs by the evaluators' graphs."""
    policy = Policy(settings)
    scaler = fit_scaler(find_inputs(evaluator.graph).columns.numpy() for evaluator in evaluators)
    policy.set_scale(torch.from_numpy(scaler.mean), torch.from_numpy(scaler.scale))
    return policy
