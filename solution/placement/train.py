"""Train one policy on many graphs: alternate search and imitation, then PPO.

    python -m solution.placement.train OUT.safetensors

makes a policy like the policy in this package, which `fastslow optimize` uses. This takes about ten
hours on two cores, a third of it for searches. The same command resumes an interrupted training, on
another machine, too. If there is a GPU, the policy learns on it, at 180 steps a second, so that
four times as many steps (`--more-steps 64000`) take only six minutes.

A training instance is a program on a machine, with the tasks to decide; there are 1,848. Training
has turns. In each turn, a search that begins with the policy's decisions, and another without the
policy, look for better decisions; the first turn of an untrained policy searches without it. Then
the policy imitates the best known decisions. So decisions of similar programs become similar, and a
lucky result of one search is tried on all programs.

(There was too little time to train the shipped policy like this. It learned from scratch, in 64,237
steps, the results of one search on each of 1,092 instances. The searches began with the decisions
of an earlier policy; long recurrent programs were searched only with all tasks.)

Source of the turns: Anthony, Tian and Barber, "Thinking fast and slow with deep learning and tree
search" (2017).
"""

import copy
import math
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import cycle
from pathlib import Path
from typing import Annotated

import numpy as np
import torch
import typer

from solution.models.nets import checkpoint
from solution.models.nets.devices import pick_device
from solution.placement.evaluation import TASKS, TWO_TASKS, Evaluator
from solution.placement.graphs.workloads import STEPS as RECURRENT
from solution.placement.graphs.workloads import (
    TRAINING_PROGRAMS,
    draw_programs,
    draw_validation_programs,
    identify,
)
from solution.placement.imitation_targets import BestDecisions, make_evaluators
from solution.placement.machine import make_machine
from solution.placement.policy.decisions import pack_decision, unpack_decision
from solution.placement.policy.imitation import Imitation
from solution.placement.policy.network import Policy, load_policy, save_policy
from solution.placement.policy.policy_settings import (
    FINE_TUNING_RATE,
    MAX_HEAD,
    PolicySettings,
    PolicyTraining,
)
from solution.placement.policy.ppo import Trainer, Update, make_policy
from solution.placement.simulation.environment import Environment
from solution.system.errors import InputError
from solution.system.files import check_place, check_writable, make_folder
from solution.system.processes import count_cores
from solution.system.terminal import say

# Device counts to train on. The policy learns each count separately and cannot interpolate.
NUMBERS = range(2, MAX_HEAD + 1)


@dataclass(frozen=True)
class Draw:
    """How to draw random training programs of one size.

    Attributes:
        families: only programs of these families are used.
    """

    scale: int  # factor on the maximum sizes CELLS and LAYERS, see draw_programs
    seed: int
    numbers: int  # how many different device counts each program is used with
    families: frozenset[str] = frozenset(workload.family for workload in TRAINING_PROGRAMS)


# Few instances of large programs, which take long to search; the largest are all recurrent.
DRAWS = (Draw(1, 0, 4), Draw(3, 11, 2), Draw(8, 12, 1, frozenset(RECURRENT)))
LARGEST = 11_000  # maximum number of nodes of a program; larger programs are left out


def draw_instances(counts: Sequence[int], leave_out: str = "") -> list[Evaluator]:
    """Draw training instances from `counts` programs for each of DRAWS, without validation programs
    and the family `leave_out`. Each program has several drawn numbers of devices, among them its
    default. Instances alternate between deciding all tasks and deciding only TWO_TASKS."""
    random, tasks = np.random.default_rng(5), cycle((TASKS, TWO_TASKS))
    known = {
        identify(workload.name) for workload in (*draw_validation_programs(), *TRAINING_PROGRAMS)
    }
    found = []
    for draw, count in zip(DRAWS, counts, strict=True):
        drawn = draw_programs(count, draw.seed, draw.scale)
        drawn = [w for w in drawn if w.family in draw.families and identify(w.name) not in known]
        known |= {identify(workload.name) for workload in drawn}
        for workload in drawn:
            numbers = random.permutation(NUMBERS)[: draw.numbers]
            if workload.devices not in numbers:
                numbers[random.integers(len(numbers))] = workload.devices
            if workload.family == leave_out:
                continue
            graph = workload.make()
            if graph.num_nodes <= LARGEST:
                found += [Evaluator(Environment(graph, make_machine(int(number))), next(tasks))
                          for number in numbers]  # fmt: skip
    return found


