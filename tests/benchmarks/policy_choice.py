"""By what a policy is chosen: its likeliest decisions for 36 programs that none learns from.

    python -m tests.benchmarks.policy_choice [POLICY.safetensors ...]

takes half a minute of one core for the shipped policy and for each that is given. Seconds over one
device's, less 1: one program fits in no decision of any and counts 100 times.
"""

import sys
from pathlib import Path

import numpy as np
import torch

from solution.placement.best_known import make_evaluators
from solution.placement.evaluation import TASKS
from solution.placement.graphs.workloads import draw_judges
from solution.placement.policy.saving import SHIPPED, load_policy
from solution.placement.search import find_seconds_at_once
from solution.system.terminal import make_table, output


def main() -> None:
    torch.set_num_threads(1)
    table = make_table("Policies by their decisions at once: the least in both columns is chosen")
    for header in ("Policy", "Tasks", "Seconds / one device - 1", "Below one device", "Worst"):
        table.add_column(header)
    judges = draw_judges()
    policies = [(path.name, load_policy(path)) for path in (SHIPPED, *map(Path, sys.argv[1:]))]
    for tasks in (TASKS, TASKS[1:]):
        evaluators = make_evaluators(judges, tasks, devices=())
        for name, policy in policies:
            ratios = np.array(
                [find_seconds_at_once(asked, policy) / asked.reference for asked in evaluators]
            )
            worst = ", ".join(f"{ratio:.2f}" for ratio in np.sort(ratios)[-3:])
            table.add_row(name, ", ".join(tasks), f"{np.expm1(np.log(ratios).mean()):+.1%}",
                          f"{np.mean(ratios < 1):.0%}", worst)  # fmt: skip
    output.print(table)


if __name__ == "__main__":
    main()
