"""A policy is trained in turns of search and imitation, then by PPO."""

import copy
import json
import pickle
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numba import typeof
from safetensors.torch import save_file

from solution.models.nets.checkpoint import SEAL, seal_tensors
from solution.placement import train as placement_training
from solution.placement.baselines.divisions import divide_by_metis
from solution.placement.baselines.lists import list_decisions
from solution.placement.evaluation import TASKS, TWO_TASKS
from solution.placement.graphs import workloads
from solution.placement.graphs.cost_graph import DATA, CostGraph, build_cost_graph
from solution.placement.imitation_targets import BestDecisions, make_evaluators
from solution.placement.machine import Machine, make_machine
from solution.placement.placement_report import PlacementReport, optimize_and_report
from solution.placement.policy.graph_inputs import find_inputs
from solution.placement.policy.imitation import StepRunner
from solution.placement.policy.network import SETTINGS, SHIPPED, load_policy, save_policy
from solution.placement.policy.policy_settings import PolicySettings, PolicyTraining
from solution.placement.policy.ppo import Trainer, make_policy
from solution.placement.simulation.environment import Environment
from solution.placement.train import NUMBERS, CoursePlan, draw_instances, main, train_policy
from solution.system.errors import InputError
from tests.placement.made import make_columns, make_edges, make_graph, make_unequal_machine
from tests.placement.test_policy import SMALL
from tests.placement.test_policy import make_policy as make_small

TINY = PolicySettings(width=32, embedding_layers=1, attention_layers=1, heads=4, segment=64,
                      inner=64, rounds=1)  # fmt: skip


def test_what_is_known_of_a_graph_only_becomes_better() -> None:
    best = BestDecisions(make_evaluators([workloads.WORKLOADS["rnnlm-1x4"]]))
    seconds = [best.seconds.copy()]
    for seed in range(3):
        best.search(None, 40, seed)
        seconds.append(best.seconds.copy())
        decided = zip(best.evaluators, best.decisions, strict=True)
        assert best.seconds == [e.environment.runtime(made).seconds for e, made in decided]
    assert (np.diff(seconds, axis=0) <= 0).all()
    assert sum(seconds[-1]) < 0.9 * sum(seconds[0])


def test_a_trained_policy_decides_better_than_one_that_is_not(tmp_path: Path) -> None:
    evaluators = make_evaluators([workloads.WORKLOADS["rnnlm-1x4"]])
    best = BestDecisions(evaluators)
    best.search(None, 100, 0)
    torch.manual_seed(0)
    untrained = make_policy(TINY, evaluators)
    training = PolicyTraining(updates=2, samples=4, epochs=1)
    plans = [CoursePlan(evaluators, (120, 30))]
    learned = train_policy(copy.deepcopy(untrained), training, plans, (100, 20), tmp_path)
    assert best.compare(learned) < best.compare(untrained.eval())