SHIPPED = PolicySettings(width=128, attention_layers=2, heads=4, segment=1024, inner=384, rounds=1)
STEPS = [4500, 3000]  # imitation steps of each turn of the first course, on TRAINING_PROGRAMS
EVERY = 500  # imitation steps between two checkpoints


@dataclass(frozen=True)
class CoursePlan:
    """Training instances and settings of a course, which is a series of turns (see the module)."""

    evaluators: Sequence[Evaluator]
    steps: Sequence[int]  # imitation steps of each turn
    learning_rate: float = 1e-3


class Course:
    """Turns of search and imitation. An interrupted course resumes from `folder` and ends with the
    same policy, which learns on a GPU if there is one, and decides on the CPU.

    `budgets`: evaluations per instance in the first and in each later search. `is_taught`: the
    policy is trained already, so the first turn searches with it.
    """

    def __init__(
        self, policy: Policy, plan: CoursePlan, budgets: tuple[int, int], seed: int = 0,
        folder: Path | None = None, *, is_taught: bool = False, workers: int = 1,
    ) -> None:  # fmt: skip
        self.policy, self.best, self.is_taught = (
            policy,
            BestDecisions(plan.evaluators, workers),
            is_taught,
        )
        self.plan, self.budgets, self.seed, self.folder = plan, budgets, seed, folder
        self.turn = 0
        # seconds of the policy's likeliest decisions / best known seconds, after the last turn
        self.ratio = math.inf
        # the current turn's imitation; None until its searches are done
        self._imitation: Imitation | None = None
        self._name = self._describe()

    def run(self) -> None:
        """Run the turns that are left, from the last checkpoint if there is one."""
        self._resume()
        while self.turn < len(self.plan.steps):
            if self._imitation is None:
                self._search()
                self._imitation = self._begin()
                self._save()
            self.policy.train()
            self._imitation.learn(self.best.make_instances(), self._save, EVERY)
            self.policy.cpu()
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
        self.policy.to(pick_device())
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
        tensors = checkpoint.with_prefix("policy.", self.policy.state_dict())
        for index, decision in enumerate(self.best.decisions):
            tensors |= pack_decision(f"best.{index}.", decision)
        record = {"fit": self._name, "turn": self.turn, "seconds": self.best.seconds,
                  "ratio": self.ratio, "losses": None}  # fmt: skip
        if self._imitation is not None:
            tensors |= checkpoint.with_prefix(
                "optimizer.", checkpoint.flatten_optimizer(self._imitation.optimizer)
            )
            record["losses"] = self._imitation.losses
        checkpoint.save_checkpoint(self.folder, tensors, record)

    def _resume(self) -> None:
        found = (
            checkpoint.load_checkpoint(self.folder, self._name) if self.folder is not None else None
        )
        if found is None:
            return
        tensors, record = found
        self.policy.load_state_dict(checkpoint.without_prefix("policy.", tensors))
        self.best.seconds = record["seconds"]
        self.best.decisions = [
            unpack_decision(f"best.{index}.", tensors) or decision
            for index, decision in enumerate(self.best.decisions)
        ]
        self.turn, self.ratio = record["turn"], record["ratio"]
        if record["losses"] is not None:
            self._imitation = self._begin()
            self._imitation.losses = record["losses"]
            self._imitation.done = len(record["losses"])
            optimizer = checkpoint.without_prefix("optimizer.", tensors)
            checkpoint.restore_optimizer(self._imitation.optimizer, optimizer)

    def _describe(self) -> str:
        """Return a fingerprint of the course and the initial policy, for its checkpoints."""
        graphs = [
            (e.graph.name, e.graph.num_nodes, len(e.machine), e.tasks) for e in self.best.evaluators
        ]
        given = list(self.plan.steps), self.plan.learning_rate, self.budgets, self.seed
        begin = self.is_taught, checkpoint.seal_tensors(self.policy.state_dict(), "")
        return repr((asdict(self.policy.settings), given, graphs, begin))


