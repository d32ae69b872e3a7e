"""What is said of a graph is true, also where decisions do not fit into memory."""

from dataclasses import replace

import numpy as np
import pytest

from solution.placement.baselines.divisions import divide_by_metis
from solution.placement.baselines.lists import list_decisions
from solution.placement.evaluation import TASKS, Evaluator
from solution.placement.graphs.cost_graph import DATA, CostGraph, build_cost_graph
from solution.placement.machine import Machine, make_machine
from solution.placement.report import Report, optimize_and_report
from solution.placement.simulation.environment import Environment
from solution.system.errors import InputError
from tests.placement.made import make_columns, make_edges, make_graph, make_unequal_machine


def find_small_machine(graph: CostGraph, devices: int) -> Machine:
    """Devices of just so much memory that something fits, but not HEFT's decision."""
    for memory in np.geomspace(1e6, 1e9, 60):
        machine = make_unequal_machine(devices, 1, float(memory))
        evaluator = Evaluator(Environment(graph, machine), ("placement",))
        heft = list_decisions(graph, machine, fused=False)["heft"]
        if evaluator.environment.runtime(heft).reason is None:
            break
        try:
            optimize_and_report(graph, machine, ("placement",), None, 60, 0)
        except InputError:
            continue
        return machine
    raise AssertionError("HEFT fits wherever anything does")


def report(graph: CostGraph, machine: Machine, evaluations: int = 60) -> Report:
    return optimize_and_report(graph, machine, ("placement",), None, evaluations, 0)


def test_a_decision_that_does_not_fit_has_no_time() -> None:
    graph = make_graph(40, 2)
    found = report(graph, find_small_machine(graph, 3)).origin()
    assert "HEFT's decision does not fit into memory" in found and "HEFT had" not in found
    roomy = report(graph, make_machine(2)).origin()
    assert "and HEFT had" in roomy and "does not fit" not in roomy


def test_one_of_anything_is_told_as_one() -> None:
    summary = report(make_graph(1, 0), make_machine(1), evaluations=1).summary()
    assert ": 1 node on 1 device. " in summary and summary.endswith(" 1 decision simulated.")
    full = make_unequal_machine(1, 0, memory=1.0)
    with pytest.raises(InputError, match=r"of 1 decision none fits the memory of 1 device\. "):
        report(make_graph(9, 0), full, evaluations=1)
    with pytest.raises(InputError, match=r"or let placement be decided, too\."):
        optimize_and_report(make_graph(9, 0), full, ("schedule",), None, 1, 0)


@pytest.mark.parametrize("devices", [2, 8])
def test_a_program_that_runs_no_kernel_takes_no_time(
    devices: int, capfd: pytest.CaptureFixture[str]
) -> None:
    """Parameters and tuples: nothing may be divided by the seconds, or written by METIS."""
    columns = make_columns(30, 0)
    columns = columns._replace(
        fusion_kinds=np.full(30, DATA, np.uint8), operations=np.zeros(30)
    )  # fmt: skip
    graph = build_cost_graph("data", columns, make_edges(30, 0))
    machine = replace(make_machine(devices), latency=1e-5)
    found = optimize_and_report(graph, machine, TASKS, None, 80, 0)
    assert found.line.outcome.seconds == 0 and "After: 0 us" in found.summary()
    assert capfd.readouterr().out == ""


def test_metis_writes_nothing_of_a_node_that_is_heavier_than_all_others(
    capfd: pytest.CaptureFixture[str],
) -> None:
    columns = make_columns(40, 0)
    columns.operations[7] = 1e14
    graph = build_cost_graph("heavy", columns, make_edges(40, 0))
    divided = divide_by_metis(graph, make_machine(8))
    assert capfd.readouterr().out == "" and len(np.unique(divided)) == 2
    assert len(np.unique(divide_by_metis(make_graph(40, 0), make_machine(8)))) == 8
