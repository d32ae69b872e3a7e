"""Measure what each part of GO is worth: the ablations that the document lacks.

    python -m benchmarks.go_ablations build/go-ablations

Three tables, each row relative to the complete system (ratios of seconds, 95% intervals from
resampling programs and seeds):

* *Network*: each variant imitates the same decisions for nine small programs on two and four
  devices, in equally many steps; then its likeliest decisions, for these and for nine unseen
  programs, relative to the best that searches found.
* *Learning*: PPO from scratch on each third of the small programs alone, the best of its decisions.
  If memory matters, each device has MEMORY_SHARE of the program's need on one device.
* *Transfer*: the shipped policy on each third of the unseen programs, and a network from
  scratch, by number of updates.

Results are kept in FOLDER and not measured again.
"""

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import numpy as np
import torch
import typer

from benchmarks.go_methods import SAMPLES, Scratch
from benchmarks.go_tables import describe_gain
from solution.placement.evaluation import Evaluator
from solution.placement.graphs.workloads import HELD_OUT, SMALL
from solution.placement.imitation_targets import BestDecisions, make_evaluators
from solution.placement.machine import Machine
from solution.placement.optimize import find_seconds_at_once
from solution.placement.policy.imitation import Imitation, TrainingInstance, find_loss
from solution.placement.policy.network import Policy, load_policy
from solution.placement.policy.policy_settings import (
    FINE_TUNING_RATE,
    PolicySettings,
    PolicyTraining,
)
from solution.placement.policy.ppo import Trainer, make_policy
from solution.placement.simulation.environment import Environment
from solution.system.files import write_json
from solution.system.terminal import make_table, output

WHOLE = PolicySettings(width=64, attention_layers=2, heads=4, inner=128, rounds=1)
LEARNING = PolicyTraining(learning_rate=1e-3, epochs=2)
LEARNING_RATE = 1e-3  # of imitation
SEARCH = 600  # evaluations of the search that is imitated
MEMORY_SHARE = 0.6
UPDATES = (0, 5, 20)
EACH = 3  # PPO runs on each third instance only, because it takes most of the time
NETWORKS = {
    "the whole": {},
    "no GraphSAGE": {"topology": "none"},
    "no attention": {"attention": "none"},
    "an LSTM for attention": {"attention": "lstm"},
    "no memory of the segment before": {"memory": False},
    "segments of 64": {"segment": 64},
    "segments of 1,024": {"segment": 1024},
    "no modulation": {"modulation": "none"},
    "modulation of each node": {"modulation": "node"},
    "three rounds": {"rounds": 3},
    "no agreement": {"agreement": 0},
    "placement, schedule, fusion": {"tasks": ("placement", "schedule", "fusion")},
}
LEARNINGS = {
    "the whole": {},
    "a ratio for each node": {"ratio": "node"},
    "the product of all nodes' ratios": {"ratio": "graph"},
    "REINFORCE": {"clip": 0.0, "epochs": 1},
    "no entropy": {"entropy": 0.0},
}
PENALTIES = {
    "mended": {},
    "not mended: -10": {"repair": False},
    "not mended: -2": {"repair": False, "penalty": -2.0},
}


