"""Imitation: what a lesson says, and that the policy learns it."""

from dataclasses import replace
from functools import partial
from itertools import permutations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linear_sum_assignment

from solution.placement.evaluation import Evaluator
from solution.placement.machine import make_machine
from solution.placement.policy.decisions import find_levels
from solution.placement.policy.imitation import (
    Imitation,
    StepRunner,
    call_as_the_policy,
    draw_order,
    find_loss,
    find_names,
    make_lesson,
    make_optimizer,
    move_lessons,
    weigh_devices,
)
from solution.placement.policy.inputs import find_inputs
from solution.placement.policy.network import Choice, Given, Policy
from solution.placement.simulation.environment import Environment
from tests.placement.made import make_decision, make_graph
from tests.placement.test_policy import SMALL, make_policy


def test_imitation_learns_a_decision() -> None:
    evaluator = Evaluator(Environment(make_graph(30, 2), make_machine(2)))
    lesson = make_lesson(evaluator, make_decision(evaluator.graph, 2, 1))
    imitation = Imitation(make_policy(), 60, 3e-3)
    imitation.learn([lesson])
    assert imitation.losses[-1] < 0.7 * imitation.losses[0]
    levels = find_levels(evaluator.graph, np.arange(30.0))
    assert levels.max() == 19 and (np.diff(levels[evaluator.graph.decides_priority]) >= 0).all()


@pytest.mark.parametrize("rounds", [1, 3])
def test_the_policy_computes_where_it_is(rounds: int) -> None:
    """The device "meta" computes shapes only; like a GPU it refuses most of what is on the CPU."""
    policy, inputs = (
        Policy(replace(SMALL, rounds=rounds)).to("meta"),
        find_inputs(make_graph(99, 1)),
    )
    drawn = policy(inputs, 4, 2, generator=torch.Generator())
    own = {task: torch.zeros((2, 99), dtype=torch.int64) for task in SMALL.tasks[1:]}
    taken = policy(inputs, 4, 2, own, fixed={SMALL.tasks[0]: torch.zeros((1, 99)).long()})
    for choice in (*drawn.values(), *taken.values()):
        assert choice.actions.shape == (2, 99)
        assert choice.actions.is_meta and choice.of_actions().is_meta


def test_every_lesson_comes_once_before_any_comes_again() -> None:
    order = draw_order(5, 17, seed=1)
    assert len(order) == 17
    assert all(sorted(order[k : k + 5]) == list(range(5)) for k in (0, 5, 10))
    assert order[:5].tolist() != order[5:10].tolist()


def test_names_of_devices_that_are_alike_mean_nothing() -> None:
    """A lesson and the same with its devices called otherwise teach the same."""
    evaluator, policy = Evaluator(Environment(make_graph(30, 2), make_machine(3))), make_policy()
    lesson = make_lesson(evaluator, make_decision(evaluator.graph, 3, 1))
    other = (lesson.actions["placement"] + 1) % 3
    assert find_loss(policy, lesson) == find_loss(
        policy, replace(lesson, actions={**lesson.actions, "placement": other})
    )

    # Of all ways to call them it is the likeliest.
    def ask(placement: Given) -> Choice:
        given = {**lesson.actions, "placement": placement}
        return policy(find_inputs(evaluator.graph), 3, 1, given)["placement"]

    def find_chance(placement: Given) -> float:
        chances = ask(placement).of_actions()[0, evaluator.graph.decides_device]
        return float(chances.sum().detach())

    called = ask(partial(call_as_the_policy, lesson)).actions
    every = [torch.tensor(names)[called] for names in permutations(range(3))]
    assert find_chance(called) == pytest.approx(max(map(find_chance, every)), abs=1e-4)


def test_devices_that_differ_keep_their_names() -> None:
    unequal = Evaluator(Environment(make_graph(30, 2), make_machine(3, "v100+p100")))
    lesson = make_lesson(unequal, make_decision(unequal.graph, 3, 1))
    assert find_names(unequal.machine).tolist() == [[0, 1, 2], [2, 1, 0]]
    chances = torch.randn(1, 30, 8)
    placement = lesson.actions["placement"]
    assert torch.equal(call_as_the_policy(lesson, chances) == 1, placement == 1)


@given(st.integers(2, 6), st.integers(0, 99))
@settings(max_examples=20, deadline=None)
def test_names_are_those_of_the_best_assignment(devices: int, seed: int) -> None:
    """As scipy's algorithm finds them."""
    graph = make_graph(25, seed)
    evaluator = Evaluator(Environment(graph, make_machine(devices)))
    lesson = make_lesson(evaluator, make_decision(graph, devices, seed))
    chances = torch.randn(1, 25, 8, generator=torch.Generator().manual_seed(seed))
    own, placement = graph.decides_device, lesson.actions["placement"][0].numpy()
    agreed = np.eye(devices)[placement[own]].T @ chances[0, :, :devices].double().numpy()[own]
    _, names = linear_sum_assignment(agreed, maximize=True)
    found = call_as_the_policy(lesson, chances)[0].numpy()[own]
    assert found.tolist() == names[placement[own]].tolist()


def test_a_step_asks_the_device_for_nothing() -> None:
    """On "meta" there is nothing to ask: so a GPU's steps can be recorded and done again."""
    evaluator = Evaluator(Environment(make_graph(30, 2), make_machine(4)))
    lesson = make_lesson(evaluator, make_decision(evaluator.graph, 4, 1))
    policy = make_policy().train().to("meta")
    run = StepRunner(make_optimizer(policy, 1e-3), partial(find_loss, policy))
    losses = [run(one) for one in move_lessons([lesson, lesson], torch.device("meta"))]
    assert all(loss.is_meta and loss.shape == () for loss in losses)


def test_a_node_counts_by_what_it_costs_elsewhere() -> None:
    evaluator = Evaluator(Environment(make_graph(30, 2), make_machine(2)))
    decision, runtime = make_decision(evaluator.graph, 2, 1), evaluator.environment.runtime
    weights = weigh_devices(evaluator, decision)
    own = evaluator.graph.decides_device
    assert weights[own].mean() == pytest.approx(1) and (weights[~own] == 0).all()
    costs = []
    for node in range(30):
        placement = decision.placement[evaluator.graph.leaders].copy()
        placement[node] = 1 - placement[node]
        moved = replace(decision, placement=placement[evaluator.graph.leaders])
        costs.append(max(runtime(moved).seconds - runtime(decision).seconds, 0))
    costs = np.array(costs)[own]
    assert np.array_equal(np.argsort(weights[own], kind="stable"), np.argsort(costs, kind="stable"))
    assert weights[own].min() > 0
