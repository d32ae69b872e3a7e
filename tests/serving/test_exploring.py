"""What is measured is the order, or some of it from along the order where that is often wrong."""

from itertools import count

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from solution.serving.calibration import CONFIDENCE, REGRET, Learned, find_steps
from solution.serving.exploring import SHARES, choose_share, choose_shares, explore, spread_out
from solution.serving.ranking import Ranking
from solution.serving.record import Program
from tests.made.graphs import make_tile_graph


def explore_by_turns(order: list[int], every: int) -> list[int]:
    """Turn by turn: each `every`-th is from along the order, and who was taken before is not."""
    along, taken = [order[place] for place in spread_out(len(order))], []
    for turn in count(1):
        number, is_along = divmod(turn, every)
        wanted = along[number - 1 :] if is_along == 0 else order[turn - 1 - number :]
        taken += [one for one in wanted[:1] if one not in taken]
        if len(taken) == len(order):
            return taken
    return taken


@settings(max_examples=80, deadline=None)
@given(st.integers(1, 40), st.sampled_from([2, 3, 4, 10]), st.integers(0, 100))
def test_every_second_or_fourth_is_from_along_the_order(size: int, every: int, seed: int) -> None:
    order = np.random.default_rng(seed).permutation(size)
    found = explore(order, 1 / every)
    assert found.tolist() == explore_by_turns(order.tolist(), every)
    assert sorted(found) == list(range(size))
    assert explore(order, 0.0) is order


def test_the_middle_comes_first_then_the_quarters() -> None:
    assert spread_out(8).tolist() == [4, 2, 6, 1, 5, 3, 7, 0]
    assert spread_out(1).tolist() == [0]
    for size in range(1, 70):
        assert sorted(spread_out(size)) == list(range(size))


def make_learned(reversed_ones: int, programs: int = 40) -> dict[float, Learned]:
    """Programs of 64 configurations of which some are ranked the wrong way round."""
    runtimes = np.maximum(1.0, np.linspace(0.8, 2, 64))  # a sixth are as good as the best
    orders = [np.arange(64)[:: -1 if number < reversed_ones else 1] for number in range(programs)]
    return {
        share: Learned(
            [
                Program(str(n), str(n), str(n), "made", 9, 9, 9, 64,
                        find_steps(explore(order, share), runtimes), 64)
                for n, order in enumerate(orders)
            ]
        )
        for share in SHARES
    }  # fmt: skip


def test_an_order_that_is_right_is_followed() -> None:
    assert choose_share(make_learned(0)) == 0
    assert choose_share(make_learned(2)) == 0  # fewer than one in ten


def test_where_many_are_ranked_wrongly_fewer_are_measured() -> None:
    learned = make_learned(6)
    share = choose_share(learned)
    assert share > 0
    alone, explored = (learned[one].quantile(REGRET, CONFIDENCE) for one in (0.0, share))
    assert alone is not None
    assert explored is not None
    assert explored < alone / 3


def test_of_too_few_programs_nothing_is_chosen() -> None:
    programs = {share: {"tile:xla": own.programs} for share, own in make_learned(6, 8).items()}
    assert choose_shares(programs) == {}


@pytest.mark.parametrize(("explored", "words"), [
    (0.0, "Measure these 6: so"),
    (0.5, "Measure these 6 (the first 3 and, from along the order, ranks 9, 17, 25): so"),
])  # fmt: skip
def test_the_sentence_says_where_in_the_order_they_stand(explored: float, words: str) -> None:
    scores = np.random.default_rng(0).normal(size=32).astype(np.float32)
    graph = make_tile_graph(0, configs=32)
    ranking = Ranking(graph, scores, scores, 6, "so", False, 0.02, 0.9, explored)
    assert ranking.sentence().startswith(words)
    places = np.argsort(ranking.order)[ranking.to_measure]
    assert len(set(places.tolist())) == 6
    assert f"{places.max() + 1}" in words or not explored


def test_nothing_is_measured_where_nothing_is_promised() -> None:
    graph = make_tile_graph(0, configs=32)
    scores = np.zeros(graph.num_configs, np.float32)
    ranking = Ranking(graph, scores, scores, None, "few", False, 0.02, 0.9, 0.5)
    assert len(ranking.to_measure) == 0
