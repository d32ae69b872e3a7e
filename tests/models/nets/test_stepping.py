"""How often an epoch visits each graph, and the course of the learning rate."""

import dataclasses
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from solution.models.layout.layout_gnn import LayoutGnnSettings
from solution.models.nets import stepping
from solution.models.nets.stepping import Steps, learning_rate_factor, list_visits
from solution.models.nets.training_settings import TrainingSettings
from tests.made.graphs import make_layout_graph


@pytest.mark.parametrize("total", range(1, 25))
def test_the_learning_rate_warms_up_and_falls_for_any_number_of_steps(total: int) -> None:
    factors = [learning_rate_factor(step, total) for step in range(total)]
    assert all(0 <= factor <= 1 for factor in factors)
    assert max(factors) == 1
    assert factors[-1] <= factors[factors.index(1.0)]


@given(st.lists(st.integers(1, 500), min_size=1, max_size=9), st.integers(1, 50), st.integers(1, 9))
def test_an_epoch_visits_configurations_about_once(
    sizes: list[int], configs_per_graph: int, visits: int
) -> None:
    training = TrainingSettings(configs_per_graph=configs_per_graph, visits=visits)
    times = np.bincount(list_visits(sizes, training), minlength=len(sizes))
    for size, count in zip(sizes, times, strict=True):
        assert 1 <= count <= visits
        assert count == visits or count * configs_per_graph >= size
        assert count == 1 or (count - 1) * configs_per_graph < size


@given(st.integers(1, 40), st.integers(1, 20), st.integers(1, 12))
def test_an_epoch_of_few_graphs_visits_all_of_them_again(
    count: int, graphs_per_step: int, min_steps: int
) -> None:
    training = TrainingSettings(graphs_per_step=graphs_per_step, min_steps=min_steps)
    times = np.bincount(list_visits([5] * count, training), minlength=count)
    assert len(set(times)) == 1
    assert -(-times.sum() // graphs_per_step) >= min_steps
    assert times[0] == 1 or -(-(times.sum() - count) // graphs_per_step) < min_steps


@given(
    st.lists(st.integers(1, 900), min_size=1, max_size=40), st.integers(1, 4), st.integers(1, 99)
)
def test_an_epoch_of_many_graphs_visits_large_ones_less_often(
    sizes: list[int], graphs_per_step: int, max_steps: int
) -> None:
    training = TrainingSettings(graphs_per_step=graphs_per_step, visits=9, max_steps=max_steps)
    full = np.bincount(list_visits(sizes, dataclasses.replace(training, max_steps=None)))
    times = np.bincount(list_visits(sizes, training))
    most = times.max()
    assert (times == np.minimum(full, most)).all()
    assert most == 1 or times.sum() <= max_steps * graphs_per_step
    more = np.minimum(full, most + 1)
    assert most == full.max() or more.sum() > max_steps * graphs_per_step


@pytest.mark.parametrize(("is_ahead", "before"), [(True, 3), (False, 1)])
def test_where_a_device_works_by_itself_the_next_steps_are_planned_meanwhile(
    is_ahead: bool, before: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And whoever goes on after any step finds what was drawn for those that follow."""
    monkeypatch.setattr(stepping, "works_by_itself", lambda device: is_ahead)
    planned: list[int] = []
    plan, take = Steps.plan, Steps.take

    def note_plan(self: Any, graphs: Any, rows: Any, ahead: ThreadPoolExecutor | None) -> Any:
        planned.append(0)
        assert (ahead is not None) == is_ahead
        return plan(self, graphs, rows, ahead)

    def note_step(self: Any, step: Any) -> Any:
        steps.append(len(planned))
        return take(self, step)

    steps: list[int] = []
    monkeypatch.setattr(Steps, "plan", note_plan)
    monkeypatch.setattr(Steps, "take", note_step)
    training = TrainingSettings(
        epochs=1, patience=None, graphs_per_step=1, configs_per_graph=4, visits=5
    )
    LayoutGnnSettings(width=8, rounds=(8,), training=training).build(0).fit(
        [make_layout_graph(0, configs=40)], []
    )
    count = len(steps)
    assert count > before
    assert steps == [min(number + before, count) for number in range(count)]
