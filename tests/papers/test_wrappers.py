"""Averages over lists of configurations: what they change, and what they must leave alone."""

import numpy as np
import pytest

from solution.domain.collection import TILE
from solution.domain.graph import Graph
from solution.experiments.base import Experiment
from solution.models.nothing import NothingSettings
from solution.models.trees.lightgbm_ranker import LightGBMSettings
from solution.papers.wrappers import SublistAverage, SublistAverageSettings
from solution.system.errors import InputError
from tests.made.graphs import make_layout_graph, make_tile_graph
from tests.made.places import PlacesRanker, PlacesSettings

GRAPHS = [make_layout_graph(1, configs=23), make_tile_graph(1, configs=23)]
TREES = LightGBMSettings(rounds=10, min_data_in_leaf=3)


class NotingRanker(PlacesRanker):
    """Notes which configurations it was asked for."""

    def __init__(self) -> None:
        self.lists: list[Graph] = []

    def predict(self, graph: Graph) -> np.ndarray:
        self.lists.append(graph)
        return super().predict(graph)


@pytest.mark.parametrize("graph", GRAPHS, ids=["layout", "tile"])
def test_a_ranker_that_ignores_the_list_is_left_as_it_is(graph: Graph) -> None:
    settings = SublistAverageSettings(TREES, size=5, times=3)
    averaged = settings.build(0).fit([graph], [])
    alone = TREES.build(0).fit([graph], [])
    np.testing.assert_array_equal(averaged.predict(graph), alone.predict(graph))
    assert settings.needed_hops == TREES.needed_hops
    assert settings.learns == TREES.learns


@pytest.mark.parametrize("graph", GRAPHS, ids=["layout", "tile"])
def test_short_lists_divide_the_configurations_every_time(graph: Graph) -> None:
    noting = NotingRanker()
    SublistAverage(noting, 5, times=3, seed=0).predict(graph)
    distinct = len(graph.distinct.first)
    lists = -(-distinct // 5)
    assert len(noting.lists) == 3 * lists
    for time in range(3):
        own = noting.lists[time * lists : (time + 1) * lists]
        assert max(part.num_configs for part in own) <= 5
        assert sum(part.num_configs for part in own) == distinct


def test_orders_differ_and_average_the_places_out() -> None:
    graph = make_tile_graph(2, configs=12)
    few, many = (SublistAverage(PlacesRanker(), 100, times=t, seed=0) for t in (1, 2000))
    places = np.unique(few.predict(graph))
    np.testing.assert_allclose(places, np.arange(len(places)) / len(places), atol=1e-6)
    assert np.ptp(many.predict(graph)) < 0.1


def test_another_seed_draws_other_lists() -> None:
    graph = make_tile_graph(2, configs=12)
    one, two = (
        SublistAverageSettings(PlacesSettings(), size=4, times=1).build(seed) for seed in (0, 1)
    )
    assert (one.predict(graph) != two.predict(graph)).any()


@pytest.mark.parametrize("arguments", [{"size": 0, "times": 1}, {"size": 1, "times": 0}])
def test_counts_below_one_are_refused(arguments: dict[str, int]) -> None:
    with pytest.raises(InputError, match="expected a number from 1"):
        SublistAverage(PlacesRanker(), **arguments, seed=0)


def test_what_wraps_a_ranker_that_learns_nothing_learns_nothing() -> None:
    settings = SublistAverageSettings(NothingSettings())
    assert not settings.learns
    experiment = Experiment("averaged", TILE, settings)
    assert not experiment.ranker.learns
