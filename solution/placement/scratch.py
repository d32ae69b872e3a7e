"""Networks that know nothing, trained by PPO on one graph: GO-one, and its tasks together or apart.

The document has one network for all tasks and never shows that this is better than one for each.
"""

from dataclasses import dataclass, replace

import torch

from solution.placement.evaluation import TASKS, Evaluator
from solution.placement.policy.decisions import TRIES, evaluate_mended
from solution.placement.policy.network import Policy
from solution.placement.policy.ppo import Trainer, make_policy
from solution.placement.policy.settings import PolicySettings, TrainingSettings
from solution.placement.search import decide_at_once, optimize
from solution.placement.simulation.decision import Decision

SAMPLES = 16
FINE_TUNING = 50  # updates at most
LEARNED = 2  # of the evaluations of GO-one one half trains, the other searches


@dataclass(frozen=True)
class Scratch:
    """What a network begins as. Each protocol spends so many evaluations of one evaluator.

    Attributes:
        network: its tasks are the evaluator's.
        training: updates follow from the evaluations.
    """

    network: PolicySettings
    training: TrainingSettings

    def learn(self, evaluator: Evaluator, budget: int, seed: int) -> Policy:
        """A network, after the evaluator has counted at most `budget` decisions."""
        torch.manual_seed(seed)
        network = replace(self.network, tasks=order_tasks(evaluator.tasks))
        policy = make_policy(network, [evaluator])
        learn_more(policy, evaluator, self.training, budget, seed)
        return policy.eval()

    def learn_and_search(self, evaluator: Evaluator, budget: int, seed: int) -> None:
        """GO-one: learn from this graph alone, then search by what was learned."""
        policy = self.learn(evaluator, budget // LEARNED, seed)
        optimize(evaluator, policy, budget, seed)

    def learn_briefly(self, evaluator: Evaluator, budget: int, seed: int) -> None:
        """As many updates as fine-tuning has, then the likeliest decision."""
        policy = self.learn(evaluator, min(budget - 1, FINE_TUNING * SAMPLES), seed)
        decide_at_last(evaluator, policy, budget, seed)

    def decide_jointly(self, evaluator: Evaluator, budget: int, seed: int) -> None:
        """One network for all tasks, then its likeliest decision."""
        decide_at_last(evaluator, self.learn(evaluator, budget - 1, seed), budget, seed)

    def decide_singly(self, evaluator: Evaluator, budget: int, seed: int) -> None:
        """A network for each task, the others as by default; then what each found, together."""
        found, share = evaluator.base, (budget - 1) // len(evaluator.tasks)
        for task in order_tasks(evaluator.tasks) if share else ():
            own = self._decide_alone(evaluator, task, evaluator.base, share, seed)
            found = own.keep_beside(found)
        left = budget - len(evaluator.curve)
        evaluate_mended(evaluator, found, min(TRIES, left))

    def decide_in_turn(self, evaluator: Evaluator, budget: int, seed: int) -> None:
        """A network for each task, one after the other, each with what those before it found."""
        found, tasks = evaluator.base, order_tasks(evaluator.tasks)
        for place, task in enumerate(tasks):
            share = (budget - len(evaluator.curve)) // (len(tasks) - place)
            if share:
                own = self._decide_alone(evaluator, task, found, share, seed)
                found = own.keep_beside(found)

    def _decide_alone(
        self, evaluator: Evaluator, task: str, base: Decision, budget: int, seed: int
    ) -> Evaluator:
        own = evaluator.ask((task,), base)
        self.decide_jointly(own, budget, seed)
        evaluator.count(own)
        return own


def decide_at_last(evaluator: Evaluator, policy: Policy, budget: int, seed: int) -> None:
    """Evaluate the policy's likeliest decision where the budget leaves anything for it."""
    if left := budget - len(evaluator.curve):
        decide_at_once(evaluator, policy, seed, min(TRIES, left))


def learn_more(
    policy: Policy, evaluator: Evaluator, training: TrainingSettings, budget: int, seed: int
) -> None:
    """PPO until the evaluator has counted as many decisions as whole updates of `budget` have."""
    settings = replace(training, updates=budget // SAMPLES, samples=SAMPLES, seed=seed)
    Trainer(policy, [evaluator], settings, budget).train()


def order_tasks(tasks: tuple[str, ...]) -> tuple[str, ...]:
    """The tasks in the order in which the policy decides them."""
    return tuple(task for task in TASKS if task in tasks)
