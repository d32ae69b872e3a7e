"""Train one policy on many graphs: by what a search finds on each, again and again, then by PPO.

    python -m solution.placement.train OUT.safetensors

makes the policy that `fastslow optimize` ships with, in 40 minutes of one core. In each turn the
policy imitates the best decisions that are known, then a search that begins with its decisions
looks for better ones, as well as one that does not know of it. So decisions of programs that are
alike become alike, and what one search found by luck is tried on all.

Source of the turns: Anthony, Tian and Barber, "Thinking fast and slow with deep learning and tree
search" (2017).
"""

import copy
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import numpy as np
import torch
import typer

from solution.placement.evaluation import INVALID, TASKS, Evaluator
from solution.placement.graphs.workloads import LESSONS, Workload
from solution.placement.machine import make_machine
from solution.placement.policy.imitation import Lesson, imitate, make_lesson
from solution.placement.policy.network import Policy
from solution.placement.policy.ppo import Trainer, Update, fit_scale
from solution.placement.policy.saving import save_policy
from solution.placement.policy.settings import PolicySettings, TrainingSettings
from solution.placement.policy.tidying import tidy
from solution.placement.search import decide_at_once, optimize
from solution.placement.simulation.decision import Decision
from solution.placement.simulation.environment import Environment
from solution.system.terminal import say

SHIPPED = PolicySettings(width=96, attention_layers=2, heads=4, segment=256, inner=256, rounds=1)
DEVICES = (2, 4)
LEARNING_RATE = 1e-3


def make_evaluators(
    workloads: Sequence[Workload], tasks: tuple[str, ...] = TASKS
) -> list[Evaluator]:
    """Each workload on two and on four devices; where not even METIS fits, on more."""
    return [
        Evaluator(Environment(graph, make_machine(devices)), tasks)
        for workload in workloads
        for graph in [workload.make()]
        for devices in DEVICES
    ]


class Best:
    """The best decision that is known of each graph, tidied."""

    def __init__(self, evaluators: Sequence[Evaluator]) -> None:
        self.evaluators = list(evaluators)
        self.decisions = [evaluator.base for evaluator in evaluators]
        self.seconds = [evaluator.reference for evaluator in evaluators]

    def search(self, policy: Policy | None, budget: int, seed: int) -> None:
        """Spend so many evaluations on each."""
        for place, evaluator in enumerate(self.evaluators):
            asked = evaluator.start_again()
            optimize(asked, policy, budget, seed)
            if asked.best is not None:
                self._keep(place, tidy(evaluator, asked.best))

    def _keep(self, place: int, decision: Decision) -> None:
        outcome = self.evaluators[place].environment.runtime(decision)
        if outcome.reason is None and outcome.seconds < self.seconds[place]:
            self.decisions[place], self.seconds[place] = decision, outcome.seconds

    def make_lessons(self) -> list[Lesson]:
        """A lesson a graph."""
        return [make_lesson(*pair) for pair in zip(self.evaluators, self.decisions, strict=True)]

    def compare(self, policy: Policy) -> float:
        """Seconds of the policy's likeliest decisions over the best known: the geometric mean."""
        logs = []
        for evaluator, best in zip(self.evaluators, self.seconds, strict=True):
            asked = evaluator.start_again()
            decide_at_once(asked, policy)
            logs.append(np.log(min(asked.seconds, INVALID * evaluator.reference) / best))
        return float(np.exp(np.mean(logs)))


def train(
    settings: PolicySettings,
    training: TrainingSettings,
    evaluators: Sequence[Evaluator],
    steps: Sequence[int],
    budgets: tuple[int, int] = (3000, 600),
    folder: Path | None = None,
) -> Policy:
    """A policy that imitates in turns, then learns by itself where that makes it better.

    Args:
        steps: of imitation in each turn.
        budgets: evaluations of each graph in the first search, and in each later one.
        folder: for checkpoints of PPO.
    """
    torch.manual_seed(training.seed)
    policy, best = Policy(settings), Best(evaluators)
    fit_scale(policy, evaluators)
    best.search(None, budgets[0], training.seed)
    for turn, count in enumerate(steps):
        if turn:
            best.search(policy.eval(), budgets[1], training.seed + turn)
            best.search(None, budgets[1], training.seed + turn)
        seed = training.seed + turn
        losses = imitate(policy.train(), best.make_lessons(), count, LEARNING_RATE, seed)
        first, last = np.mean(losses[:20]), np.mean(losses[-60:])
        ratio = best.compare(policy.eval())
        say(f"Turn {turn + 1}: {first:.3f} to {last:.3f}, {ratio:.3f} times the best known.")
    before, learned = best.compare(policy.eval()), copy.deepcopy(policy).train()
    Trainer(learned, evaluators, training).train(_show, folder)
    after = best.compare(learned.eval())
    say(f"PPO: {before:.3f} becomes {after:.3f} times the best known.")
    return learned if after < before else policy


def _show(update: Update) -> None:
    say(
        f"{update.number:5d}  {update.graph:24s} reward {update.mean_reward:7.3f}  best "
        f"{update.best_seconds * 1e3:8.2f} ms  entropy {update.entropy:.3f}  {update.seconds:.1f} s"
    )


def main(
    out: Annotated[Path, typer.Argument(help="The policy's file.")],
    steps: Annotated[list[int], typer.Option(help="Of imitation, for each turn.")] = [4500, 3000],  # noqa: B006
    updates: Annotated[int, typer.Option(help="Of PPO.")] = 180,
    leave_out: Annotated[str, typer.Option(help="A family that is not learned from.")] = "",
) -> None:
    """Train on small graphs of all families."""
    began = time.perf_counter()
    evaluators = make_evaluators([w for w in LESSONS if w.family != leave_out])
    say(f"{len(evaluators)} questions, {sum(steps)} steps of imitation, {updates} updates of PPO.")
    training = TrainingSettings(updates=updates, samples=16, epochs=2, learning_rate=5e-5)
    policy = train(SHIPPED, training, evaluators, steps, folder=out.with_suffix(".training"))
    save_policy(policy, out)
    say(f"{out}: {out.stat().st_size / 1e6:.2f} MB in {time.perf_counter() - began:.0f} s")


if __name__ == "__main__":
    typer.run(main)
