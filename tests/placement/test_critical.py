"""What decides how long a step takes: kernels and transfers that wait for each other."""

import numpy as np
import pytest

from solution.placement.baselines.divisions import decide_at_random
from solution.placement.evaluation import Evaluator
from solution.placement.graphs.cost_graph import build_cost_graph
from solution.placement.machine import make_machine
from solution.placement.moves import Moves
from solution.placement.simulation.decision import Decision
from solution.placement.simulation.environment import Environment
from tests.placement.made import make_columns, make_graph, make_unequal_machine


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("seed", range(40))
def test_it_leaves_no_moment_of_the_step_out(seed: int, fused: bool) -> None:
    graph = make_graph(8 + seed, seed)
    machine = make_unequal_machine(2 + seed % 3, 2, 1e12) if seed % 3 else make_machine(3)
    environment = Environment(graph, machine)
    drawn = decide_at_random(graph, machine, np.random.default_rng(seed))
    levels = drawn.fusion if fused else np.zeros(graph.num_nodes, np.int64)
    decision = Decision(drawn.placement, drawn.priorities, levels)
    critical = set(environment.find_critical(decision).tolist())
    line = environment.timeline(decision)
    busy = [(line.start[node], line.end[node]) for node in critical]
    busy += [(sent.start, sent.end) for sent in line.transfers if sent.node in critical]
    known = 0.0
    for start, end in sorted(busy):
        assert start <= known
        known = max(known, end)
    assert known == line.outcome.seconds


def test_what_nobody_waits_for_is_not_in_it() -> None:
    """Three nodes in a row on one device; a fourth beside them, on another, that is soon done."""
    columns = make_columns(4, 1)
    kinds, operations = np.ones_like(columns.fusion_kinds), np.array([1e9, 1e9, 1e9, 1e6])
    columns = columns._replace(fusion_kinds=kinds, operations=operations)
    graph = build_cost_graph("row", columns, np.array([[1, 0], [2, 1]]))
    placement = np.array([0 if number < 3 else 1 for number in graph.numbers])
    decision = Decision(placement, np.zeros(4), np.zeros(4, np.int64))
    critical = Environment(graph, make_machine(2)).find_critical(decision)
    assert graph.numbers[critical].tolist() == [0, 1, 2]


def test_half_of_the_changes_are_around_it() -> None:
    evaluator = Evaluator(Environment(make_graph(200, 3), make_machine(2)), ("placement",))
    decision, moves = evaluator.base, Moves(evaluator)
    random = np.random.default_rng(0)
    moves(evaluator, decision, random)
    critical = evaluator.environment.find_critical(decision)
    assert 0 < len(critical) <= 200
    moves._critical = decision, critical[:1]
    chosen = [moves._choose_one(random) for _ in range(400)]
    assert 150 < chosen.count(int(critical[0])) < 250
