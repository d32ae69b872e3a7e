"""Annealing and genetic search are as strong as searches of single nodes are."""

import dataclasses
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch

from benchmarks.go_methods import Protocols, Scratch, breed, decide_at_random
from solution.placement.baselines.annealing import anneal
from solution.placement.baselines.divisions import decide_placement, divide_as_a_person
from solution.placement.baselines.lists import list_decisions
from solution.placement.evaluation import TASKS, TWO_TASKS, Evaluator
from solution.placement.graphs.architectures import make_rnnlm
from solution.placement.graphs.cost_graph import CostGraph, build_cost_graph
from solution.placement.graphs.workloads import SMALL, WORKLOADS
from solution.placement.imitation_targets import LOSS, simplify
from solution.placement.local_search import GainPredictor, search_locally
from solution.placement.machine import make_machine
from solution.placement.optimize import optimize
from solution.placement.policy.policy_settings import PolicyTraining
from solution.placement.policy.ppo import Trainer
from solution.placement.simulation.decision import Decision
from solution.placement.simulation.environment import Environment
from solution.system.errors import InputError
from tests.placement.made import make_columns, make_graph, make_unequal_machine
from tests.placement.test_policy import SMALL as NET
from tests.placement.test_policy import make_policy

Search = Callable[[Evaluator, int, int], None]


def ask(name: str, tasks: tuple[str, ...]) -> Evaluator:
    """About a program on its devices."""
    workload = WORKLOADS[name]
    return Evaluator(Environment(workload.make(), make_machine(workload.devices)), tasks)


@pytest.mark.parametrize("search", [anneal, breed])
@pytest.mark.parametrize(("name", "share"), [("transformer-xl-4-small", 0.92),
                                             ("wavenet-2x3-small", 0.97)])  # fmt: skip
def test_a_search_of_single_nodes_gets_somewhere(search: Search, name: str, share: float) -> None:
    """A wander through a graph of some hundred nodes ends where it began, or worse."""
    evaluator = ask(name, TWO_TASKS)
    search(evaluator, 1000, 0)
    assert evaluator.seconds < share * evaluator.reference


def count_cuts(evaluator: Evaluator, decision: Decision) -> int:
    placement = decision.placement[evaluator.graph.leaders][evaluator.graph.edges]
    return int((placement[:, 0] != placement[:, 1]).sum())


def test_what_a_search_left_behind_is_cleared_away() -> None:
    evaluator = Evaluator(Environment(make_rnnlm(2, 3), make_machine(2)))
    optimize(evaluator, None, 600)
    assert evaluator.best is not None
    before, after = evaluator.best, simplify(evaluator, evaluator.best)
    assert evaluator.environment.runtime(after).seconds <= (1 + LOSS) * evaluator.seconds
    assert count_cuts(evaluator, after) < count_cuts(evaluator, before)
    assert len(np.unique(after.fusion)) <= min(2, len(np.unique(before.fusion)))


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("tasks", [TASKS, ("placement",), ("fusion", "schedule")])
def test_no_decision_becomes_slower_than_is_allowed(tasks: tuple[str, ...], seed: int) -> None:
    evaluator = Evaluator(Environment(make_graph(40, seed, tied=True), make_machine(3)), tasks)
    random = np.random.default_rng(seed)
    decision = evaluator.keep_fixed(decide_at_random(evaluator.graph, evaluator.machine, random))
    after = simplify(evaluator, decision)
    runtime = evaluator.environment.runtime
    assert runtime(after).seconds <= (1 + LOSS) * runtime(decision).seconds
    for name, kept in vars(evaluator.keep_fixed(after)).items():
        assert np.array_equal(vars(after)[name], kept)  # what is not decided stays


def make_fan(branches: int) -> CostGraph:
    """A node that all branches read, of which none reads another."""
    count = branches + 1
    columns = make_columns(count, 0)._replace(
        fusion_kinds=np.ones(count, np.uint8),
        operations=np.full(count, 1e10),
        output_bytes=np.full(count, 1e3),
        resident_bytes=np.zeros(count),
    )
    return build_cost_graph("fan", columns, np.array([(branch, 0) for branch in range(1, count)]))


def test_branches_are_shared_out_in_a_few_evaluations() -> None:
    evaluator = Evaluator(Environment(make_fan(24), make_machine(4)), ("placement",))
    alone = evaluator.evaluate(evaluator.base)
    search_locally(evaluator, GainPredictor(evaluator), evaluator.base, alone, 30)
    assert len(evaluator.curve) <= 31
    assert evaluator.seconds < 0.35 * alone  # a quarter of the work, and the node before it


