"""Compare policies by their likeliest decisions for 36 programs that none was trained on.

    python -m benchmarks.policy_choice [POLICY.safetensors ...]

takes two minutes of one core for each policy, the shipped one and those given. It prints seconds
relative to one device's, less 1: each program on its own number of devices (2, 3, 4 or 8), and each
on 5, 6 and 7. One of the programs fits into memory with no policy's decision and counts 100 times.
"""

import sys
from itertools import product
from pathlib import Path

import numpy as np
import torch

from solution.placement.evaluation import TASKS, TWO_TASKS
from solution.placement.graphs.workloads import draw_validation_programs
from solution.placement.imitation_targets import make_evaluators
from solution.placement.optimize import find_seconds_at_once
from solution.placement.policy.network import SHIPPED, load_policy
from solution.system.terminal import make_table, output

DEVICES = ((), (5, 6, 7))


def main() -> None:
    torch.set_num_threads(1)
    table = make_table("Policies by their decisions at once: the least in both columns is chosen")
    for header in ("Devices", "Policy", "Tasks", "Seconds / one device - 1", "Below one device",
                   "Worst"):  # fmt: skip
        table.add_column(header)
    judges = draw_validation_programs()
    policies = [(path.name, load_policy(path)) for path in (SHIPPED, *map(Path, sys.argv[1:]))]
    for tasks, devices in product((TASKS, TWO_TASKS), DEVICES):
        evaluators = make_evaluators(judges, tasks, devices)
        for name, policy in policies:
            ratios = np.array(
                [find_seconds_at_once(asked, policy) / asked.reference for asked in evaluators]
            )
            worst = ", ".join(f"{ratio:.2f}" for ratio in np.sort(ratios)[-3:])
            numbers = ", ".join(map(str, devices)) or "its own"
            mean = f"{np.expm1(np.log(ratios).mean()):+.1%}"
            table.add_row(
                numbers, name, ", ".join(tasks), mean, f"{np.mean(ratios < 1):.0%}", worst
            )
    output.print(table)


if __name__ == "__main__":
    main()
