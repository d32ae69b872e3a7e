"""GO's two tables and its curve: every method with equal evaluations in one simulator, by seed.

    python -m tests.benchmarks.go build/go --evaluations 2000 --seeds 6

A cell (workload, machine, tasks, method, seed) is a file once it is measured, so a run that was
stopped goes on. All gains are baseline / GO - 1, their mean that of logarithms, with the 95%
interval from drawing workloads and seeds anew.
"""

import json
import time
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from solution.placement.baselines.bounds import find_bound
from solution.placement.evaluation import TASKS, Evaluator
from solution.placement.graphs.workloads import DOCUMENT, SMALL, Workload
from solution.placement.machine import make_machine
from solution.placement.policy.saving import SHIPPED, load_policy
from solution.placement.policy.settings import PolicySettings, TrainingSettings
from solution.placement.protocols import Protocols
from solution.placement.simulation.environment import Environment
from solution.system.files import write_json
from solution.system.terminal import make_table, output, say
from tests.benchmarks.go_document import FUSION_ROWS, PRINTED

SCRATCH = PolicySettings(width=64, attention_layers=2, heads=4, inner=128, rounds=2)
TRAINING = TrainingSettings(learning_rate=1e-3, epochs=2)  # of GO-one: from scratch, few updates
DETERMINISTIC = ("human", "metis", "one device", "tensorflow", "heft", "cpop", "m-etf", "m-sct",
                 "zero-shot")  # fmt: skip
FUSION_METHODS = ("tensorflow", "annealing", "go")
DRAWS = 2000


def measure(
    folder: Path, workload: Workload, tasks: tuple[str, ...], method: str, seed: int, budget: int,
    policy: Path,
) -> dict:  # fmt: skip
    """One cell, or what its file says of it."""
    name = f"{workload.name}-{workload.devices}-{'+'.join(tasks)}-{method}-{budget}-{seed}.json"
    path = folder / "cells" / name.replace(" ", "_")
    if path.exists():
        return json.loads(path.read_text())
    environment = Environment(workload.make(), make_machine(workload.devices))
    evaluator = Evaluator(environment, tasks)
    protocols = Protocols(workload, load_policy(policy), SCRATCH, TRAINING)
    began = time.perf_counter()
    protocols.methods()[method](evaluator, budget, seed)
    found = {
        "workload": workload.name, "method": method, "seed": seed, "tasks": tasks,
        "seconds": evaluator.seconds if evaluator.best is not None else None,
        "clock": time.perf_counter() - began, "evaluations": len(evaluator.curve),
        "bound": find_bound(environment.graph, environment.machine, fused="fusion" in tasks),
        "reference": evaluator.reference,
        "curve": [value if np.isfinite(value) else None for value in evaluator.curve[::10]],
    }  # fmt: skip
    write_json(found, path)
    return found


def find_gain(baseline: np.ndarray, ours: np.ndarray, seed: int = 0) -> tuple[float, float, float]:
    """baseline / ours - 1 by the mean of logarithms, and its 95% interval.

    Args:
        baseline, ours: (workloads, seeds) seconds; NaN where a method is out of memory.
    """
    logs = np.log(baseline / ours)
    logs = logs[np.isfinite(logs).all(axis=1)]
    if not len(logs):
        return np.nan, np.nan, np.nan
    random = np.random.default_rng(seed)
    rows, columns = logs.shape
    means = [
        logs[random.integers(rows, size=rows)][:, random.integers(columns, size=columns)].mean()
        for _ in range(DRAWS)
    ]
    low, high = np.quantile(means, [0.025, 0.975])
    return float(np.expm1(logs.mean())), float(np.expm1(low)), float(np.expm1(high))


