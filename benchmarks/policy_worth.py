"""Measure what the shipped policy gains: alone, and in a search with as many decisions.

    python -m benchmarks.policy_worth

takes some minutes of one core. The programs are those it was trained on, and others of the same
families, with sizes between those and up to the largest of them; each on two and four devices.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from benchmarks.go_tables import describe_gain
from solution.placement.evaluation import TASKS, TWO_TASKS, Evaluator
from solution.placement.graphs.workloads import HELD_OUT, SMALL, Workload
from solution.placement.imitation_targets import make_evaluators
from solution.placement.optimize import POLICY, find_seconds_at_once, optimize
from solution.placement.policy.network import Policy, load_policy
from solution.system.terminal import make_table, output

BUDGET, SEEDS = 100, 3
COMPARED = (("without", "with_policy"), ("alone", "without"), ("one_device", "without"))


@dataclass(frozen=True)
class Worth:
    """Results of one program on one machine: log seconds, averaged over seeds."""

    with_policy: float
    without: float
    alone: float
    one_device: float
    leads: float  # share of searches whose best first decision is the policy's


def measure(evaluator: Evaluator, policy: Policy) -> Worth:
    """Run two searches per seed, and the policy's likeliest decision."""
    found, leads = [], []
    for seed in range(SEEDS):
        pair = []
        for asked in (policy, None):
            own = evaluator.start_again()
            first = optimize(own, asked, BUDGET, seed)
            pair.append(np.log(own.seconds))
            leads.append(first[0].name.startswith(POLICY))
        found.append(pair)
    seconds = find_seconds_at_once(evaluator, policy)
    with_policy, without = np.mean(found, axis=0)
    return Worth(with_policy, without, float(np.log(seconds)), float(np.log(evaluator.reference)),
                 float(np.mean(leads[::2])))  # fmt: skip


def show(programs: dict[str, Sequence[Workload]], policy: Policy) -> None:
    """Print a row per set of programs and of tasks."""
    table = make_table(f"Ratios of seconds less 1, with 95% intervals; {BUDGET} decisions a search")
    for header in ("Programs", "Tasks", "Without / with the policy", "Policy alone / search",
                   "One device / search", "Policy leads"):  # fmt: skip
        table.add_column(header)
    for name, workloads in programs.items():
        for tasks in (TASKS, TWO_TASKS):
            worths = [measure(one, policy) for one in make_evaluators(workloads, tasks)]
            of = {field: np.array([getattr(worth, field) for worth in worths])
                  for field in Worth.__dataclass_fields__}  # fmt: skip
            table.add_row(
                name, ", ".join(tasks), *(
                    describe_gain(np.exp(of[one])[:, None], np.exp(of[other])[:, None])
                    for one, other in COMPARED
                ), f"{of['leads'].mean():.0%}",
            )  # fmt: skip
    output.print(table)


if __name__ == "__main__":
    torch.set_num_threads(1)
    show({"learned from": SMALL, "others": HELD_OUT}, load_policy())
