"""Train one policy on many graphs: by what a search finds on each, again and again, then by PPO.

    python -m solution.placement.train OUT.safetensors

makes one like that `fastslow optimize` ships with, in three hours of one core; stopped, the same
command goes on. (That one had segments of 256 in its first two courses.) In each turn the policy
imitates the best decisions that are known, then a search that begins with its decisions looks for
better ones, as well as one that does not know of it. So decisions of programs that are alike become
alike, and what one search found by luck is tried on all.

Source of the turns: Anthony, Tian and Barber, "Thinking fast and slow with deep learning and tree
search" (2017).
"""

import copy
import math
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
import torch
import typer

from solution.models.nets.checkpoint import (
    flatten_optimizer,
    load_checkpoint,
    restore_optimizer,
    save_checkpoint,
    with_prefix,
    without_prefix,
)
from solution.placement.evaluation import TASKS, Evaluator
from solution.placement.graphs.workloads import (
    DRAWN,
    LESSONS,
    Workload,
    draw_judges,
    draw_lessons,
)
from solution.placement.machine import make_machine
from solution.placement.policy.decisions import pack_decision, unpack_decision
from solution.placement.policy.imitation import Imitation, Lesson, make_lesson
from solution.placement.policy.network import Policy
from solution.placement.policy.ppo import Trainer, Update, fit_scale
from solution.placement.policy.saving import save_policy
from solution.placement.policy.settings import GOING_ON, PolicySettings, TrainingSettings
from solution.placement.policy.tidying import tidy
from solution.placement.search import find_seconds_at_once, optimize
from solution.placement.simulation.decision import Decision
from solution.placement.simulation.environment import Environment
from solution.system.files import make_folder
from solution.system.terminal import say

SHIPPED = PolicySettings(width=96, attention_layers=2, heads=4, segment=512, inner=256, rounds=1)
DEVICES = (2, 4)
WIDE = 4  # devices of the programs that come last, at least
LAST_RATE = 5e-4  # of learning, in the last course
EVERY = 500  # steps of imitation between two checkpoints


def make_evaluators(
    workloads: Sequence[Workload],
    tasks: tuple[str, ...] = TASKS,
    devices: Sequence[int] = DEVICES,
) -> list[Evaluator]:
    """Each workload on so many devices each time; where none are given, on its own number."""
    return [
        Evaluator(Environment(graph, make_machine(number)), tasks)
        for workload in workloads
        for graph in [workload.make()]
        for number in devices or (workload.devices,)
    ]


@dataclass(frozen=True)
class CoursePlan:
    """What a course is given.

    Attributes:
        steps: of imitation in each turn.
    """

    evaluators: Sequence[Evaluator]
    steps: Sequence[int]
    learning_rate: float = 1e-3


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
            logs.append(np.log(find_seconds_at_once(evaluator, policy) / best))
        return float(np.exp(np.mean(logs)))


class Course:
    """Turns of search and imitation. Stopped, it goes on and ends with the same policy.

    Args:
        budgets: evaluations of each graph in the first search, and in each later one.
        folder: for a checkpoint, written after each search and each EVERY steps; None: none is.
        is_taught: whether the policy knows something, so that the first search asks it, too.
    """

    def __init__(
        self, policy: Policy, plan: CoursePlan, budgets: tuple[int, int], seed: int = 0,
        folder: Path | None = None, *, is_taught: bool = False,
    ) -> None:  # fmt: skip
        self.policy, self.best, self.is_taught = policy, Best(plan.evaluators), is_taught
        self.plan, self.budgets, self.seed, self.folder = plan, budgets, seed, folder
        self.turn = 0
        self.ratio = math.inf  # of the policy's likeliest decisions to the best known
        self._imitation: Imitation | None = None  # of the turn, after its searches

    def run(self) -> None:
        """Go on to the end of the last turn."""
        self._resume()
        while self.turn < len(self.plan.steps):
            if self._imitation is None:
                self._search()
                self._imitation = self._begin()
                self._save()
            self.policy.train()
            self._imitation.learn(self.best.make_lessons(), self._save, EVERY)
            self.ratio = self.best.compare(self.policy.eval())
            self._tell(self._imitation.losses)
            self.turn, self._imitation = self.turn + 1, None
            self._save()

    def _search(self) -> None:
        if not self.turn:
            self.best.search(None, self.budgets[0], self.seed)
        if self.turn or self.is_taught:
            for policy in (self.policy.eval(), None):
                self.best.search(policy, self.budgets[1], self.seed + self.turn)

    def _begin(self) -> Imitation:
        steps, seed = self.plan.steps[self.turn], self.seed + self.turn
        return Imitation(self.policy, steps, self.plan.learning_rate, seed)

    def _tell(self, losses: Sequence[float]) -> None:
        first, last = np.mean(losses[:20]), np.mean(losses[-60:])
        say(
            f"Turn {self.turn + 1}: {first:.3f} to {last:.3f}, {self.ratio:.3f} times the best "
            "known."
        )

    def _save(self) -> None:
        if self.folder is None:
            return
        make_folder(self.folder)
        tensors = with_prefix("policy.", self.policy.state_dict())
        for place, decision in enumerate(self.best.decisions):
            tensors |= pack_decision(f"best.{place}.", decision)
        record = {"fit": self._name(), "turn": self.turn, "seconds": self.best.seconds,
                  "ratio": self.ratio, "losses": None}  # fmt: skip
        if self._imitation is not None:
            tensors |= with_prefix("optimizer.", flatten_optimizer(self._imitation.optimizer))
            record["losses"] = self._imitation.losses
        save_checkpoint(self.folder, tensors, record)

    def _resume(self) -> None:
        found = load_checkpoint(self.folder, self._name()) if self.folder is not None else None
        if found is None:
            return
        tensors, record = found
        self.policy.load_state_dict(without_prefix("policy.", tensors))
        self.best.seconds = record["seconds"]
        self.best.decisions = [
            unpack_decision(f"best.{place}.", tensors) or decision
            for place, decision in enumerate(self.best.decisions)
        ]
        self.turn, self.ratio = record["turn"], record["ratio"]
        if record["losses"] is not None:
            self._imitation = self._begin()
            self._imitation.losses = record["losses"]
            self._imitation.done = len(record["losses"])
            optimizer = without_prefix("optimizer.", tensors)
            restore_optimizer(self._imitation.optimizer, optimizer)

    def _name(self) -> str:
        graphs = [(e.graph.name, len(e.machine), e.tasks) for e in self.best.evaluators]
        given = list(self.plan.steps), self.plan.learning_rate, self.budgets, self.seed
        return repr((asdict(self.policy.settings), given, graphs))