def test_a_stopped_training_ends_alike(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stopped in the middle of turns, of the second course, in a search, and in PPO."""
    evaluators = make_evaluators([workloads.WORKLOADS["rnnlm-1x4"]])
    training = PolicyTraining(updates=2, samples=4, epochs=1)
    monkeypatch.setattr(placement_training, "EVERY", 5)

    def start(folder: Path) -> dict[str, torch.Tensor]:
        courses = [CoursePlan(evaluators, (20, 10)), CoursePlan(evaluators[:1], (10,))]
        torch.manual_seed(0)
        policy = make_policy(TINY, evaluators)
        learned = train_policy(policy, training, courses, (30, 10), folder)
        return dict(learned.state_dict())

    whole = start(tmp_path / "whole")
    for calls in (8, 20, 12, 8, 6):  # steps and searches; each goes on where the one before ended
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            stop_after(patch, calls)
            start(tmp_path / "stopped")
    again = start(tmp_path / "stopped")
    assert all(torch.equal(again[name], value) for name, value in whole.items())


def test_what_a_training_cannot_be_given_is_said_at_once(tmp_path: Path) -> None:
    for words, message in (
        ({"out": tmp_path}, "is a folder, where a file is to be written"),
        ({"out": tmp_path / "a", "begin": tmp_path / "b"}, "there is no such file"),
        ({"out": tmp_path / "a", "leave_out": "rnlm"}, "There is no family 'rnlm'"),
    ):
        with pytest.raises(InputError, match=message):
            main(**words)


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
    patch.setattr(BestDecisions, "search", count(BestDecisions.search))
    patch.setattr(Trainer, "update", count(Trainer.update))


def test_the_policy_learns_from_none_of_the_documents_programs_and_none_that_is_held_out() -> None:
    drawn = workloads.draw_programs(60)
    learned = {w.name for w in (*workloads.TRAINING_PROGRAMS, *drawn)}
    assert len(learned) == len(workloads.TRAINING_PROGRAMS) + len(drawn)
    assert not learned & {w.name for w in (*workloads.DOCUMENT, *workloads.HELD_OUT)}
    families = {w.family for w in workloads.DOCUMENT}
    assert families == {w.family for w in workloads.TRAINING_PROGRAMS} == {w.family for w in drawn}
    graphs = {tuple(w.make().operations) for w in (*workloads.TRAINING_PROGRAMS, *drawn[:12])}
    others = {tuple(w.make().operations) for w in (*workloads.HELD_OUT, *workloads.DOCUMENT[6:11])}
    assert not graphs & others


def test_the_policy_learns_from_every_number_of_devices() -> None:
    """It can tell nothing between those that it has seen: each has weights of its own."""
    instances = draw_instances((12, 4, 12))
    assert {len(asked.machine) for asked in instances} == set(NUMBERS)
    assert {asked.tasks for asked in instances} == {TASKS, TWO_TASKS}


def test_workers_find_compiled_what_one_process_compiled() -> None:
    """Numba compiles anew for arrays of another kind, and a worker gets its graph as bytes."""
    (evaluator,) = make_evaluators([workloads.WORKLOADS["rnnlm-1x4"]], devices=(2,))
    graph = evaluator.environment.graph
    sent = pickle.loads(pickle.dumps(evaluator)).environment.graph
    for name, array in vars(graph).items():
        if isinstance(array, np.ndarray):
            assert typeof(getattr(sent, name)) == typeof(array), name
            assert not array.flags.writeable, name


def test_workers_find_what_one_process_finds() -> None:
    evaluators = make_evaluators([workloads.WORKLOADS["rnnlm-1x4"]])
    alone, together = BestDecisions(evaluators), BestDecisions(evaluators, workers=2)
    policy = make_policy(TINY, evaluators).eval()
    for best in (alone, together):
        best.search(policy, 30, 0)
    assert alone.seconds == together.seconds < [one.reference for one in evaluators]


def test_a_saved_policy_decides_the_same(tmp_path: Path) -> None:
    policy, inputs = make_small(), find_inputs(make_graph(40, 1))
    save_policy(policy, tmp_path / "mine.safetensors")
    loaded = load_policy(tmp_path / "mine.safetensors")
    assert loaded.settings == policy.settings
    for task in SMALL.tasks:
        assert torch.equal(policy(inputs, 2)[task].log_chances, loaded(inputs, 2)[task].log_chances)


def test_what_is_no_policy_is_named(tmp_path: Path) -> None:
    bad, other = tmp_path / "bad.safetensors", tmp_path / "other.safetensors"
    bad.write_bytes(b"nothing of the kind")
    save_file({"weight": torch.zeros(3)}, other)
    for path, words in ((bad, "bad.safetensors: expected a policy"), (other, "something else"),
                        (tmp_path / "none", "such file")):  # fmt: skip
        with pytest.raises(InputError, match=words):
            load_policy(path)


@pytest.mark.parametrize(("settings", "message"), [
    ({"heads": 5}, "width is 32, expected a multiple of 5 heads"),
    ({"segment": 0}, "segment is 0, expected a number from 1"),
    ({"agreement": 10**9}, "agreement is 1000000000, expected a number from 0"),
    ({"tasks": []}, "expected one or more, each once"),
    ({"tasks": ["fusion", "fusion"]}, "expected one or more, each once"),
])  # fmt: skip
def test_a_file_that_asks_for_what_is_no_network_is_refused(
    settings: dict[str, object], message: str, tmp_path: Path
) -> None:
    path, policy = tmp_path / "odd.safetensors", make_small()
    text = json.dumps({**asdict(policy.settings), **settings})
    tensors = dict(policy.state_dict())
    save_file(tensors, path, {SETTINGS: text, SEAL: seal_tensors(tensors, text)})
    with pytest.raises(InputError, match=f"odd.safetensors: expected a policy .*{message}"):
        load_policy(path)


def test_the_shipped_policy_is_small_and_decides() -> None:
    assert SHIPPED.stat().st_size <= 5e6
    found = load_policy()(find_inputs(make_graph(60, 1)), 4)
    assert set(found) == {"fusion", "placement", "schedule"}


def report(graph: CostGraph, machine: Machine) -> PlacementReport:
    return optimize_and_report(graph, machine, ("placement",), None, 60, 0)


def find_small_machine(graph: CostGraph, devices: int) -> Machine:
    """Devices of just so much memory that something fits, but not HEFT's decision."""
    for memory in np.geomspace(1e6, 1e9, 60):
        machine = make_unequal_machine(devices, 1, float(memory))
        heft = list_decisions(graph, machine, fused=False)["heft"]
        if Environment(graph, machine).runtime(heft).reason is None:
            break
        with suppress(InputError):
            report(graph, machine)
            return machine
    raise AssertionError("HEFT fits wherever anything does")


def test_a_decision_that_does_not_fit_has_no_time() -> None:
    graph = make_graph(40, 2)
    found = report(graph, find_small_machine(graph, 3)).origin()
    assert "HEFT's decision" in found and "HEFT had" not in found
    roomy = report(graph, make_machine(2)).origin()
    assert "and HEFT" in roomy and "does not fit" not in roomy


@pytest.mark.parametrize("devices", [2, 8])
def test_without_a_kernel_it_takes_no_time(devices: int, capfd: pytest.CaptureFixture[str]) -> None:
    """Parameters and tuples: nothing may be divided by the seconds, or written by METIS."""
    kinds = np.full(30, DATA, np.uint8)
    columns = make_columns(30, 0)._replace(fusion_kinds=kinds, operations=np.zeros(30))
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
