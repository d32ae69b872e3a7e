"""Hold out each family of programs from the policy's training, one after the other.

    python -m benchmarks.go_families build/go-families

A small network imitates the decisions that a search found for the programs of five families. Then
it decides directly for the sixth, and after 50 updates of PPO on one program of it. For comparison,
the same network is trained on all six. All results are ratios of seconds to one device's; below 1
is faster. Results are kept in FOLDER and not measured again.
"""

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import numpy as np
import torch
import typer

from benchmarks.go_ablations import LEARNING, SEARCH, WHOLE, Kept, decide_all, teach
from benchmarks.go_methods import FINE_TUNING, SAMPLES, Protocols, Scratch
from benchmarks.go_tables import describe_gain
from solution.placement.evaluation import Evaluator
from solution.placement.graphs.workloads import TRAINING_PROGRAMS, Workload
from solution.placement.imitation_targets import BestDecisions, make_evaluators
from solution.placement.policy.decisions import TRIES
from solution.placement.policy.imitation import TrainingInstance
from solution.placement.policy.network import Policy
from solution.system.terminal import make_table, output

FAMILIES = tuple(dict.fromkeys(workload.family for workload in TRAINING_PROGRAMS))
NETWORK = replace(WHOLE, segment=512)
COLUMNS = ("fused on one device", "held out", "learned from, too", "a search", "one, at once",
           "one, 50 updates")  # fmt: skip


def tune(policy: Policy, workload: Workload, evaluator: Evaluator, seed: int) -> float:
    """Return the least seconds of: the likeliest decision, 50 updates, the likeliest decision
    then."""
    asked = evaluator.start_again()
    budget = 2 * TRIES + FINE_TUNING * SAMPLES
    Protocols(workload, policy, Scratch(NETWORK, LEARNING)).fine_tune(asked, budget, seed)
    return asked.counted_seconds


def fuse_all(evaluator: Evaluator) -> float:
    """Return the seconds with all legal fusions on one device, as an untrained policy decides."""
    every = np.ones(evaluator.graph.num_nodes, np.int64)
    return evaluator.environment.runtime(replace(evaluator.base, fusion=every)).seconds


def hold_out(family: str, instances: list[TrainingInstance], steps: int, seed: int) -> dict:
    """Return the seconds of a family's programs by a network trained without it, before and
    after updates."""
    own = [place for place in range(len(instances)) if family_of(place) == family]
    asked = [instances[place].evaluator for place in own]
    others = [instance for place, instance in enumerate(instances) if place not in own]
    policy = teach(NETWORK, others, steps, seed)
    tuned = tune(policy, TRAINING_PROGRAMS[own[-1] // 2], asked[-1], seed)
    return {"at once": decide_all(policy, asked), "tuned": tuned}


def family_of(place: int) -> str:
    """Return an instance's family; each program has two machines, one after the other."""
    return TRAINING_PROGRAMS[place // 2].family


def show(found: dict[str, dict[str, np.ndarray]]) -> None:
    """Print a row per family, and below it the gains over all programs."""
    table = make_table("Seconds / one device's: families that were not learned from")
    table.add_column("Held out")
    for header in ("Programs", *COLUMNS):
        table.add_column(header, justify="right")
    for family, ratios in found.items():
        means = [f"{np.exp(np.log(ratios[name]).mean()):.2f}" for name in COLUMNS]
        table.add_row(family, str(len(ratios[COLUMNS[0]])), *means)
    output.print(table)
    for name in COLUMNS:
        own = np.concatenate([ratios[name] for ratios in found.values()])[:, None]
        output.print(f"one device / {name} - 1: {describe_gain(np.ones_like(own), own)}")


def main(
    folder: Annotated[Path, typer.Argument()],
    steps: Annotated[int, typer.Option(help="Of imitation.")] = 1500,
    seed: Annotated[int, typer.Option()] = 0,
) -> None:
    """Measure what is missing; print the table."""
    torch.set_num_threads(1)
    keep, best = Kept(folder), BestDecisions(make_evaluators(TRAINING_PROGRAMS))
    best.search(None, SEARCH, 0)
    instances = best.make_instances()
    one_device = np.array([one.reference for one in best.evaluators])
    fused = np.array([fuse_all(one) for one in best.evaluators])
    every = keep(f"all-{steps}-{seed}", lambda: {
        "at once": decide_all(teach(NETWORK, instances, steps, seed), best.evaluators),
    })  # fmt: skip
    found = {}
    for family in FAMILIES:
        run = keep(f"{family}-{steps}-{seed}",
                   lambda f=family: hold_out(f, instances, steps, seed))  # fmt: skip
        own = np.array([family_of(place) == family for place in range(len(one_device))])
        base = one_device[own]
        held_out = np.array(run["at once"]) / base
        found[family] = {
            "fused on one device": fused[own] / base,
            "held out": held_out,
            "learned from, too": np.array(every["at once"])[own] / base,
            "a search": np.array(best.seconds)[own] / base,
            "one, at once": held_out[-1:],
            "one, 50 updates": np.array([run["tuned"]]) / base[-1:],
        }
    show(found)


if __name__ == "__main__":
    typer.run(main)