class Kept:
    """Results by name, each measured once and kept in a file."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(self, name: str, measure: Callable[[], dict]) -> dict:
        path = self.folder / f"{name.replace(' ', '_').replace(':', '')}.json"
        if not path.exists():
            write_json(measure(), path)
        return json.loads(path.read_text())


def teach(
    settings: PolicySettings, instances: Sequence[TrainingInstance], steps: int, seed: int
) -> Policy:
    """Return a network that has imitated these instances, in evaluation mode."""
    torch.manual_seed(seed)
    policy = make_policy(settings, [instance.evaluator for instance in instances])
    Imitation(policy, steps, LEARNING_RATE, seed).learn(instances)
    return policy.eval()


def decide_all(policy: Policy, evaluators: Sequence[Evaluator]) -> list[float]:
    """Return the seconds of the likeliest decisions."""
    return [find_seconds_at_once(one, policy) for one in evaluators]


def imitate(
    settings: PolicySettings, steps: int, seed: int, learned: BestDecisions, others: BestDecisions,
    instances: tuple[list[TrainingInstance], list[TrainingInstance]],
) -> dict:  # fmt: skip
    """Train one network, and return the seconds of its decisions."""
    began = time.perf_counter()
    policy = teach(settings, instances[0], steps, seed)
    clock = time.perf_counter() - began
    policy.train()  # mean-field iterations differ between training and inference
    with torch.no_grad():
        losses = [[float(find_loss(policy, instance)) for instance in part] for part in instances]
    policy.eval()
    decided = {
        name: decide_all(policy, best.evaluators)
        for name, best in (("learned", learned), ("others", others))
    }
    return {
        **decided,
        "losses": losses, "clock": clock, "parameters": sum(p.numel() for p in policy.parameters()),
    }  # fmt: skip


def compare_networks(keep: Kept, steps: int, seeds: int) -> None:
    """Measure the first table."""
    learned, others = (BestDecisions(make_evaluators(part)) for part in (SMALL, HELD_OUT))
    for best in (learned, others):
        best.search(None, SEARCH, 0)
    instances = learned.make_instances(), others.make_instances()
    found = {
        name: [
            keep(f"network-{name}-{steps}-{seed}", lambda c=changes, s=seed: imitate(
                replace(WHOLE, **c), steps, s, learned, others, instances))
            for seed in range(seeds)
        ]
        for name, changes in NETWORKS.items()
    }  # fmt: skip
    show_networks(found, learned, others, f"{len(instances[0])} decisions in {steps:,} steps")


def show_networks(
    found: dict[str, list[dict]], learned: BestDecisions, others: BestDecisions, what: str
) -> None:
    """Print a row per network."""
    table = make_table(f"Networks that imitated {what}")
    for header in ("Network", "Parameters", "Seconds", "Loss, learned / others",
                   "Learned from / best", "beside the whole", "Others / best",
                   "beside the whole"):  # fmt: skip
        table.add_column(header, justify="left" if header == "Network" else "right")
    whole = next(iter(found.values()))
    for name, rows in found.items():
        losses = np.mean([[np.mean(part) for part in row["losses"]] for row in rows], axis=0)
        cells = [f"{rows[0]['parameters']:,}", f"{np.mean([r['clock'] for r in rows]):.0f}",
                 f"{losses[0]:.2f} / {losses[1]:.2f}"]  # fmt: skip
        for part, best in (("learned", learned), ("others", others)):
            own, first = (np.array([row[part] for row in runs]).T for runs in (rows, whole))
            ratio = np.exp(np.log(own / np.array(best.seconds)[:, None]).mean())
            cells += [f"{ratio:.2f}", "" if rows is whole else describe_gain(own, first)]
        table.add_row(name, *cells)
    output.print(table)


def learn_alone(
    evaluator: Evaluator, training: PolicyTraining, network: PolicySettings, budget: int,
    seed: int,
) -> float:  # fmt: skip
    """Return the seconds of PPO's best decision from scratch, or the value of an invalid one."""
    asked = evaluator.start_again()
    Scratch(network, training).learn(asked, budget, seed)
    return asked.counted_seconds


