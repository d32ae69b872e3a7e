"""Nested estimates: nothing is scored by weights that saw it."""

import dataclasses
from collections.abc import Sequence
from functools import partial
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from ensembles.recipe import find_recipe
from ensembles.search import (
    BEST,
    HINDSIGHT,
    WHOLE,
    Rule,
    drop_constants,
    estimate,
    estimate_nested,
    learn,
    learn_choice,
    list_candidates,
    mean_of_collections,
    search,
    write_recipe,
)
from ensembles.weights import (
    FITS,
    Ballot,
    Fit,
    fit_best,
    fit_equal,
    fit_greedy,
    fit_least_squares,
    fit_optuna,
    mean_score,
    read_ballots,
)
from solution.system.errors import InputError
from tests.made.ballots import draw_ballots, write_run


class WatchfulRule(Rule):
    """Refuses to score a graph of a group that its weights saw, and notes what it scores."""

    seen: set[str]
    scored: list[str]

    def score(self, ballot: Ballot) -> float:
        assert ballot.group not in self.seen, f"{ballot.graph} was fitted on"
        self.scored.append(ballot.graph)
        return super().score(ballot)


@pytest.mark.parametrize("parts", [2, 5, 50])
def test_no_graph_is_scored_by_weights_that_saw_its_group(parts: int) -> None:
    ballots = draw_ballots([0.5, 1.0], graphs=14, methods=("mean_rank",))
    scored: list[str] = []

    def choose(rest: Sequence[Ballot]) -> Rule:
        rule = learn(fit_greedy, "mean_rank")(rest)
        watchful = WatchfulRule(rule.method, rule.weights)
        vars(watchful).update(seen={ballot.group for ballot in rest}, scored=scored)
        return watchful

    scores = estimate_nested(ballots, choose, parts)
    assert sorted(scored) == [ballot.graph for ballot in ballots]
    assert np.isfinite(scores).all()


def test_a_search_chooses_without_the_graphs_it_is_scored_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ballots = draw_ballots([0.5, 1.0], graphs=8, methods=("mean_rank", "z_score"))
    choose = learn_choice(list_candidates(("mean_rank", "z_score"), ("equal", "best")))
    allowed: set[str] = set()
    choices = 0
    score = Ballot.score

    def guard(ballot: Ballot, *arguments: object) -> float:
        assert ballot.group in allowed, "the choice looked at a graph that is left out"
        return score(ballot, *arguments)  # type: ignore[arg-type]

    def choose_watched(rest: Sequence[Ballot]) -> Rule:
        nonlocal choices
        choices += 1
        allowed.clear()
        allowed.update(ballot.group for ballot in rest)
        with monkeypatch.context() as patch:
            patch.setattr(Ballot, "score", guard)
            return choose(rest)

    assert np.isfinite(estimate_nested(ballots, choose_watched, parts=4)).all()
    assert choices == 4


def test_fixed_weights_show_no_optimism_and_fitted_ones_do() -> None:
    ballots = draw_ballots([2.0] * 6, graphs=12, methods=("mean_rank",))
    np.testing.assert_allclose(*estimate(ballots, learn(fit_equal, "mean_rank")))
    nested, naive = estimate(ballots, learn(partial(fit_greedy, steps=5), "mean_rank"))
    assert naive.mean() > nested.mean()


def test_one_group_alone_cannot_be_nested() -> None:
    ballots = draw_ballots([0.5], graphs=2, methods=("mean_rank",))
    scores = estimate_nested(ballots, learn(fit_equal, "mean_rank"))
    assert np.isnan(scores).all()
    assert np.isnan(mean_of_collections(ballots, scores))


