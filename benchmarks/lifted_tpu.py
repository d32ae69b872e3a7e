"""Compare estimates of lifted graphs with their measured runtimes on a TPU v3, without learning.

    python -m benchmarks.lifted_tpu ../shared/data/tpu/npz/layout/xla/random/train/NAME.npz
    python -m benchmarks.lifted_tpu --full 0 --sample 100 FILE ...      different programs alone

A graph is written back as a program. Configurations with the same requests to the compiler are one
module, modules that compile to the same result are one program, and each program has one estimate.
Compiled results are kept in the cache of estimates, so that an interrupted run resumes.
"""

import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
import polars as pl
import typer
from scipy.stats import kendalltau

from solution.analysis.graph_lookup import read_file
from solution.collecting.constraints import complete_layout
from solution.collecting.lifting.lift import lift
from solution.collecting.target import parse_target
from solution.collecting.tpu.asking import ask, find_asked_ranks
from solution.collecting.tpu.compiled import CompiledProgram
from solution.collecting.tpu.estimator import Answer, Estimator
from solution.domain.graph import Graph
from solution.domain.vocabulary import MAX_RANK
from solution.programs.child import Limits
from solution.system.terminal import output, say

TENSORS = 3
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
    module, book = lift(graph).module, graph.layouts
    ranks = find_asked_ranks(module, graph.configurable)
    layouts = book.layouts.reshape(-1, TENSORS, MAX_RANK)
    # Number the requests of each (node, layout) pair; a configuration is a row of these numbers.
    known: dict[tuple[int, tuple[tuple[int, ...], ...]], int] = {}
    asked = np.array(
        [
            known.setdefault((node, complete(layouts[pair], ranks[node])), len(known))
            for pair, node in enumerate(book.node.tolist())
        ]
    )
    rows = asked[book.pairs(slice(None))]
    _, first, inverse = np.unique(rows, axis=0, return_index=True, return_inverse=True)
    say(f"{graph.name}: {graph.num_configs:,} configurations, {len(first):,} sets of requests")
    of_config = inverse.reshape(-1)[book.rows]
    if sample is not None and sample < len(first):
        drawn = np.sort(np.random.default_rng(0).choice(len(first), sample, replace=False))
        kept = np.flatnonzero(np.isin(of_config, drawn))
        graph, first = graph.select(kept), first[drawn]
        of_config = np.searchsorted(drawn, of_config[kept])
    number: dict[bytes, int] = {}
    numbers = []
    for row in first.tolist():
        chosen = layouts[book.pairs(np.array([row]))[0]]
        data = ask(module, graph.configurable, chosen)
        numbers.append(number.setdefault(data, len(number)))
    return graph, Asked(list(number), np.array(numbers)[of_config])


def complete(layouts: np.ndarray, ranks: np.ndarray) -> tuple[tuple[int, ...], ...]:
    """Return the complete layouts (3, 6) of the requested tensors; other tensors have none."""
    given = [
        layout[layout >= 0].tolist()[:rank] for layout, rank in zip(layouts, ranks, strict=True)
    ]
    return tuple(
        tuple(complete_layout(layout, rank)) if layout and rank else ()
        for layout, rank in zip(given, ranks.tolist(), strict=True)
    )


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
        "kernels without cycles": len(program.unestimated),
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
    noise alone.
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
        "tau": float(kendalltau(times, found)[0]),
        "ceiling": float(kendalltau(times, means)[0]),
        "r": float(np.corrcoef(np.log(times), np.log(found))[0, 1]),
    }


def main(
    files: list[Path],
    full: Annotated[int, typer.Option(help="Full compilations of a graph at most.")] = 40,
    seconds: Annotated[float, typer.Option(help="Of one compilation.")] = 5400.0,
    sample: Annotated[
        int | None, typer.Option(help="Sets of requests drawn at random; default: all.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="A folder for tables, as CSV.")] = None,
) -> None:
    """Estimate all configurations of graphs; compare with their runtimes, if they have any."""
    limits = Limits(seconds=seconds, megabytes=12_288)
    with Estimator(parse_target("tpu:v3"), limits) as estimator:
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
