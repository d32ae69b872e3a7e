"""A policy is trained in turns of search and imitation, then by PPO."""

import copy
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import typer
from typer.testing import CliRunner

from solution.placement import train as placement_training
from solution.placement.best_known import Best, make_evaluators
from solution.placement.evaluation import TASKS, TWO_TASKS, Evaluator
from solution.placement.graphs.workloads import (
    DOCUMENT,
    DRAWN,
    HELD_OUT,
    LESSONS,
    WORKLOADS,
    draw_judges,
    draw_lessons,
)
from solution.placement.machine import Device, Machine
from solution.placement.policy.imitation import StepRunner
from solution.placement.policy.ppo import Trainer, make_policy
from solution.placement.policy.settings import PolicySettings, TrainingSettings
from solution.placement.search import find_seconds_at_once
from solution.placement.simulation.environment import Environment
from solution.placement.train import NUMBERS, CoursePlan, draw_questions, main, train
from solution.system.errors import InputError
from tests.placement.made import make_graph

TINY = PolicySettings(width=32, embedding_layers=1, attention_layers=1, heads=4, segment=64,
                      inner=64, rounds=1)  # fmt: skip


def test_what_is_known_of_a_graph_only_becomes_better() -> None:
    best = Best(make_evaluators([WORKLOADS["rnnlm-1x4"]]))
    seconds = [best.seconds.copy()]
    for seed in range(3):
        best.search(None, 40, seed)
        seconds.append(best.seconds.copy())
        for evaluator, decision, known in zip(
            best.evaluators, best.decisions, best.seconds, strict=True
        ):
            assert evaluator.environment.runtime(decision).seconds == known
    assert all(b <= a for before, after in zip(seconds, seconds[1:], strict=False)
               for a, b in zip(before, after, strict=True))  # fmt: skip
    assert sum(seconds[-1]) < 0.9 * sum(seconds[0])


def test_a_trained_policy_decides_better_than_one_that_is_not(tmp_path: Path) -> None:
    evaluators = make_evaluators([WORKLOADS["rnnlm-1x4"]])
    best = Best(evaluators)
    best.search(None, 100, 0)
    torch.manual_seed(0)
    untrained = make_policy(TINY, evaluators)
    training = TrainingSettings(updates=2, samples=4, epochs=1)
    plans = [CoursePlan(evaluators, (200, 40))]
    learned = train(copy.deepcopy(untrained), training, plans, (100, 20), tmp_path)
    assert best.compare(learned) < best.compare(untrained.eval())


