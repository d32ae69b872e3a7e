"""Annealing and genetic search are as strong as searches of single nodes are."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from solution.placement.baselines.searches import anneal, breed, change_one
from solution.placement.evaluation import TWO_TASKS, Evaluator
from solution.placement.graphs.workloads import WORKLOADS
from solution.placement.machine import make_machine
from solution.placement.search import Candidate, find_unlike_starts
from solution.placement.simulation.decision import default_decision
from solution.placement.simulation.environment import Environment
from tests.placement.made import make_graph

Search = Callable[[Evaluator, int, int], None]


def ask(name: str, tasks: tuple[str, ...]) -> Evaluator:
    """About one of the small programs on its devices."""
    workload = WORKLOADS[name]
    return Evaluator(Environment(workload.make(), make_machine(workload.devices)), tasks)


@pytest.mark.parametrize("search", [anneal, breed])
@pytest.mark.parametrize(("name", "share"), [("transformer-xl-4-small", 0.92),
                                             ("wavenet-2x3-small", 0.97)])  # fmt: skip
def test_a_search_that_changes_single_nodes_gets_somewhere(
    search: Search, name: str, share: float
) -> None:
    """A wander through a graph of some hundred nodes ends where it began, or worse."""
    evaluator = ask(name, TWO_TASKS)
    search(evaluator, 1000, 0)
    assert evaluator.seconds < share * evaluator.reference


@pytest.mark.parametrize("search", [anneal, breed])
def test_fusions_are_searched_from_what_the_rule_fuses(search: Search) -> None:
    evaluator = ask("rnnlm-2-small", ("fusion",))
    base = evaluator.base
    rule = evaluator.environment.runtime(replace(base, fusion=np.ones_like(base.fusion)))
    assert rule.reason is None and rule.seconds < 0.95 * evaluator.reference
    search(evaluator, 40, 0)
    assert evaluator.seconds <= rule.seconds and len(evaluator.curve) == 40


@pytest.mark.parametrize("search", [anneal, breed])
@pytest.mark.parametrize("budget", [1, 2, 3])
def test_few_evaluations_are_not_overspent(search: Search, budget: int) -> None:
    evaluator = Evaluator(Environment(make_graph(20, 1), make_machine(2)))
    search(evaluator, budget, 0)
    assert len(evaluator.curve) == budget


def test_every_change_changes_an_action() -> None:
    random = np.random.default_rng(0)
    evaluator = Evaluator(Environment(make_graph(30, 1), make_machine(2)))
    for _ in range(60):
        before = evaluator.base
        after = change_one(evaluator, before, random)
        changed = [getattr(before, part) != getattr(after, part) for part in vars(before)]
        assert np.concatenate(changed).sum() == 1


@pytest.mark.parametrize(
    ("names", "starts"),
    [
        (["policy", "policy, draw 2", "heft", "layers"], ["policy", "heft"]),
        (["layers", "heft", "policy, draw 1"], ["layers", "policy, draw 1"]),
        (["layers", "heft"], ["layers", "heft"]),
        (["policy, draw 3", "policy"], ["policy, draw 3", "policy"]),
        (["one device"], ["one device"]),
    ],
)
def test_relieving_begins_with_the_best_and_the_best_of_another_maker(
    names: list[str], starts: list[str]
) -> None:
    decision = default_decision(make_graph(9, 1))
    candidates = [Candidate(name, decision, place) for place, name in enumerate(names)]
    assert [one.name for one in find_unlike_starts(candidates)] == starts
