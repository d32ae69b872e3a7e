"""k covers the programs it promises to cover; nothing is promised where little is known."""

import dataclasses
import math
import re
import time
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from solution.serving import calibration
from solution.serving.calibration import (
    FEW,
    Facts,
    Learned,
    Measure,
    check_promise,
    find_steps,
    needed,
    quantile,
)
from solution.serving.calibration import measure as measure_learned
from solution.serving.record import Program
from solution.system.errors import InputError


def make_programs(count: int, seed: int, *, graphs: int = 1, configs: int = 50) -> list[Program]:
    """Programs whose scores are their runtimes with noise."""
    generator = np.random.default_rng(seed)
    programs = []
    for number in range(count):
        nodes, noise = int(generator.integers(5, 500)), generator.uniform(0, 1)
        for size in range(graphs):
            runtimes = np.exp(generator.normal(0, 0.3, configs))
            scores = np.log(runtimes) + generator.normal(0, noise, configs)
            steps = find_steps(np.argsort(scores, kind="stable"), runtimes)
            programs.append(
                Program(
                    f"{seed}-{number}-{size}", f"{seed}-{number}", f"{seed}-{number}", "made",
                    nodes, 2 * nodes, nodes // 4, configs, steps, configs,
                )
            )  # fmt: skip
    return programs


def measure(facts: Facts, configs: int, programs: list[Program]) -> Measure:
    return measure_learned(facts, configs, Learned(programs))


def facts_of(program: Program) -> Facts:
    return Facts("other", program.nodes, program.edges, program.configurable)


@pytest.mark.parametrize("regret", [0.0, 0.02, 0.2])
def test_what_is_needed_is_what_a_search_finds(regret: float) -> None:
    generator = np.random.default_rng(0)
    for _ in range(50):
        runtimes = generator.integers(10, 30, 20).astype(float)
        scores = generator.integers(0, 5, 20).astype(np.float32)
        ordered = runtimes[sorted(range(20), key=lambda place: (scores[place], place))]
        expected = next(
            k for k in range(1, 21) if ordered[:k].min() <= (1 + regret) * runtimes.min() + 1e-9
        )
        assert (
            needed(find_steps(np.argsort(scores, kind="stable"), runtimes), regret + 1e-12)
            == expected
        )


def test_the_quantile_is_the_order_statistic_of_a_finite_sample() -> None:
    programs = make_programs(29, 0)
    ks = sorted(needed(program.steps, 0.02) for program in programs)
    for confidence in (0.5, 0.8, 0.9, 0.95):
        assert quantile(programs, 0.02, confidence) == ks[int(np.ceil(30 * confidence - 1e-9)) - 1]
    assert quantile(programs, 0.02, 0.97) is None
    assert quantile(programs[:8], 0.02, 0.9) is None
    assert quantile(programs[:9], 0.02, 0.9) == max(
        needed(program.steps, 0.02) for program in programs[:9]
    )


def test_graphs_of_one_program_count_as_one() -> None:
    assert quantile(make_programs(8, 0, graphs=20), 0.02, 0.9) is None


@pytest.mark.parametrize("graphs", [1, 3])
def test_programs_of_folds_not_calibrated_on_are_covered(graphs: int) -> None:
    """Five folds, each covered by the k of the other four; many made collections, on average."""
    covered = []
    for seed in range(40):
        programs = make_programs(60, seed, graphs=graphs)
        names = sorted({program.group for program in programs})
        for fold in range(5):
            held = set(names[fold::5])
            k = quantile([p for p in programs if p.group not in held], 0.02, 0.9)
            assert k is not None
            covered += [needed(p.steps, 0.02) <= k for p in programs if p.group in held]
    assert 0.89 <= np.mean(covered) <= 0.95


def find_gap(programs: Sequence[Program]) -> float:
    """The largest distance of a program to the nearest of another group, pair by pair."""
    sizes = [[math.log1p(n) for n in (p.nodes, p.edges, p.configurable)] for p in programs]
    scale = np.std(sizes, axis=0)
    points = np.array(sizes) / np.where(scale == 0, 1, scale)
    nearest = []
    for program, point in zip(programs, points, strict=True):
        away = [other.group != program.group for other in programs]
        if any(away):
            nearest.append(np.sqrt(((points[away] - point) ** 2).sum(axis=1)).min())
    return max(nearest, default=0.0)


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 9), st.integers(0, 9), st.integers(0, 5)), max_size=40),
    st.sampled_from([0, FEW]),
)
def test_the_gap_is_the_largest_distance_to_the_nearest_other_program(
    drawn: list[tuple[int, int, int]], few: int
) -> None:
    """By a tree as by all pairs."""
    (one,) = make_programs(1, 0)
    programs = [
        dataclasses.replace(one, nodes=nodes, edges=edges, group=str(group))
        for nodes, edges, group in drawn
    ]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(calibration, "FEW", few)
        assert not programs or Learned(programs).gap == find_gap(programs)


def test_many_programs_take_seconds() -> None:
    """A record may name as many; all pairs of these would take minutes and gigabytes."""
    (one,) = make_programs(1, 0)
    programs = [
        dataclasses.replace(one, nodes=1 + n * 7919 % 10007, edges=n, group=str(n % 20_000))
        for n in range(40_000)
    ]
    begun = time.monotonic()
    assert 0 < Learned(programs).gap < 10
    assert time.monotonic() - begun < 30


def test_an_unlike_program_is_abstained_from_in_words() -> None:
    programs = make_programs(30, 0)
    assert measure(facts_of(programs[3]), 50, programs).k is not None
    found = measure(Facts("other", 10**6, 10, 0), 50, programs)
    assert found.k is None
    assert "unlike those learned from" in found.reason


def test_a_known_program_is_never_unlike() -> None:
    programs = make_programs(30, 0)
    assert measure(Facts(programs[0].architecture, 10**6, 10, 0), 50, programs).k is not None


def test_more_configurations_than_were_seen_widen_k() -> None:
    programs = make_programs(30, 0)
    few, many = (measure(facts_of(programs[0]), n, programs) for n in (50, 500))
    assert few.k is not None
    assert many.k == 10 * few.k
    assert "widened" in many.reason
    assert measure(facts_of(programs[0]), 2, programs).k == min(2, few.k)
    beyond = measure(facts_of(programs[0]), 1000, programs)
    assert beyond.k is None
    assert "calibrated on had up to 50" in beyond.reason


def test_nothing_is_promised_of_nothing() -> None:
    assert measure(Facts("a", 1, 1, 1), 50, []).k is None
    assert measure(Facts("a", 1, 1, 1), 1, []).k == 1
    empty = [dataclasses.replace(program, steps=()) for program in make_programs(30, 0)]
    assert measure(Facts("a", 1, 1, 1), 50, empty).k is None


@pytest.mark.parametrize(
    ("regret", "confidence", "words"),
    [
        (-0.1, 0.9, "regret is -0.1, expected from 0 to 1"),
        (2.0, 0.9, "regret is 2, expected from 0 to 1: 2% or 0.02"),
        (0.02, 90.0, "confidence is 90, expected between 0 and 1: 90% or 0.9"),
    ],
)
def test_what_cannot_be_promised_is_said_of_the_one_that_is_wrong(
    regret: float, confidence: float, words: str
) -> None:
    with pytest.raises(InputError, match=re.escape(words)) as caught:
        check_promise(regret, confidence)
    assert ("regret" in str(caught.value)) != ("confidence" in str(caught.value))