def test_a_training_that_was_stopped_goes_on_and_ends_alike(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stopped in the middle of turns, of the second course, in a search, and in PPO."""
    evaluators = make_evaluators([WORKLOADS["rnnlm-1x4"]])
    training = TrainingSettings(updates=2, samples=4, epochs=1)
    monkeypatch.setattr(placement_training, "EVERY", 5)

    def start(folder: Path) -> dict[str, torch.Tensor]:
        courses = [CoursePlan(evaluators, (20, 10)), CoursePlan(evaluators[:1], (10,))]
        torch.manual_seed(0)
        policy = make_policy(TINY, evaluators)
        learned = train(policy, training, courses, (60, 20), folder)
        return dict(learned.state_dict())

    whole = start(tmp_path / "whole")
    for calls in (8, 20, 12, 8, 6):  # steps and searches; each goes on where the one before ended
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            stop_after(patch, calls)
            start(tmp_path / "stopped")
    again = start(tmp_path / "stopped")
    assert all(torch.equal(again[name], value) for name, value in whole.items())


def test_a_course_that_begins_with_another_policy_is_another(tmp_path: Path) -> None:
    """Trained again with more steps in the first course: the second one is not taken over."""
    evaluators = make_evaluators([WORKLOADS["rnnlm-1x4"]])

    def start(steps: int, folder: Path) -> dict[str, torch.Tensor]:
        courses = [CoursePlan(evaluators, (steps,)), CoursePlan(evaluators[:1], (4,))]
        torch.manual_seed(0)
        policy = make_policy(TINY, evaluators)
        learned = train(policy, TrainingSettings(updates=0), courses, (30, 10), folder)
        return dict(learned.state_dict())

    start(2, tmp_path / "again")
    again, fresh = start(6, tmp_path / "again"), start(6, tmp_path / "fresh")
    assert all(torch.equal(again[name], value) for name, value in fresh.items())


def test_what_does_not_fit_is_neither_learned_from_nor_compared_with() -> None:
    """The defaults do not fit, and are much faster than what does: all on the slow device."""
    policy = make_policy(TINY, make_evaluators([WORKLOADS["rnnlm-1x4"]])).eval()
    fast = Device("fast", 1e13, 1e12, 0, 1e3)
    slow = [Device("slow", 1e10, 1e9, 0, memory) for memory in (1e12, 1e3)]
    questions = [Evaluator(Environment(make_graph(40, 2), Machine((fast, own)))) for own in slow]
    assert all(one.environment.runtime(one.base).reason for one in questions)
    best = Best(questions)
    best.search(None, 60, 0)
    assert questions[0].reference < best.seconds[0] < math.inf == best.seconds[1]
    assert [lesson.evaluator for lesson in best.make_lessons()] == questions[:1]
    seconds = find_seconds_at_once(questions[0], policy)
    assert best.compare(policy) == pytest.approx(seconds / best.seconds[0])


def test_what_a_training_cannot_be_given_is_said_at_once(tmp_path: Path) -> None:
    for words, message in (
        ({"out": tmp_path}, "is a folder, where a file is to be written"),
        ({"out": tmp_path / "a", "begin": tmp_path / "b"}, "there is no such file"),
        ({"out": tmp_path / "a", "leave_out": "rnlm"}, "There is no family 'rnlm'"),
    ):
        with pytest.raises(InputError, match=message):
            main(**words)


def test_a_training_without_workers_is_refused(tmp_path: Path) -> None:
    app = typer.Typer()
    app.command()(main)
    done = CliRunner().invoke(app, [str(tmp_path / "a.safetensors"), "--workers", "0"])
    assert (done.exit_code, "Invalid value for '--workers'" in done.output) == (2, True), (
        done.output
    )


def stop_after(patch: pytest.MonkeyPatch, calls: int) -> None:
    """Ctrl-C after so many steps of imitation and searches."""
    left = [calls]

    def count(function: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*arguments: Any) -> Any:
            left[0] -= 1
            if left[0] < 0:
                raise KeyboardInterrupt
            return function(*arguments)

        return counted

    patch.setattr(StepRunner, "__call__", count(StepRunner.__call__))
    patch.setattr(Best, "search", count(Best.search))
    patch.setattr(Trainer, "update", count(Trainer.update))


def test_the_policy_learns_from_none_of_the_documents_programs_and_none_that_is_held_out() -> None:
    drawn = draw_lessons(60)
    learned = {w.name for w in (*LESSONS, *drawn)}
    assert len(learned) == len(LESSONS) + len(drawn)
    assert not learned & {w.name for w in (*DOCUMENT, *HELD_OUT)}
    families = {w.family for w in DOCUMENT}
    assert families == {w.family for w in LESSONS} == {w.family for w in drawn}
    graphs = {tuple(w.make().operations) for w in (*LESSONS, *drawn[:12])}
    others = {tuple(w.make().operations) for w in (*HELD_OUT, *DOCUMENT[6:11])}
    assert not graphs & others


def test_the_policy_learns_from_every_number_of_devices() -> None:
    """It can tell nothing between those that it has seen: each has weights of its own."""
    questions = draw_questions((12, 4, 12))
    assert {len(asked.machine) for asked in questions} == set(NUMBERS)
    assert {asked.tasks for asked in questions} == {TASKS, TWO_TASKS}


def test_large_lessons_are_none_of_the_documents_programs() -> None:
    """A WaveNet of 3 stacks of 12 layers is one of 2 of 18; 40 steps are the document's."""
    names = {w.name for w in draw_lessons(300, seed=11, scale=3)}
    assert {"rnnlm-2x40", "gnmt-2x50", "wavenet-3x12", "wavenet-1x36"}.isdisjoint(names)
    assert max(w.make().num_nodes for w in draw_lessons(12, seed=11, scale=3)) > 2600


def test_workers_find_what_one_process_finds() -> None:
    evaluators = make_evaluators([WORKLOADS["rnnlm-1x4"]])
    alone, together = Best(evaluators), Best(evaluators, workers=2)
    policy = make_policy(TINY, evaluators).eval()
    for best in (alone, together):
        best.search(policy, 60, 0)
    assert alone.seconds == together.seconds < [one.reference for one in evaluators]


def test_none_of_the_programs_by_which_a_policy_is_chosen_is_learned_from() -> None:
    judges = {w.name for w in draw_judges()}
    assert len(judges) == 36
    assert not judges & {w.name for w in (*LESSONS, *HELD_OUT, *DOCUMENT, *draw_lessons(DRAWN))}
    graphs = {tuple(w.make().operations) for w in draw_judges()}
    assert not graphs & {tuple(q.graph.operations) for q in draw_questions((40, 12, 0))}


def test_the_same_lessons_are_drawn_again() -> None:
    first, second = draw_lessons(14), draw_lessons(20)
    assert [w.name for w in first] == [w.name for w in second[:14]]
    assert [w.devices for w in first] == [w.devices for w in second[:14]]
    assert all(2 <= w.devices <= 8 and w.make().num_nodes < 2600 for w in first)