def train_policy(
    policy: Policy,
    training: PolicyTraining,
    courses: Sequence[CoursePlan],
    budgets: tuple[int, int] = (1000, 400),
    folder: Path | None = None,
    *,
    is_taught: bool = False,
    workers: int = 1,
) -> Policy:
    """Train by imitation in `courses`, then by PPO on the last course's instances; return the
    policy before or after PPO, the better one. Learning from few programs first makes a course on
    many faster. For the other arguments see Course and BestDecisions."""
    for number, plan in enumerate(courses):
        turns = None if folder is None else folder / f"course-{number}"
        knows = is_taught or number > 0
        course = Course(policy, plan, budgets, training.seed, turns, is_taught=knows,
                        workers=workers)  # fmt: skip
        course.run()
    checkpoints = None if folder is None else folder / "ppo"
    learned = copy.deepcopy(policy).train()
    Trainer(learned, courses[-1].evaluators, training).train(_show, checkpoints)
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
    begin: Annotated[Path | None, typer.Option(help="A trained policy to begin with.")] = None,
    steps: Annotated[list[int], typer.Option(min=1, help="Imitation steps of each turn.")] = STEPS,
    more_steps: Annotated[
        int, typer.Option(min=1, help="Imitation steps on the randomly drawn programs, too.")
    ] = 16000,
    updates: Annotated[int, typer.Option(min=0, help="Updates of PPO.")] = 180,
    drawn: Annotated[
        int, typer.Option(min=0, help="Number of randomly drawn training programs.")
    ] = 330,
    large: Annotated[int, typer.Option(min=0, help="Number of larger programs drawn.")] = 260,
    long: Annotated[
        int,
        typer.Option(
            min=0, help="Number of still larger programs drawn; only recurrent ones are used."
        ),
    ] = 400,
    leave_out: Annotated[str, typer.Option(help="A family to leave out of training.")] = "",
    workers: Annotated[
        int | None, typer.Option(min=1, help="Processes that search. Default: one per core.")
    ] = None,
) -> None:
    """Train a policy on graphs of all families."""
    began = time.perf_counter()
    check_place(out)
    check_writable(out.parent)
    families = sorted({workload.family for workload in TRAINING_PROGRAMS})
    if leave_out and leave_out not in families:
        raise InputError(f"There is no family {leave_out!r}. There are {', '.join(families)}.")
    policy = None if begin is None else load_policy(begin)
    instances = [workload for workload in TRAINING_PROGRAMS if workload.family != leave_out]
    picked = [*make_evaluators(instances), *make_evaluators(instances, TWO_TASKS)]
    alone = make_evaluators(instances[::3], devices=(1,))
    every = [*picked, *draw_instances((drawn, large, long), leave_out), *alone]
    courses = [CoursePlan(every, [more_steps])]
    if policy is None:
        torch.manual_seed(0)
        policy = make_policy(SHIPPED, picked)
        courses = [CoursePlan(picked, steps), *courses]
    for plan in courses:
        say(f"{len(plan.evaluators)} training instances, {sum(plan.steps)} steps of imitation.")
    say(f"{updates} updates of PPO.")
    training = PolicyTraining(updates=updates, samples=16, epochs=2, learning_rate=FINE_TUNING_RATE)
    folder = out.with_suffix(".training")
    policy = train_policy(policy, training, courses, folder=folder, is_taught=begin is not None,
                   workers=workers or count_cores())  # fmt: skip
    save_policy(policy, out)
    say(f"{out}: {out.stat().st_size / 1e6:.2f} MB in {time.perf_counter() - began:.0f} s")


if __name__ == "__main__":
    try:
        typer.run(main)
    except InputError as error:
        sys.exit(f"Error: {error}")
