"""Compare estimates of lifted graphs with their measured runtimes on a TPU v3, without learning.

    python -m benchmarks.lifted_tpu ../shared/data/tpu/npz/layout/xla/random/train/NAME.npz
    python -m benchmarks.lifted_tpu --full 0 --sample 100 FILE ...      different programs alone
    python -m benchmarks.lifted_tpu --budget 0 --budget 8 FILE ...      tau by compilations
    python -m benchmarks.lifted_tpu --budget 0 --budget 8 --replay FILE ...      labels as answers

A graph is written back as a program. Configurations with the same requests to the compiler are one
module, modules that compile to the same result are one program, and each program has one estimate.
Compiled results are kept in the cache of estimates, so that an interrupted run resumes.
"""

import time
from collections import Counter
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import polars as pl
import typer

from benchmarks.fewest_compilations import PatientEstimator
from solution.analysis.graph_lookup import read_file
from solution.collecting.lifting.lift import lift
from solution.collecting.target import parse_target
from solution.collecting.tpu.compiled import CompiledProgram
from solution.collecting.tpu.estimator import Answer, Estimator
from solution.collecting.tpu.ranking import BACKEND, Budget, rank_by_compiler
from solution.collecting.tpu.requests import group_by_requests
from solution.domain.graph import Graph
from solution.domain.metrics import kendall_tau
from solution.models.layout.known_costs import add_known_costs, list_known_costs
from solution.programs.child import Limits
from solution.system.terminal import output, say

COSTS = partial(list_known_costs, backend=BACKEND)
MOST_ROWS = 40  # of a table that is printed


@dataclass(frozen=True)
class Asked:
    """The distinct modules of a graph's configurations."""

    modules: list[bytes]
    of_config: np.ndarray  # (configs,) int64: the module of each


def ask_all(graph: Graph, sample: int | None = None) -> tuple[Graph, Asked]:
    """Write the graph as a program, with a module for each distinct set of requests.

    Configurations that set the same layouts on the requested tensors share a module.

    Args:
        sample: number of sets of requests that are drawn at random; by default all.

    Returns the graph with the configurations whose requests were drawn, and their modules.
    """
    sets = group_by_requests(graph, lift(graph).module)
    say(f"{graph.name}: {graph.num_configs:,} configurations, {len(sets):,} sets of requests")
    drawn, of_config = np.arange(len(sets)), sets.of_config
    if sample is not None and sample < len(sets):
        drawn = np.sort(np.random.default_rng(0).choice(len(sets), sample, replace=False))
        kept = np.flatnonzero(np.isin(of_config, drawn))
        graph, of_config = graph.select(kept), np.searchsorted(drawn, of_config[kept])
    number: dict[bytes, int] = {}
    numbers = [number.setdefault(sets.write_module(one), len(number)) for one in drawn.tolist()]
    return graph, Asked(list(number), np.array(numbers)[of_config])


def measure(program: CompiledProgram | None) -> dict[str, float]:
    """Return the parts of an estimate in milliseconds of cycles, and the operations without one."""
    if program is None:
        return {}
    cycles: Counter[str] = Counter()
    for kernel in program.kernels:
        is_copy = kernel.kind == "copy"
        cycles["copies" if is_copy else kernel.kind] += (kernel.cost.cycles or 0) * kernel.trips
    milliseconds = {kind: count / 0.94e6 for kind, count in cycles.items()}
    return {
        "convolutions and dots, ms": milliseconds.get("convolution", 0)
        + milliseconds.get("dot", 0),
        "copies, ms": milliseconds.get("copies", 0),
        "all kernels, ms": sum(milliseconds.values()),
        "kernels without cycles": sum(kernel.cost.cycles is None for kernel in program.kernels),
        "copies": len(program.copies),
    }


def tabulate(graph: Graph, asked: Asked, answers: list[Answer]) -> pl.DataFrame:
    """Return a row per program: its configurations, their mean runtime, its estimate and parts."""
    times = None if graph.runtimes is None else graph.runtimes / 1e6
    programs = np.array([answer.program or answer.refused for answer in answers])[asked.of_config]
    rows = []
    for program in np.unique(programs):
        is_same = programs == program
        answer = answers[asked.of_config[np.argmax(is_same)]]
        rows.append(
            {
                "program": program[:8] if answer.program else program[:60],
                "configurations": int(is_same.sum()),
                "measured, ms": None if times is None else float(times[is_same].mean()),
                "estimate, ms": answer.nanoseconds and answer.nanoseconds / 1e6,
                **measure(answer.compiled),
            }
        )
    return pl.DataFrame(rows).sort("measured, ms")


