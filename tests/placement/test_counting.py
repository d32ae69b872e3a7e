"""What is evaluated is counted, what is not asked for stays, and what was found is kept."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch

from solution.placement.baselines.divisions import decide_at_random
from solution.placement.baselines.insertion import schedule_by_insertion
from solution.placement.baselines.lists import find_tasks, list_decisions
from solution.placement.evaluation import TASKS, TWO_TASKS, Evaluator
from solution.placement.graphs.workloads import SMALL
from solution.placement.machine import Machine, make_machine
from solution.placement.moves import Moves
from solution.placement.policy.decisions import TRIES, evaluate_mended, find_fixed
from solution.placement.policy.inputs import find_inputs
from solution.placement.policy.network import Policy
from solution.placement.policy.ppo import Trainer, Update, Watch
from solution.placement.policy.settings import GOING_ON, TrainingSettings
from solution.placement.protocols import SAMPLES, Protocols, Scratch
from solution.placement.search import ask, find_first, optimize
from solution.placement.simulation.decision import Decision, Outcome, default_decision
from solution.placement.simulation.environment import Environment
from solution.system.errors import InputError
from tests.placement.made import make_graph, make_unequal_machine
from tests.placement.test_policy import SMALL as NET
from tests.placement.test_policy import make_policy


def make_evaluator(tasks: tuple[str, ...] = TASKS, memory: float = 1e12) -> Evaluator:
    return Evaluator(Environment(make_graph(40, 2), make_unequal_machine(3, 2, memory)), tasks)


@pytest.mark.parametrize("tasks", [("placement",), ("schedule", "fusion"), ("fusion",)])
def test_only_tasks_that_are_asked_for_are_learned(tasks: tuple[str, ...]) -> None:
    evaluator, policy = make_evaluator(tasks), make_policy(dataclasses.replace(NET, rounds=1))
    before = {name: weight.clone() for name, weight in policy.heads.named_parameters()}
    Trainer(policy, [evaluator], TrainingSettings(updates=2, entropy=0.1)).train()
    for place, task in enumerate(NET.tasks):
        now = dict(policy.heads.named_parameters())[f"{place}.weight"]
        assert torch.equal(now, before[f"{place}.weight"]) == (task not in tasks)


@pytest.mark.parametrize("rounds", [1, 2])
def test_a_task_is_told_what_will_run_of_those_that_are_not_asked_for(rounds: int) -> None:
    evaluator = make_evaluator(("placement",))
    policy = make_policy(dataclasses.replace(NET, rounds=rounds))
    chances = ask(policy, evaluator, 3, 0)["placement"].log_chances
    fixed = find_fixed(evaluator)
    assert set(fixed) == {"fusion", "schedule"} and (fixed["fusion"] == 0).all()
    inputs = find_inputs(evaluator.graph)
    assert torch.equal(chances, policy(inputs, 3, fixed=fixed)["placement"].log_chances)
    fixed["fusion"] = torch.full((1, 40), 7)
    assert not torch.equal(chances, policy(inputs, 3, fixed=fixed)["placement"].log_chances)
    if rounds == 1:
        given = {task: own if task == "schedule" else torch.zeros_like(own)
                 for task, own in {**fixed, "placement": fixed["fusion"]}.items()}  # fmt: skip
        assert torch.equal(chances, policy(inputs, 3, given=given)["placement"].log_chances)


def test_each_try_of_mending_is_an_evaluation() -> None:
    evaluator = make_evaluator(memory=2e7)
    crowded = default_decision(evaluator.graph)
    decision, seconds = evaluate_mended(evaluator, crowded, 5)
    assert 2 <= len(evaluator.curve) <= 5
    assert evaluator.price(evaluator.environment.runtime(decision)) == seconds
    fixed = make_evaluator(("fusion",), memory=1e6)
    evaluate_mended(fixed, crowded)
    assert len(fixed.curve) == 1  # nothing may be moved


@pytest.mark.parametrize("memory", [1e12, 2e7, 1e6])
@pytest.mark.parametrize("budget", [1, 2, 7, 30, 100])
def test_a_search_spends_its_budget_and_no_more(budget: int, memory: float) -> None:
    evaluator = make_evaluator(memory=memory)
    optimize(evaluator, make_policy(), budget)
    assert len(evaluator.curve) == budget


@pytest.mark.parametrize("memory", [1e12, 1e6])
@pytest.mark.parametrize("budget", [5, 17, 40, 70])
@pytest.mark.parametrize(
    "method",
    ["go", "go-one", "fine-tuned", "from scratch", "joint", "single", "sequential"],
)
def test_every_protocol_keeps_to_its_budget(method: str, budget: int, memory: float) -> None:
    evaluator = make_evaluator(memory=memory)
    training = TrainingSettings(epochs=1)
    protocols = Protocols(SMALL[0], make_policy(), Scratch(NET, training))
    protocols.methods()[method](evaluator, budget, 0)
    assert len(evaluator.curve) <= budget
    assert method not in ("go", "go-one") or len(evaluator.curve) == budget
    best = evaluator.best
    assert best is None or evaluator.environment.runtime(best).seconds == evaluator.seconds


def test_a_tuned_policy_is_asked_first_and_at_last_and_was_not_hurried(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rates: list[float] = []
    update = Trainer.update

    def note(trainer: Trainer, watch: Watch) -> None:
        rates.append(trainer.settings.learning_rate)
        update(trainer, watch)

    monkeypatch.setattr(Trainer, "update", note)
    evaluator = make_evaluator()
    scratch = Scratch(NET, TrainingSettings(learning_rate=1e-3))
    protocols = Protocols(SMALL[0], make_policy(), scratch)
    protocols.fine_tune(evaluator, 3 * SAMPLES + 4, 0)
    assert rates == [GOING_ON] * 3 and len(evaluator.curve) == 1 + 3 * SAMPLES + 1
    at_once = make_evaluator()
    protocols.methods()["zero-shot"](at_once, 3 * SAMPLES + 4, 0)
    assert evaluator.curve[: len(at_once.curve)] == at_once.curve
    assert evaluator.seconds <= at_once.seconds


def test_tasks_in_turn_know_what_those_before_them_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Apart, each network is trained beside the default; in turn, beside what is known by then."""
    asked: list[tuple[tuple[str, ...], bool]] = []
    ask_one = Evaluator.ask

    def note(evaluator: Evaluator, tasks: tuple[str, ...], base: Decision) -> Evaluator:
        asked.append((tasks, base is evaluator.base))
        return ask_one(evaluator, tasks, base)

    monkeypatch.setattr(Evaluator, "ask", note)
    scratch = Scratch(NET, TrainingSettings(learning_rate=1e-3))
    apart, in_turn = make_evaluator(), make_evaluator()
    scratch.decide_singly(apart, 6 * SAMPLES, 0)
    assert asked == [((task,), True) for task in TASKS]
    asked.clear()
    scratch.decide_in_turn(in_turn, 6 * SAMPLES, 0)
    assert [tasks for tasks, _ in asked] == [(task,) for task in TASKS]
    assert not any(is_default for _, is_default in asked[1:])
    # What one task found stays while the next is decided, so nothing is lost.
    assert in_turn.best is not None and in_turn.best.fusion.any()


