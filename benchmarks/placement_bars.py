"""Compare `fastslow optimize` with HEFT, m-ETF, annealing, and proven optima on small graphs.

    python -m benchmarks.placement_bars

takes a quarter of an hour on one core. It decides placement and schedule without fusion, like the
baselines, with three seeds (more for the smallest graphs). CP-SAT has SECONDS for each graph and
begins with HEFT's decision; its optimum ignores fusion. If it is not proven, its bound is used
instead.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from benchmarks.go_cpsat import solve
from benchmarks.go_tables import say_gain
from solution.placement.baselines.annealing import anneal
from solution.placement.baselines.lists import list_decisions
from solution.placement.evaluation import TWO_TASKS, Evaluator
from solution.placement.graphs.cost_graph import CostGraph
from solution.placement.graphs.workloads import SMALL
from solution.placement.machine import make_machine
from solution.placement.optimize import optimize
from solution.placement.policy.network import load_policy
from solution.placement.simulation.decision import Decision
from solution.placement.simulation.environment import Environment
from solution.system.terminal import make_table, output
from tests.placement.made import make_graph

BUDGET, SEEDS = 2000, 3
TINY_SEEDS = 20  # seeds for graphs that are searched in a tenth of a second
SECONDS = 40.0  # of CP-SAT, per graph
SMALLEST, TINY = 400, (20, 25, 30, 35, 40)  # maximum nodes; numbers of nodes
MADE = (120, 180, 240, 300, 360)  # numbers of nodes of random graphs


@dataclass(frozen=True)
class Row:
    """Seconds of one graph on one machine; for random methods, the geometric mean over seeds."""

    heft: float
    etf: float
    ours: float
    annealed: float
    annealed_long: float


def list_graphs() -> list[CostGraph]:
    """Return graphs of the document's families and random ones, of 100 to 400 nodes."""
    known = [workload.make() for workload in SMALL]
    return [
        *(graph for graph in known if 100 <= graph.num_nodes <= SMALLEST),
        *(make_graph(count, seed) for seed, count in enumerate(MADE)),
    ]


def compare(evaluator: Evaluator) -> Row:
    """Run all methods on one instance."""
    environment, policy = evaluator.environment, load_policy()
    decided = list_decisions(environment.graph, environment.machine, fused=False)
    heft, etf = (_judge(evaluator, decided[name]) for name in ("heft", "m-etf"))
    searches = (
        lambda asked, seed: optimize(asked, policy, BUDGET, seed),
        lambda asked, seed: anneal(asked, BUDGET, seed),
        lambda asked, seed: anneal(asked, 10 * BUDGET, seed),
    )
    found = [_search(evaluator, search) for search in searches]
    return Row(heft, etf, *(float(np.exp(np.log(seconds).mean())) for seconds in found))


def _search(
    evaluator: Evaluator, search: Callable[[Evaluator, int], object], seeds: int = SEEDS
) -> np.ndarray:
    """Return the best seconds (seeds,) of a search."""
    seconds = []
    for seed in range(seeds):
        asked = evaluator.start_again()
        search(asked, seed)
        seconds.append(asked.seconds)
    return np.array(seconds)


def _judge(evaluator: Evaluator, decision: Decision) -> float:
    asked = evaluator.start_again()
    asked.evaluate(decision)
    return asked.seconds


def find_gap(graph: CostGraph, devices: int) -> tuple[float, float, bool]:
    """Return our relative gap to CP-SAT's optimum, and to its decision in the simulator.

    They are means over seeds. The last value says whether the optimum is proven; else it is a
    bound.
    """
    environment = Environment(graph, make_machine(devices))
    evaluator = Evaluator(environment, TWO_TASKS)
    heft = list_decisions(graph, environment.machine, fused=False)["heft"]
    solved = solve(environment, SECONDS, start=heft)
    policy = load_policy()
    ours = _search(evaluator, lambda asked, seed: optimize(asked, policy, BUDGET, seed), TINY_SEEDS)
    mean, theirs = float(ours.mean()), _judge(evaluator, solved.decision)
    return mean / solved.bound - 1, mean / theirs - 1, solved.is_proven


def show_middling() -> None:
    """Print a row per graph and machine, and a summary."""
    table = make_table(f"100 to {SMALLEST} nodes, ms; {BUDGET} decisions, annealing also ten times")
    for header in ("Graph", "Nodes", "Devices", "HEFT", "m-ETF", "Ours", "Annealing", "Ten times"):
        table.add_column(header, justify="left" if header == "Graph" else "right")
    rows = []
    for graph in list_graphs():
        for devices in (2, 4):
            row = compare(Evaluator(Environment(graph, make_machine(devices)), TWO_TASKS))
            rows.append(row)
            milliseconds = (row.heft, row.etf, row.ours, row.annealed, row.annealed_long)
            cells = [f"{1e3 * value:.3f}" for value in milliseconds]
            table.add_row(graph.name, str(graph.num_nodes), str(devices), *cells)
    output.print(table)
    ours = np.array([[row.ours] for row in rows])
    for name, seconds in (
        ("the better of HEFT and m-ETF", [[min(row.heft, row.etf)] for row in rows]),
        ("annealing", [[row.annealed] for row in rows]),
        ("annealing, ten times", [[row.annealed_long] for row in rows]),
    ):
        say_gain(f"{name} / ours - 1, {len(rows)} instances", np.array(seconds), ours)


def show_tiny() -> None:
    """Print the gaps to proven optima."""
    found = [find_gap(make_graph(count, seed), 2) for seed, count in enumerate(TINY)]
    found += [find_gap(make_graph(count, 10 + seed), 3) for seed, count in enumerate(TINY)]
    for place, name in enumerate(("the proven optimum", "its decision, run in the simulator")):
        gaps = np.array([gap[place] for gap in found if gap[2]])
        output.print(
            f"Up to {TINY[-1]} nodes, {len(gaps)} of {len(found)} graphs solved by CP-SAT: ours "
            f"over {name} {gaps.mean():+.2%}, at most {gaps.max():+.2%}."
        )


if __name__ == "__main__":
    torch.set_num_threads(1)
    show_tiny()
    show_middling()
