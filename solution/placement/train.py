"""Train one policy on many graphs: first by what a search finds on each, then by PPO.

    python -m solution.placement.train OUT.safetensors --updates 100

goes on where it was stopped, and makes the policy that `fastslow optimize` ships with.
"""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import torch
import typer

from solution.placement.evaluation import TASKS, Evaluator
from solution.placement.graphs.workloads import SMALL, Workload
from solution.placement.machine import make_machine
from solution.placement.policy.imitation import Lesson, imitate, make_lesson
from solution.placement.policy.network import Policy
from solution.placement.policy.ppo import Trainer, Update, fit_scale
from solution.placement.policy.saving import save_policy
from solution.placement.policy.settings import PolicySettings, TrainingSettings
from solution.placement.search import optimize
from solution.placement.simulation.environment import Environment
from solution.system.terminal import say

SHIPPED = PolicySettings(width=96, attention_layers=2, heads=4, segment=256, inner=256, rounds=2)
DEVICES = (2, 4)


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


def search_lessons(evaluators: Sequence[Evaluator], budget: int) -> list[Lesson]:
    """The best that a search without a policy finds on each."""
    lessons = []
    for evaluator in evaluators:
        asked = evaluator.start_again()
        optimize(asked, None, budget)
        if asked.best is not None:
            lessons.append(make_lesson(asked, asked.best))
        say(f"{asked.graph.name} on {len(asked.machine)}: {asked.seconds * 1e3:.2f} ms")
    return lessons


def train(
    settings: PolicySettings,
    training: TrainingSettings,
    evaluators: Sequence[Evaluator],
    lessons: Sequence[Lesson],
    steps: int,
    folder: Path | None = None,
) -> Policy:
    """A policy that first imitates, then learns by itself."""
    torch.manual_seed(training.seed)
    policy = Policy(settings)
    fit_scale(policy, evaluators)
    if steps and lessons:
        losses = imitate(policy, lessons, steps, 1e-3, training.seed)
        say(f"imitation: {losses[0]:.3f} to {sum(losses[-20:]) / len(losses[-20:]):.3f}")
    trainer = Trainer(policy, evaluators, training)
    trainer.train(_show, folder)
    return policy


def _show(update: Update) -> None:
    say(
        f"{update.number:5d}  {update.graph:24s} reward {update.mean_reward:7.3f}  best "
        f"{update.best_seconds * 1e3:8.2f} ms  entropy {update.entropy:.3f}  {update.seconds:.1f} s"
    )


def main(
    out: Annotated[Path, typer.Argument(help="The policy's file.")],
    budget: Annotated[int, typer.Option(help="Evaluations of each graph's search.")] = 1000,
    steps: Annotated[int, typer.Option(help="Of imitation.")] = 600,
    updates: Annotated[int, typer.Option(help="Of PPO.")] = 60,
    leave_out: Annotated[str, typer.Option(help="A family that is not learned from.")] = "",
) -> None:
    """Train on small graphs of all families."""
    began = time.perf_counter()
    evaluators = make_evaluators([w for w in SMALL if w.family != leave_out])
    lessons = search_lessons(evaluators, budget)
    training = TrainingSettings(updates=updates, samples=8, epochs=2, learning_rate=1e-4)
    folder = out.with_suffix(".training")
    policy = train(SHIPPED, training, evaluators, lessons, steps, folder)
    save_policy(policy, out)
    say(f"{out}: {out.stat().st_size / 1e6:.2f} MB in {time.perf_counter() - began:.0f} s")


if __name__ == "__main__":
    typer.run(main)