def compare_learnings(keep: Kept, budget: int, seeds: int) -> None:
    """Measure the second table, with enough memory and with too little."""
    roomy = make_evaluators(SMALL)[::EACH]
    tight = [one for evaluator in roomy if (one := tighten(evaluator)) is not None]
    for title, variants, instances in (
        ("Learning", LEARNINGS, roomy), ("Memory", PENALTIES, tight),
    ):  # fmt: skip
        found = {}
        for name, changes in variants.items():
            runs = [
                keep(f"{title}-{name}-{budget}-{seed}", lambda c=changes, s=seed, q=instances: {
                    "seconds": [learn_alone(one, replace(LEARNING, **c), WHOLE, budget, s)
                                for one in q]})
                for seed in range(seeds)
            ]  # fmt: skip
            found[name] = np.array([run["seconds"] for run in runs]).T
        table = make_table(f"{title}: PPO alone, {budget} decisions, {len(instances)} instances")
        for header in ("Variant", "Best / default", "beside the first"):
            table.add_column(header)
        references = np.array([one.reference for one in instances])[:, None]
        first = next(iter(found.values()))
        for name, own in found.items():
            ratio = f"{np.exp(np.log(own / references).mean()):.3f}"
            table.add_row(name, ratio, "" if own is first else describe_gain(own, first))
        output.print(table)


def tighten(evaluator: Evaluator) -> Evaluator | None:
    """Return the instance with less memory than one device needs; None if then nothing fits."""
    machine, graph = evaluator.machine, evaluator.graph
    peak = float(evaluator.environment.runtime(evaluator.base).peak_bytes.max())
    devices = [replace(device, memory_bytes=MEMORY_SHARE * peak) for device in machine.devices]
    less = Machine(tuple(devices), machine.latency, machine.bandwidth)
    asked = Evaluator(Environment(graph, less), evaluator.tasks)
    return asked if asked.environment.runtime(asked.base).reason is None else None


def compare_transfer(keep: Kept, seeds: int) -> None:
    """Measure the third table: likeliest decisions by number of updates, relative to a search's
    best."""
    others = BestDecisions(make_evaluators(HELD_OUT)[::EACH])
    others.search(None, SEARCH, 0)
    table = make_table("Programs that were not learned from: likeliest decision / best of a search")
    for header in ("Updates", "The shipped policy", "From scratch", "scratch / shipped - 1"):
        table.add_column(header, justify="right")
    best = np.array(others.seconds)[:, None]
    for updates in UPDATES:
        pair = []
        for name in ("shipped", "scratch"):
            runs = [
                keep(f"transfer-{name}-{updates}-{seed}", lambda n=name, u=updates, s=seed: {
                    "seconds": [tune(one, n == "shipped", u, s) for one in others.evaluators]})
                for seed in range(seeds)
            ]  # fmt: skip
            pair.append(np.array([run["seconds"] for run in runs]).T)
        means = [f"{np.exp(np.log(own / best).mean()):.2f}" for own in pair]
        table.add_row(str(updates), *means, describe_gain(pair[1], pair[0]))
    output.print(table)


def tune(evaluator: Evaluator, is_shipped: bool, updates: int, seed: int) -> float:
    """Return the seconds of the likeliest decision after `updates` updates on this program
    alone."""
    asked = evaluator.start_again()
    torch.manual_seed(seed)
    policy = load_policy().train() if is_shipped else make_policy(WHOLE, [asked])
    training = replace(LEARNING, updates=updates, samples=SAMPLES, seed=seed)
    if is_shipped:
        training = replace(training, learning_rate=FINE_TUNING_RATE)
    Trainer(policy, [asked], training).train()
    return find_seconds_at_once(evaluator, policy.eval())


def main(
    folder: Annotated[Path, typer.Argument()],
    steps: Annotated[int, typer.Option(help="Of imitation.")] = 1000,
    evaluations: Annotated[int, typer.Option(help="Of PPO from scratch.")] = 160,
    seeds: Annotated[int, typer.Option()] = 2,
) -> None:
    """Measure what is missing; print the tables."""
    torch.set_num_threads(1)
    keep = Kept(folder)
    compare_networks(keep, steps, seeds)
    compare_learnings(keep, evaluations, seeds)
    compare_transfer(keep, seeds)


if __name__ == "__main__":
    typer.run(main)