def test_what_cp_sat_proves_is_kept() -> None:
    pytest.importorskip("ortools")
    question = Evaluator(Environment(make_graph(8, 2), make_machine(2)), TWO_TASKS)
    protocols = Protocols(SMALL[0], make_policy(), Scratch(NET, TrainingSettings()))
    protocols.methods()["cp-sat"](question, 2, 0)
    assert 0.9 * question.seconds < question.bound <= question.seconds * (1 + 1e-9)
    with pytest.raises(InputError, match="no fusion"):
        protocols.methods()["cp-sat"](question.ask(("fusion",), question.base), 2, 0)


def test_the_best_decision_outlives_a_stop(tmp_path: Path) -> None:
    settings = TrainingSettings(updates=4, samples=4)
    stopped = Trainer(make_policy(), [make_evaluator()], settings)
    stopped.update()
    stopped.save(tmp_path)
    resumed = Trainer(make_policy(), [make_evaluator()], settings)
    resumed.resume(tmp_path)
    found, known = resumed.evaluators[0], stopped.evaluators[0]
    assert found.best is not None and known.best is not None and found.best_outcome is not None
    assert np.array_equal(found.best.placement, known.best.placement)
    assert found.best_outcome.seconds == found.seconds == known.seconds
    assert resumed.done == 1