def test_the_best_line_fitted_on_all_graphs_is_proposed_as_a_recipe(tmp_path: Path) -> None:
    run = write_run(tmp_path, [0.5, 0.7, 4.0])
    candidates = list_candidates(("mean_rank", "z_score"), ("best", "equal"))
    found = search(run, run.experiments(), candidates)
    assert found.members["tile:xla"] == ["member_0", "member_1", "member_2"]  # nothing_001 is not
    assert set(found.candidates["candidate"]) == {*(c.name for c in candidates), WHOLE}
    assert set(found.table["member"]) == {*found.candidates["candidate"], BEST, HINDSIGHT}
    lines = {row["candidate"]: row for row in found.candidates.iter_rows(named=True)}
    whole = lines.pop(WHOLE)
    best = max(lines.values(), key=lambda line: line["nested"])
    assert found.candidate.name == best["candidate"]
    assert whole["naive"] == best["naive"]
    names, ballots = read_ballots(run, run.experiments(), ["mean_rank", "z_score"])
    names, ballots = drop_constants(names, ballots)
    rule = found.candidate.learn()(ballots)
    for name, weights in found.rule.weights.items():
        np.testing.assert_array_equal(weights, rule.weights[name])
    scored = np.array([rule.score(ballot) for ballot in ballots])
    assert whole["naive"] == pytest.approx(mean_of_collections(ballots, scored))
    assert learn_choice(candidates)(ballots).method == rule.method
    write_recipe(found, tmp_path / "found.toml", "nothing_001", run)
    recipe = find_recipe(str(tmp_path / "found.toml"))
    assert recipe.nested == pytest.approx(whole["nested"], abs=1e-6)
    assert (recipe.method, recipe.fallback) == (found.candidate.method, "nothing_001")
    for collection, names in found.members.items():
        weights = dict(zip(names, found.rule.weights[collection], strict=True))
        expected = {name: weight for name, weight in weights.items() if weight > 0}
        assert recipe.weights(collection) == pytest.approx(expected, abs=1e-4)


def test_a_search_needs_members_that_say_something(tmp_path: Path) -> None:
    run = write_run(tmp_path, [0.5])
    with pytest.raises(InputError, match="ranks anything"):
        search(run, ["nothing_001"], list_candidates(("mean_rank",), ("equal",)))
    with pytest.raises(InputError, match="absent"):
        read_ballots(run, ["absent"])
    with pytest.raises(InputError, match="'magic'"):
        list_candidates(fits=("magic",))


NOISES = [0.4, 0.8, 3.0]


@pytest.fixture(scope="module")
def ballots() -> list[Ballot]:
    return draw_ballots(NOISES, graphs=10, methods=("mean_rank",))


@pytest.mark.parametrize("name", [*FITS])
def test_weights_are_shares_and_the_same_every_time(ballots: list[Ballot], name: str) -> None:
    weights = FITS[name](ballots, "mean_rank")
    assert weights.shape == (3,)
    assert (weights >= 0).all()
    assert weights.sum() == pytest.approx(1)
    np.testing.assert_array_equal(weights, FITS[name](ballots, "mean_rank"))


def slow_greedy(ballots: list[Ballot], steps: int) -> np.ndarray:
    """Every way to draw a member at each step, kept to those that are best step by step."""
    drawn: list[int] = []
    reached = []
    for _ in range(steps):
        scored = []
        for member in range(3):
            counts = np.bincount([*drawn, member], minlength=3).astype(float)
            scored.append((mean_score(ballots, counts, "mean_rank"), -member))
        score, negative = max(scored)
        drawn.append(-negative)
        reached.append(score)
    best = int(np.argmax(reached)) + 1
    return np.bincount(drawn[:best], minlength=3) / best


@pytest.mark.parametrize("seed", range(3))
def test_greedy_selection_is_that_of_brute_force(seed: int) -> None:
    drawn = draw_ballots(NOISES, graphs=6, methods=("mean_rank",), seed=seed)
    np.testing.assert_allclose(fit_greedy(drawn, "mean_rank", 6), slow_greedy(drawn, 6))


def test_greedy_selection_is_no_worse_than_the_best_member_and_near_the_best_of_all(
    ballots: list[Ballot],
) -> None:
    found = mean_score(ballots, fit_greedy(ballots, "mean_rank"), "mean_rank")
    assert found >= mean_score(ballots, fit_best(ballots, "mean_rank"), "mean_rank")
    grid = [np.array(w, float) for w in product(range(6), repeat=3) if any(w)]
    assert found > max(mean_score(ballots, w, "mean_rank") for w in grid) - 0.01


def test_least_squares_recovers_known_weights(ballots: list[Ballot]) -> None:
    known = np.array([0.5, 0.3, 0.2])
    mixed = [
        dataclasses.replace(b, targets={"mean_rank": known @ b.votes["mean_rank"]}) for b in ballots
    ]
    np.testing.assert_allclose(fit_least_squares(mixed, "mean_rank"), known, atol=1e-5)


@pytest.mark.parametrize("fit", [fit_greedy, fit_least_squares, fit_optuna, fit_best])
def test_the_noisiest_member_counts_least(ballots: list[Ballot], fit: Fit) -> None:
    weights = fit(ballots, "mean_rank")
    assert weights[2] <= min(weights[0], 1 / 3)
