"""Compare GO's methods and all baselines with equal numbers of evaluations in one simulator.

    python -m benchmarks.go build/go --evaluations 2000 --seeds 6

A cell (workload, machine, tasks, method, seed) is a file once it is measured, so an interrupted
run resumes. All gains are baseline / GO - 1, averaged as logarithms, with the 95%
interval from resampling workloads and seeds. CP-SAT has a minute for each workload, and is left
out if ortools is not installed.
"""

import importlib.util
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import torch
import typer

from benchmarks.go_document import FUSION_ROWS
from benchmarks.go_methods import Protocols, Scratch
from benchmarks.go_tables import (
    DETERMINISTIC,
    FUSION_METHODS,
    TOGETHER,
    Cell,
    draw_curves,
    tabulate,
    tabulate_fusion,
    tabulate_reach,
    tabulate_together,
)
from solution.placement.evaluation import TASKS, TWO_TASKS, Evaluator
from solution.placement.graphs.workloads import DOCUMENT, HELD_OUT, SMALL, Workload
from solution.placement.machine import make_machine
from solution.placement.placement_report import find_bound
from solution.placement.policy.network import SHIPPED, load_policy
from solution.placement.policy.policy_settings import PolicySettings, PolicyTraining
from solution.placement.simulation.decision import Decision, StepResult
from solution.placement.simulation.environment import Environment
from solution.system.files import checksum, write_json
from solution.system.terminal import say

NETWORK = PolicySettings(width=64, attention_layers=2, heads=4, inner=128, rounds=2)
TRAINING = PolicyTraining(learning_rate=1e-3, epochs=2)  # from scratch, few updates


@dataclass
class TimedEvaluator(Evaluator):
    """Records each decision better than all before: its number, its seconds, the wall-clock
    time."""

    steps: list[tuple[int, float, float]] = field(default_factory=list)
    began: float = field(default_factory=time.perf_counter)

    def judge(self, decision: Decision) -> StepResult:
        known, outcome = self.seconds, super().judge(decision)
        if self.seconds < known:
            clock = time.perf_counter() - self.began
            self.steps.append((len(self.curve), self.seconds, clock))
        return outcome


@dataclass(frozen=True)
class Bench:
    """The folder of the cells, and the methods' settings."""

    folder: Path
    budget: int
    policy: Path

    def measure(
        self, workload: Workload, tasks: tuple[str, ...], method: str, seed: int = 0
    ) -> Cell:
        """Measure one cell, or read its file."""
        policy = checksum(self.policy)[:8]
        words = (
            workload.name,
            workload.devices,
            "+".join(tasks),
            method,
            self.budget,
            seed,
            policy,
        )
        name = "-".join(map(str, words)).replace(" ", "_")
        path = self.folder / "cells" / f"{name}.json"
        if path.exists():
            return Cell(**json.loads(path.read_text()))
        environment = Environment(workload.make(), make_machine(workload.devices))
        protocols = Protocols(workload, load_policy(self.policy), Scratch(NETWORK, TRAINING))
        evaluator = TimedEvaluator(environment, tasks)
        protocols.methods()[method](evaluator, self.budget, seed)
        bound = find_bound(environment.graph, environment.machine, fused="fusion" in tasks)
        found = Cell(
            workload.name, list(tasks), method, seed,
            seconds=evaluator.seconds if evaluator.best is not None else None,
            clock=time.perf_counter() - evaluator.began, evaluations=len(evaluator.curve),
            bound=max(bound, evaluator.bound), reference=evaluator.reference,
            steps=[list(step) for step in evaluator.steps],
        )  # fmt: skip
        write_json(vars(found), path)
        return found

    def measure_all(
        self, workloads: list[Workload], tasks: tuple[str, ...], methods: list[str], seeds: int
    ) -> Iterator[Cell]:
        """Measure seed by seed, so that an interrupted run has complete seeds."""
        for seed in range(seeds):
            for workload in workloads:
                for method in methods:
                    if seed == 0 or method not in DETERMINISTIC:
                        yield self.measure(workload, tasks, method, seed)


def choose_methods(asked: str) -> list[str]:
    """Return the methods of the second table: the requested ones, or all that are installed."""
    every = Protocols(SMALL[0], load_policy(), Scratch(NETWORK, TRAINING)).methods()
    methods = asked.split(",") if asked else [name for name in every if name not in TOGETHER]
    if unknown := [name for name in methods if name not in every]:
        raise typer.BadParameter(f"{unknown[0]!r} is none of {', '.join(every)}.")
    if "cp-sat" in methods and importlib.util.find_spec("ortools") is None:
        say("CP-SAT is left out: ortools is not installed (the extra placement).")
        methods.remove("cp-sat")
    return methods


def main(
    folder: Annotated[Path, typer.Argument()],
    evaluations: Annotated[int, typer.Option()] = 2000,
    seeds: Annotated[int, typer.Option()] = 6,
    small: Annotated[bool, typer.Option("--small", help="Few steps a family: minutes.")] = False,
    held_out: Annotated[
        bool, typer.Option("--held-out", help="As small, none of them learned from.")
    ] = False,
    methods: Annotated[str, typer.Option(help="Joined by commas. Default: all.")] = "",
    policy: Annotated[Path, typer.Option()] = SHIPPED,
) -> None:
    """Measure missing cells and print the tables."""
    if small and held_out:
        raise typer.BadParameter("--small and --held-out are other programs: give one of them.")
    torch.set_num_threads(1)  # for small steps, two threads would mostly wait for each other
    workloads = list(HELD_OUT if held_out else SMALL if small else DOCUMENT)
    chosen = choose_methods(methods)
    bench = Bench(folder, evaluations, policy)
    cells = list(bench.measure_all(workloads, TWO_TASKS, chosen, seeds))
    tabulate(cells, chosen)
    tabulate_reach(cells)
    draw_curves(cells, chosen, folder / "curves.png")
    fused = [workload for workload in workloads if workload.name in FUSION_ROWS]
    tabulate_fusion(list(bench.measure_all(fused, ("fusion",), list(FUSION_METHODS), seeds)))
    if not methods:
        tabulate_together(list(bench.measure_all(workloads, TASKS, list(TOGETHER), seeds)))


if __name__ == "__main__":
    typer.run(main)