def test_a_checkpoint_of_another_policy_is_left_alone(tmp_path: Path) -> None:
    settings = TrainingSettings(updates=1, samples=4)
    Trainer(make_policy(seed=0), [make_evaluator()], settings).train(folder=tmp_path)
    other = Trainer(make_policy(seed=1), [make_evaluator()], settings)
    other.resume(tmp_path)
    assert other.done == 0
    again = Trainer(make_policy(seed=0), [make_evaluator()], settings)
    again.resume(tmp_path)
    assert again.done == 1


def test_the_device_of_the_leader_wins() -> None:
    graph = make_graph(2, 3)
    tasks = find_tasks(graph, make_machine(2))
    times = np.ones_like(tasks.seconds), tasks.transfer, *tasks.producers
    leaders, fixed = np.array([0, 0]), np.array([0, 1])
    placement, _, _ = schedule_by_insertion(np.arange(2), *times, leaders, fixed)
    assert placement.tolist() == [0, 0]


def test_actions_are_within_chances_that_were_rounded() -> None:
    evaluator = make_evaluator()
    chances = {"fusion": np.full((40, 20), 0.0499), "placement": np.full((40, 8), 0.1)}
    moves = Moves(evaluator, chances)

    class High(np.random.Generator):
        def random(self, size: int) -> np.ndarray:  # type: ignore[override]
            return np.full(size, 0.9999)

    high, nodes = High(np.random.PCG64(0)), np.arange(40)
    assert moves._draw("fusion", nodes, high).tolist() == [19] * 40
    assert moves._draw("placement", nodes, high).tolist() == [2] * 40


def test_no_decision_is_among_the_first_twice() -> None:
    evaluator = make_evaluator(("placement",))
    names = list(find_first(evaluator))
    assert "tensorflow" not in names and "cells" not in names  # graphs without stages
    assert names[:2] == ["one device", "heft"] and {"layers", "metis", "m-etf"} <= set(names)
    every = list(find_first(make_evaluator()))
    # Of two kinds of devices.
    assert "tensorflow" in every and every[2] == "heft, unfused" and len(every) <= 22


@pytest.mark.parametrize("seed", range(4))
def test_a_result_is_never_worse_than_heft_fused_or_not(seed: int) -> None:
    graph, machine = make_graph(60, seed), make_machine(3)
    evaluator = Evaluator(Environment(graph, machine))
    optimize(evaluator, None, 20, seed)
    for fused in (False, True):
        heft = list_decisions(graph, machine, fused=fused)["heft"]
        assert evaluator.seconds <= evaluator.environment.runtime(heft).seconds


def test_a_random_decision_is_mended_or_given_up() -> None:
    evaluator = make_evaluator(memory=1e6)
    drawn = decide_at_random(evaluator.graph, evaluator.machine, np.random.default_rng(0))
    evaluate_mended(evaluator, drawn)
    assert len(evaluator.curve) == TRIES
    assert isinstance(make_policy(), Policy)


def test_a_mild_penalty_is_that_of_what_does_not_fit_and_of_nothing_else() -> None:
    """What fits and runs longer than the penalty stands for is still told apart."""
    slow = Machine(make_machine(2).devices, latency=0.1)
    evaluator = Evaluator(Environment(make_graph(30, 2), slow), ("placement",))
    policy = make_policy(dataclasses.replace(NET, tasks=("placement",)))
    updates: list[Update] = []
    training = TrainingSettings(updates=1, samples=4, repair=False, penalty=-2.0)
    Trainer(policy, [evaluator], training).train(updates.append)
    assert evaluator.best is not None and updates[0].mean_reward < -4
    full = evaluator.price(Outcome(1.0, np.zeros(2), "device 0 is overfull"))
    assert evaluator.reward(full, -2.0) == -2.0 and evaluator.reward(full) == -10.0
