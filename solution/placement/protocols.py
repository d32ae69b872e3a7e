"""The protocols by name: each spends so many evaluations of one evaluator, and keeps the best.

Every method, GO's or another's, is given the same number of simulated decisions.
"""

import copy
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch

from solution.placement.baselines.divisions import (
    decide_tensorflow,
    divide_as_a_person,
    divide_by_metis,
    place,
)
from solution.placement.baselines.hierarchical import place_hierarchically
from solution.placement.baselines.lists import list_decisions
from solution.placement.baselines.searches import anneal, breed, search_at_random
from solution.placement.evaluation import TASKS, Evaluator
from solution.placement.graphs.workloads import Workload
from solution.placement.policy.decisions import TRIES
from solution.placement.policy.network import Policy
from solution.placement.policy.ppo import Trainer, fit_scale
from solution.placement.policy.settings import GOING_ON, PolicySettings, TrainingSettings
from solution.placement.search import decide_at_once, optimize
from solution.placement.simulation.decision import Decision, default_decision

Method = Callable[[Evaluator, int, int], None]
SAMPLES = 16
FINE_TUNING = 50  # updates at most
LEARNED = 2  # of the evaluations of GO-one one half trains, the other searches


@dataclass(frozen=True)
class Protocols:
    """All methods for one workload.

    Attributes:
        policy: the generalised one.
        scratch: the network of GO-one; the tasks are the evaluator's.
        training: of GO-one, and but for the learning rate of fine-tuning; updates follow from the
            evaluations.
    """

    workload: Workload
    policy: Policy
    scratch: PolicySettings
    training: TrainingSettings

    def methods(self) -> dict[str, Method]:
        """By name, in the order of the tables."""
        return {
            "go-one": self.learn_one,
            "go": lambda evaluator, budget, seed: _optimize(evaluator, self.policy, budget, seed),
            "zero-shot": lambda evaluator, budget, seed: decide_at_once(
                evaluator, self.policy, seed, min(TRIES, budget)),
            "fine-tuned": self.fine_tune,
            "heuristics and search": lambda evaluator, budget, seed: _optimize(
                evaluator, None, budget, seed),
            "human": self.divide,
            "metis": lambda evaluator, *_: _evaluate(evaluator, place(
                evaluator.graph, divide_by_metis(evaluator.graph, evaluator.machine),
                fused=_fuses(evaluator))),
            "hdp": place_hierarchically,
            "annealing": anneal,
            "annealing, 10 times": lambda evaluator, budget, seed: anneal(evaluator, 10 * budget,
                                                                          seed),
            "genetic": breed,
            "random": search_at_random,
            "one device": lambda evaluator, *_: _evaluate(
                evaluator, default_decision(evaluator.graph)),
            "tensorflow": lambda evaluator, *_: _evaluate(
                evaluator, decide_tensorflow(evaluator.graph)),
            **{name: _list_by(name) for name in ("heft", "cpop", "m-etf", "m-sct")},
        }  # fmt: skip

    def learn_one(self, evaluator: Evaluator, budget: int, seed: int) -> None:
        """PPO from scratch on this graph, then a search by what it learned."""
        torch.manual_seed(seed)
        policy = Policy(replace(self.scratch, tasks=ordered(evaluator.tasks)))
        fit_scale(policy, [evaluator])
        self._train(policy, evaluator, self.training, budget // LEARNED, seed)
        optimize(evaluator, policy.eval(), budget, seed)

    def fine_tune(self, evaluator: Evaluator, budget: int, seed: int) -> None:
        """The generalised policy: its likeliest decision, at most 50 updates, then that again.

        So it begins where zero-shot ends, and is never behind it.
        """
        decide_at_once(evaluator, self.policy, seed, min(TRIES, budget))
        policy = copy.deepcopy(self.policy).train()
        # With the learning rate of a policy that knows nothing it forgets what it was taught.
        training = replace(self.training, learning_rate=GOING_ON)
        most = len(evaluator.curve) + FINE_TUNING * SAMPLES
        self._train(policy, evaluator, training, min(budget - 1, most), seed)
        if left := budget - len(evaluator.curve):
            decide_at_once(evaluator, policy.eval(), seed, min(TRIES, left))

    def _train(
        self, policy: Policy, evaluator: Evaluator, training: TrainingSettings, budget: int,
        seed: int,
    ) -> None:  # fmt: skip
        settings = replace(training, updates=budget // SAMPLES, samples=SAMPLES, seed=seed)
        Trainer(policy, [evaluator], settings, budget).train()

    def divide(self, evaluator: Evaluator, budget: int, seed: int) -> None:
        """As a person would: by layers, or by the cost of cells."""
        part = divide_as_a_person(evaluator.graph, evaluator.machine, by_cost=self.workload.by_cost)
        _evaluate(evaluator, place(evaluator.graph, part, fused=_fuses(evaluator)))


def ordered(tasks: tuple[str, ...]) -> tuple[str, ...]:
    """The tasks in the order in which the policy decides them."""
    return tuple(task for task in TASKS if task in tasks)


def _fuses(evaluator: Evaluator) -> bool:
    return "fusion" in evaluator.tasks


def _evaluate(evaluator: Evaluator, decision: Decision) -> None:
    evaluator.evaluate(decision)


def _optimize(evaluator: Evaluator, policy: Policy | None, budget: int, seed: int) -> None:
    optimize(evaluator, policy, budget, seed)


def _list_by(name: str) -> Method:
    def run(evaluator: Evaluator, budget: int, seed: int) -> None:
        made = list_decisions(evaluator.graph, evaluator.machine, fused=_fuses(evaluator))
        evaluator.evaluate(made[name])

    return run