def test_a_person_s_cut_of_an_unrolled_network_is_beaten() -> None:
    evaluator = ask("rnnlm-2", TWO_TASKS)
    layers = divide_as_a_person(evaluator.graph, evaluator.machine, by_cost=False)
    cut = decide_placement(evaluator.graph, layers, fused=False)
    person = evaluator.evaluate(cut)
    search_locally(evaluator, GainPredictor(evaluator), cut, person, 40)
    assert evaluator.seconds < 0.95 * person


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("seed", range(6))
def test_it_is_never_worse_and_counts_what_it_evaluates(seed: int, fused: bool) -> None:
    graph, machine = make_graph(60, seed, tied=True), make_unequal_machine(3, seed)
    evaluator = Evaluator(Environment(graph, machine))
    drawn = decide_at_random(graph, machine, np.random.default_rng(seed))
    start = drawn if fused else replace(drawn, fusion=np.zeros(graph.num_nodes, np.int64))
    begun = evaluator.evaluate(start)
    search_locally(evaluator, GainPredictor(evaluator), start, begun, 50)
    assert len(evaluator.curve) <= 51
    assert evaluator.best is not None
    assert evaluator.environment.runtime(evaluator.best).seconds == evaluator.seconds <= begun


def make_evaluator(tasks: tuple[str, ...] = TASKS, memory: float = 1e12) -> Evaluator:
    return Evaluator(Environment(make_graph(40, 2), make_unequal_machine(3, 2, memory)), tasks)


@pytest.mark.parametrize("tasks", [("placement",), ("schedule", "fusion"), ("fusion",)])
def test_only_tasks_that_are_asked_for_are_learned(tasks: tuple[str, ...]) -> None:
    evaluator, policy = make_evaluator(tasks), make_policy(dataclasses.replace(NET, rounds=1))
    before = {name: weight.clone() for name, weight in policy.heads.named_parameters()}
    Trainer(policy, [evaluator], PolicyTraining(updates=2, entropy=0.1)).train()
    for head, task in enumerate(NET.tasks):
        now = dict(policy.heads.named_parameters())[f"{head}.weight"]
        assert torch.equal(now, before[f"{head}.weight"]) == (task not in tasks)


@pytest.mark.parametrize("memory", [1e12, 2e7, 1e6])
@pytest.mark.parametrize("budget", [1, 7, 60])
def test_a_search_spends_its_budget_and_no_more(budget: int, memory: float) -> None:
    evaluator = make_evaluator(memory=memory)
    optimize(evaluator, make_policy(), budget)
    assert len(evaluator.curve) == budget


@pytest.mark.parametrize("memory", [1e12, 1e6])
@pytest.mark.parametrize("budget", [5, 40])
@pytest.mark.parametrize(
    "method", ["go", "go-one", "fine-tuned", "from scratch", "joint", "single", "sequential"]
)
def test_every_protocol_keeps_to_its_budget(method: str, budget: int, memory: float) -> None:
    evaluator = make_evaluator(memory=memory)
    training = PolicyTraining(epochs=1)
    protocols = Protocols(SMALL[0], make_policy(), Scratch(NET, training))
    protocols.methods()[method](evaluator, budget, 0)
    assert len(evaluator.curve) <= budget
    assert method not in ("go", "go-one") or len(evaluator.curve) == budget
    best = evaluator.best
    assert best is None or evaluator.environment.runtime(best).seconds == evaluator.seconds


def test_what_cp_sat_proves_is_kept() -> None:
    pytest.importorskip("ortools")
    evaluator = Evaluator(Environment(make_graph(8, 2), make_machine(2)), TWO_TASKS)
    solve = Protocols(SMALL[0], make_policy(), Scratch(NET, PolicyTraining())).methods()["cp-sat"]
    solve(evaluator, 2, 0)
    assert 0.9 * evaluator.seconds < evaluator.bound <= evaluator.seconds * (1 + 1e-9)
    with pytest.raises(InputError, match="no fusion"):
        solve(evaluator.ask(("fusion",), evaluator.base), 2, 0)


@pytest.mark.parametrize("seed", range(4))
def test_a_result_is_never_worse_than_heft_fused_or_not(seed: int) -> None:
    graph, machine = make_graph(60, seed), make_machine(3)
    evaluator = Evaluator(Environment(graph, machine))
    optimize(evaluator, None, 20, seed)
    for fused in (False, True):
        heft = list_decisions(graph, machine, fused=fused)["heft"]
        assert evaluator.seconds <= evaluator.environment.runtime(heft).seconds