def tabulate(cells: list[dict], workloads: list[Workload], methods: list[str], seeds: int) -> None:
    """The document's second table with ours, and gains over each method below it."""
    seconds = {
        method: np.array([
            [_seconds(cells, w.name, method, 0 if method in DETERMINISTIC else s)
             for s in range(seeds)] for w in workloads])
        for method in methods
    }  # fmt: skip
    table = make_table(f"Seconds a step, means of {seeds} seeds; in brackets as printed")
    for header in ("Workload", *methods, "Bound"):
        table.add_column(header, justify="right")
    for place, workload in enumerate(workloads):
        printed = PRINTED.get(workload.name, {})
        row = [workload.name]
        for method in methods:
            mean = seconds[method][place].mean()
            own = "OOM" if np.isnan(mean) else f"{mean:.4f}"
            row.append(own + (f" ({printed[method]})" if method in printed else ""))
        bound = next(c["bound"] for c in cells if c["workload"] == workload.name)
        table.add_row(*row, f"{bound:.4f}")
    output.print(table)
    for ours in ("go", "go-one"):
        for method in methods:
            if ours in methods and method != ours:
                gain, low, high = find_gain(seconds[method], seconds[ours])
                say(f"{method} / {ours} - 1: {gain:+.1%} ({low:+.1%} to {high:+.1%})")


def _seconds(cells: list[dict], workload: str, method: str, seed: int) -> float:
    for cell in cells:
        if (cell["workload"], cell["method"], cell["seed"]) == (workload, method, seed):
            return np.nan if cell["seconds"] is None else cell["seconds"]
    return np.nan


def tabulate_fusion(cells: list[dict], seeds: int) -> None:
    """The document's third table: speed-up of fusion alone over none, in percent."""
    table = make_table("Fusion alone: no fusion / fused - 1 in percent; in brackets as printed")
    for header in ("Workload", *FUSION_METHODS):
        table.add_column(header, justify="right")
    for name, printed in FUSION_ROWS.items():
        row = [name]
        for method in FUSION_METHODS:
            own = [c for c in cells if c["workload"] == name and c["method"] == method]
            gains = [100 * (c["reference"] / c["seconds"] - 1) for c in own if c["seconds"]]
            row.append(f"{np.mean(gains):.2f} ({printed[method]})" if gains else "-")
        table.add_row(*row)
    output.print(table)


def draw_curves(cells: list[dict], methods: list[str], path: Path) -> None:
    """Best seconds over the reference's by evaluations: the geometric mean over all cells."""
    from matplotlib.figure import Figure

    axes = (figure := Figure(figsize=(7, 4), layout="constrained")).subplots()
    for method in methods:
        own = [c for c in cells if c["method"] == method and len(c["curve"]) > 1]
        if own:
            length = min(len(c["curve"]) for c in own)
            rows = [[np.nan if v is None else v / c["reference"] for v in c["curve"][:length]]
                    for c in own]  # fmt: skip
            axes.plot(
                10 * np.arange(length), np.exp(np.nanmean(np.log(rows), axis=0)), label=method
            )
    axes.set(xlabel="decisions simulated", ylabel="best / default")
    axes.legend()
    figure.savefig(path, dpi=120)


def main(
    folder: Annotated[Path, typer.Argument()],
    evaluations: Annotated[int, typer.Option()] = 2000,
    seeds: Annotated[int, typer.Option()] = 6,
    small: Annotated[bool, typer.Option("--small", help="Few steps a family: minutes.")] = False,
    methods: Annotated[str, typer.Option(help="Joined by commas. Default: all.")] = "",
    policy: Annotated[Path, typer.Option()] = SHIPPED,
) -> None:
    """Measure every cell that is not measured yet; print the tables."""
    workloads = list(SMALL if small else DOCUMENT)
    every = Protocols(workloads[0], load_policy(policy), SCRATCH, TRAINING).methods()
    chosen = methods.split(",") if methods else list(every)
    cells, fusion = [], []
    for seed in range(seeds):
        for workload in workloads:
            for method in chosen:
                if seed == 0 or method not in DETERMINISTIC:
                    tasks = TASKS[1:]  # placement and schedule, as the document's second table
                    cells.append(
                        measure(folder, workload, tasks, method, seed, evaluations, policy)
                    )
            if workload.name in FUSION_ROWS:
                fusion += [measure(folder, workload, ("fusion",), method, seed, evaluations, policy)
                           for method in FUSION_METHODS]  # fmt: skip
    tabulate(cells, workloads, chosen, seeds)
    tabulate_fusion(fusion, seeds)
    draw_curves(cells, chosen, folder / "curves.png")


if __name__ == "__main__":
    typer.run(main)
