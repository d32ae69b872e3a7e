"""A net that several processes train together learns what one would."""

from pathlib import Path

import numpy as np
import pytest
from torch import nn

from solution.domain.graph import Graph
from solution.models.layout.layout_gnn import LayoutGnnSettings
from solution.models.nets.devices import make_fabric
from solution.models.nets.net_ranker import NetRanker
from solution.models.nets.ranking_net import Example
from solution.models.nets.stepping import Steps, sample
from solution.models.nets.team import Team, lead
from solution.models.nets.training_loop import make_optimizer
from solution.models.nets.training_settings import TrainingSettings
from solution.models.tile.tile_gnn import TileGnnSettings
from solution.papers.segment_training import SegmentSettings
from solution.system.errors import InputError
from tests.made.graphs import make_layout_graph, make_tile_graph

TRAINING = TrainingSettings(epochs=3, graphs_per_step=5, configs_per_graph=8)


def find_gradients(team: Team, net: nn.Module, examples: list[Example]) -> list[np.ndarray]:
    """Of the mean loss of all examples, as they stand after the processes have added up."""
    wrapped, optimizer = team.fabric.setup(net, make_optimizer(net, TRAINING))
    steps = Steps(team, wrapped, optimizer, TRAINING, net)
    generator = np.random.default_rng(0)
    rows = [sample(len(example.runtimes), 8, generator) for example in examples]
    steps.find_gradients(steps.plan(examples, np.stack(rows)))
    return [p.grad.numpy().copy() for p in net.parameters() if p.grad is not None]


def follow(team: Team, net: nn.Module, examples: list[Example]) -> None:
    find_gradients(team, net, examples)


@pytest.fixture
def tiles() -> list[Graph]:
    return [make_tile_graph(seed, name=f"kernel_{seed}", configs=12) for seed in range(5)]


@pytest.mark.parametrize("size", [2, 3])
def test_gradients_are_those_of_one_process_with_all_graphs(size: int, tiles: list[Graph]) -> None:
    ranker = TileGnnSettings(width=16, training=TRAINING).build(0)
    ranker.fit(tiles, [])
    examples = [ranker._scaled(ranker._example(graph, None)) for graph in tiles]
    net = ranker.make_net().eval()  # each process drops other units
    alone = find_gradients(Team(make_fabric()), net, examples)
    with lead(size, "cpu", "32-true", follow, net, examples) as team:
        together = find_gradients(team, net, examples)
    assert len(alone) == len(together) > 5
    for one, other in zip(alone, together, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("kind", ["tile", "layout"])
def test_a_whole_fit_ends_about_the_same(kind: str, tiles: list[Graph], tmp_path: Path) -> None:
    """To rounding, where no units are dropped; a step of fewer graphs than processes, too."""
    graphs, settings = tiles, TileGnnSettings(width=16, dropout=0.0, training=TRAINING)
    if kind == "layout":
        graphs = [make_layout_graph(seed, name=f"program_{seed}") for seed in range(5)]
        settings = LayoutGnnSettings(width=16, dropout=0.0, training=TRAINING)
    scores = []
    for devices in (1, 2):
        ranker: NetRanker = settings.build(0)
        ranker.use_devices(devices)
        ranker.keep_checkpoints(tmp_path)
        ranker.fit(graphs[:4], [graphs[4]])
        found = ranker.predict(graphs[4])
        # A number added to all scores has no gradient but rounding, which Adam takes as one.
        scores.append(found - found.mean())
    np.testing.assert_allclose(scores[0], scores[1], rtol=1e-3, atol=1e-4)


def test_a_net_that_remembers_its_graphs_is_refused() -> None:
    """Each process would remember other graphs."""
    graphs = [make_layout_graph(seed, name=f"program_{seed}") for seed in range(2)]
    ranker = SegmentSettings(training=TRAINING).build(0)
    ranker.use_devices(2)
    with pytest.raises(InputError, match="remembers what it saw of each graph"):
        ranker.fit(graphs, [])