def score(graph: Graph, asked: Asked, answers: list[Answer]) -> dict[str, float]:
    """Return Kendall's tau, r of logarithms and the ceiling, over configurations with an estimate.

    The ceiling is the tau of each program's mean runtime: configurations of one program differ by
    noise alone. A tau is the mean over all orders of equal scores (see kendall_tau): scipy's tau-b
    is larger, because it leaves out pairs of equal scores, here those of one program.
    """
    estimates = np.array([answer.nanoseconds or np.nan for answer in answers])[asked.of_config]
    programs = np.array([answer.program for answer in answers])[asked.of_config]
    known = np.isfinite(estimates)
    assert graph.runtimes is not None
    times, found = graph.runtimes[known], estimates[known]
    _, inverse, counts = np.unique(programs[known], return_inverse=True, return_counts=True)
    means = (np.bincount(inverse, times) / counts)[inverse]
    return {
        "estimated": float(known.mean()),
        "tau": kendall_tau(found, times),
        "ceiling": kendall_tau(means, times),
        "r": float(np.corrcoef(np.log(times), np.log(found))[0, 1]),
    }


def find_tau(scores: np.ndarray, times: np.ndarray) -> float | None:
    """Return Kendall's tau; None if the times do not differ."""
    return kendall_tau(scores, times) if len(np.unique(times)) > 1 else None


class Replay:
    """Answers with the mean label of the configurations that a module stands for.

    It replaces the compiler where labels are its estimates already, as in collected graphs.
    """

    def __init__(self, graph: Graph, module: Any) -> None:
        assert graph.runtimes is not None
        sets = group_by_requests(graph, module)
        means = np.bincount(sets.of_config, graph.runtimes) / sets.counts
        self._answers = {sets.write_module(n): float(mean) for n, mean in enumerate(means)}

    def estimate(self, module: bytes, layouts: object = None) -> Answer:
        return Answer(self._answers[module])


def rank_within(
    files: list[Path], estimator: Estimator, budgets: list[int], seconds: float, *, replays: bool
) -> pl.DataFrame:
    """Return Kendall's tau of the compiler's order with labels, a row per graph and budget.

    Configurations without an answer are placed by the model of costs; with a budget of 0, all by
    the prior costs of copies. Column `unasked` is the tau of the configurations without an answer,
    and `prior` is that of the prior costs of the same configurations.
    """
    rows = []
    for file in files:
        graph = read_file(file)
        module, prior = lift(graph).module, add_known_costs(graph, BACKEND)
        assert graph.runtimes is not None
        for budget in budgets:
            limits = Budget(budget, seconds)
            begin = time.process_time()
            asked: Any = Replay(graph, module) if replays else estimator
            order = rank_by_compiler(graph, module, prior, COSTS, asked, limits, tell=say)
            rest = np.isnan(order.estimates)
            rows.append(
                {
                    "graph": graph.name,
                    "nodes": graph.num_nodes,
                    "sets": order.sets,
                    "asked": order.asked,
                    "tau": find_tau(order.scores, graph.runtimes),
                    "unasked": find_tau(order.scores[rest], graph.runtimes[rest]),
                    "prior": find_tau(prior[rest], graph.runtimes[rest]),
                    "compiler, s": order.processor_seconds,
                    "beside, s": time.process_time() - begin,
                    "budget": budget,
                }
            )
    return pl.DataFrame(rows)


def main(
    files: list[Path],
    full: Annotated[int, typer.Option(help="Full compilations of a graph at most.")] = 40,
    seconds: Annotated[float, typer.Option(help="Of one compilation.")] = 5400.0,
    sample: Annotated[
        int | None, typer.Option(help="Sets of requests drawn at random; default: all.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="A folder for tables, as CSV.")] = None,
    budget: Annotated[
        list[int],
        typer.Option(help="Rank with this many compilations of a graph; may be repeated."),
    ] = [],  # noqa: B006 - typer copies it
    processes: Annotated[int, typer.Option(help="Modules compiled at once.")] = 1,
    replays: Annotated[
        bool, typer.Option("--replay", help="Answer --budget with the labels, not the compiler.")
    ] = False,
) -> None:
    """Estimate all configurations of graphs; compare with their runtimes, if they have any."""
    limits = Limits(seconds=seconds, megabytes=12_288)
    with PatientEstimator(parse_target("tpu:v3"), limits, processes=processes) as estimator:
        if budget:
            table = rank_within(files, estimator, budget, seconds, replays=replays)
            with pl.Config(tbl_rows=-1, tbl_cols=-1, float_precision=3):
                output.print(table)
                output.print(table.drop("graph").group_by("budget", maintain_order=True).mean())
            return
        for file in files:
            graph, asked = ask_all(read_file(file), sample)
            begin = time.monotonic()
            answers = estimator.estimate_all(asked.modules, full)
            table = tabulate(graph, asked, answers)
            programs = len({answer.program for answer in answers if answer.program})
            say(
                f"{len(asked.modules)} modules of {graph.num_configs:,} configurations are "
                f"{programs} different programs; {sum(not answer.program for answer in answers)} "
                f"refused; {time.monotonic() - begin:.0f} s"
            )
            if len(table) <= MOST_ROWS:
                with pl.Config(tbl_rows=-1, tbl_cols=-1, float_precision=3):
                    output.print(table)
            if graph.runtimes is not None and any(answer.nanoseconds for answer in answers):
                output.print(score(graph, asked, answers))
            if out is not None:
                out.mkdir(parents=True, exist_ok=True)
                table.write_csv(out / f"{graph.name}.csv")


if __name__ == "__main__":
    typer.run(main)