def train(
    settings: PolicySettings,
    training: TrainingSettings,
    courses: Sequence[CoursePlan],
    budgets: tuple[int, int] = (3000, 600),
    folder: Path | None = None,
) -> Policy:
    """A policy that imitates in turns, then learns by itself where that makes it better.

    Args:
        courses: one after the other. A policy that begins with few programs learns more from many,
            in the same time.
        budgets: see Course.
        folder: for checkpoints; a training that was stopped goes on from the last one.
    """
    torch.manual_seed(training.seed)
    policy = Policy(settings)
    fit_scale(policy, courses[0].evaluators)
    for place, plan in enumerate(courses):
        turns = None if folder is None else folder / f"course-{place}"
        course = Course(policy, plan, budgets, training.seed, turns, is_taught=place > 0)
        course.run()
    own = None if folder is None else folder / "ppo"
    learned = copy.deepcopy(policy).train()
    Trainer(learned, courses[-1].evaluators, training).train(_show, own)
    after = course.best.compare(learned.eval())
    say(f"PPO: {course.ratio:.3f} becomes {after:.3f} times the best known.")
    return learned if after < course.ratio else policy


def _show(update: Update) -> None:
    say(
        f"{update.number:5d}  {update.graph:24s} reward {update.mean_reward:7.3f}  best "
        f"{update.best_seconds * 1e3:8.2f} ms  entropy {update.entropy:.3f}  {update.seconds:.1f} s"
    )


def main(
    out: Annotated[Path, typer.Argument(help="The policy's file.")],
    steps: Annotated[list[int], typer.Option(help="Of imitation, for each turn.")] = [4500, 3000],  # noqa: B006
    more_steps: Annotated[int, typer.Option(help="Of imitation, with the drawn programs.")] = 8000,
    updates: Annotated[int, typer.Option(help="Of PPO.")] = 180,
    drawn: Annotated[int, typer.Option(help="Programs to learn from after those picked.")] = DRAWN,
    last_steps: Annotated[
        int, typer.Option(help="Of imitation, with those on many devices.")
    ] = 5000,
    wide: Annotated[int, typer.Option(help="Programs on four and eight devices beside them.")] = 40,
    leave_out: Annotated[str, typer.Option(help="A family that is not learned from.")] = "",
) -> None:
    """Train on small graphs of all families."""
    began = time.perf_counter()
    judges = {workload.name for workload in draw_judges()}
    more = [workload for workload in draw_lessons(drawn) if workload.name not in judges]
    known = judges | {workload.name for workload in more}
    most = [w for w in draw_lessons(4 * wide, seed=11) if w.devices >= WIDE and w.name not in known]
    programs = [
        [workload for workload in own if workload.family != leave_out]
        for own in (LESSONS, more, most[:wide])
    ]
    picked = make_evaluators(programs[0])
    own, last = (make_evaluators(drawn_ones, devices=()) for drawn_ones in programs[1:])
    courses = [
        CoursePlan(picked, steps),
        CoursePlan([*picked, *own], [more_steps]),
        CoursePlan([*picked, *own, *last], [last_steps], LAST_RATE),
    ]
    for plan in courses:
        say(f"{len(plan.evaluators)} questions, {sum(plan.steps)} steps of imitation.")
    say(f"{updates} updates of PPO.")
    training = TrainingSettings(updates=updates, samples=16, epochs=2, learning_rate=GOING_ON)
    policy = train(SHIPPED, training, courses, folder=out.with_suffix(".training"))
    save_policy(policy, out)
    say(f"{out}: {out.stat().st_size / 1e6:.2f} MB in {time.perf_counter() - began:.0f} s")


if __name__ == "__main__":
    typer.run(main)
