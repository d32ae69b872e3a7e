"""The contract that every ranker keeps, whatever it is made of."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from solution.domain import vocabulary
from solution.domain.codebook import encode
from solution.domain.graph import Graph, count_bytes
from solution.domain.metrics import kendall_tau
from solution.features.tile.fusions import inline_fusions
from solution.features.tile.loops import dimension_tokens
from solution.models.base import Ranker, RankerSettings
from solution.models.catalogue import load_model, save_model
from solution.models.layout.cost_kernel import CostKernelSettings
from solution.models.layout.cost_net import CostNetSettings
from solution.models.layout.layout_gnn import LayoutGnnSettings
from solution.models.linear import LassoSettings, OrdinarySettings, RidgeSettings
from solution.models.nets.training_settings import TrainingSettings
from solution.models.nothing import NothingSettings
from solution.models.tile.tile_gnn import TileGnnSettings
from solution.models.trees.lightgbm_ranker import LightGBMSettings, PointwiseSettings
from solution.papers.node_subsets import NodeSettings
from solution.papers.prepared import ContractionSettings, PreparedSettings
from solution.papers.residual import ResidualSettings, ResidualTileSettings
from solution.papers.segment_training import SegmentSettings
from solution.papers.study import StudyLassoSettings, StudyRidgeSettings, StudyTreeSettings
from solution.papers.tgraph import TGraphSettings
from solution.papers.tpugraphs import TpuGraphsSettings, TpuGraphsTileSettings
from solution.papers.violation import ViolationSettings
from solution.papers.wrappers import SublistAverageSettings
from solution.system.errors import InputError
from tests.made.graphs import make_layout_graph, make_tile_graph, renumber_nodes
from tests.made.position_ranker import PositionSettings

OWN = [PositionSettings()]  # settings of the user's own, as far as loading is concerned
TRAINING = TrainingSettings(epochs=3, patience=None, graphs_per_step=2, configs_per_graph=8)
FEW_NODES = NodeSettings(trained=5)
SUBSETS = NodeSettings(trained=5, scored=6, subsets=3)
TREES = LightGBMSettings(rounds=20, min_data_in_leaf=3)
LAYOUT = [make_layout_graph(seed, configs=20, name=f"program_{seed}") for seed in range(6)]
TILE = [make_tile_graph(seed, configs=20, name=f"kernel_{seed}") for seed in range(6)]

CASES: list[tuple[str, RankerSettings, list[Graph]]] = [
    ("nothing", NothingSettings(), LAYOUT),
    ("layout LightGBM", TREES, LAYOUT),
    ("tile LightGBM", TREES, TILE),
    ("pointwise LightGBM", PointwiseSettings(rounds=20, min_data_in_leaf=3), TILE),
    ("ordinary least squares", OrdinarySettings(), TILE),
    ("ridge", RidgeSettings(), LAYOUT),
    ("lasso", LassoSettings(), TILE),
    ("layout net", LayoutGnnSettings(width=16, rounds=(16, 8), training=TRAINING), LAYOUT),
    ("layout net, early stopping", LayoutGnnSettings(
        width=16, training=dataclasses.replace(TRAINING, patience=1)), LAYOUT),
    ("layout net, list loss", LayoutGnnSettings(
        width=16, rounds=(16, 8), training=dataclasses.replace(TRAINING, loss="list_mle")), LAYOUT),
    ("layout net, virtual nodes", LayoutGnnSettings(
        width=16, rounds=(16, 8), pruning="virtual", hops=0, training=TRAINING), LAYOUT),
    ("layout net, whole graph", LayoutGnnSettings(
        width=16, rounds=(16, 8), pruning="nothing", training=TRAINING), LAYOUT),
    ("TGraph", SublistAverageSettings(
        TGraphSettings(width=16, training=TRAINING), size=8, times=2), LAYOUT),
    ("TpuGraphs", TpuGraphsSettings(width=16, segment=3, training=TRAINING), LAYOUT),
    ("TpuGraphs, pruned", TpuGraphsSettings(
        width=16, nodes=NodeSettings(pruning="neighbourhood"), training=TRAINING), LAYOUT),
    ("TpuGraphs, random nodes", TpuGraphsSettings(
        width=16, nodes=FEW_NODES, training=TRAINING), LAYOUT),
    ("TpuGraphs, GCN, blend of losses", TpuGraphsSettings(
        width=16, block="gcn", segment=3, training=dataclasses.replace(
            TRAINING, regression=0.5)), LAYOUT),
    ("TpuGraphs, nodes by work, chosen by OPA", TpuGraphsSettings(
        width=16, segment=None, nodes=NodeSettings(trained=5, draw="work"),
        training=dataclasses.replace(TRAINING, patience=1, chosen_by="opa")), LAYOUT),
    ("residual net", ResidualSettings(
        width=16, attention=False, nodes=FEW_NODES, training=TRAINING), LAYOUT),
    ("residual net, attention", ResidualSettings(width=16, nodes=FEW_NODES), LAYOUT),
    ("residual net, attention, subsets", ResidualSettings(width=16, nodes=SUBSETS), LAYOUT),
    ("residual net, tiles", ResidualTileSettings(width=16), TILE),
    ("violation ratio", ViolationSettings(width=16, training=TRAINING), LAYOUT),
    ("violation ratio, nodes of importance", ViolationSettings(
        width=16, heads=2, head_width=4, compressed=True, importance=True, nodes=FEW_NODES,
        training=TRAINING), LAYOUT),
    ("violation ratio, GCN, attention last, subsets", ViolationSettings(
        width=16, block="gcn", attention="last", heads=2, mask=None, nodes=SUBSETS,
        training=TRAINING), LAYOUT),
    ("violation ratio, no attention", ViolationSettings(
        width=16, attention=None, nodes=FEW_NODES, training=TRAINING), LAYOUT),
    ("TpuGraphs tile, attention", TpuGraphsTileSettings(
        width=16, heads=2, join="early", training=TRAINING), TILE),
    ("TpuGraphs tile, MLP", TpuGraphsTileSettings(width=16, block=None, training=TRAINING), TILE),
    ("TpuGraphs tile, GCN, late", TpuGraphsTileSettings(
        width=16, block="gcn", training=dataclasses.replace(
            TRAINING, loss="mean_squared_error")), TILE),
    ("TpuGraphs tile, GCN, early", TpuGraphsTileSettings(
        width=16, block="gcn", join="early", training=TRAINING), TILE),
    ("TpuGraphs tile, GraphSAGE, early", TpuGraphsTileSettings(
        width=16, join="early", training=TRAINING), TILE),
    ("LightGBM study, trees", StudyTreeSettings(
        rounds=20, min_data_in_leaf=3, trials=2, opcodes="kept"), TILE),
    ("LightGBM study, trees on layouts", StudyTreeSettings(
        rounds=20, min_data_in_leaf=3, trials=2, opcodes="all"), LAYOUT),
    ("LightGBM study, ridge on layouts", StudyRidgeSettings(), LAYOUT),
    ("LightGBM study, lasso", StudyLassoSettings(), TILE),
    ("segment training", SegmentSettings(
        width=16, max_nodes=3, table_megabytes=1, head_epochs=2, training=TRAINING), LAYOUT),
    ("segment training, computed anew", SegmentSettings(
        width=16, hops=None, partition="topological", max_nodes=3, table_megabytes=None,
        training=dataclasses.replace(TRAINING, patience=1)), LAYOUT),
    ("segment training, full graphs", SegmentSettings(
        width=16, max_nodes=None, head_epochs=0, training=TRAINING), LAYOUT),
    ("tile net", TileGnnSettings(width=16, training=TRAINING), TILE),
    ("tile net, GraphSAGE", TileGnnSettings(width=16, block="sage", training=TRAINING), TILE),
    ("tile net, GCN", TileGnnSettings(width=16, block="gcn", training=TRAINING), TILE),
    ("tile net, tokens and rivals", TileGnnSettings(
        width=16, tokens=True, heads=2, training=TRAINING), TILE),
    ("layout net, otherwise prepared", PreparedSettings(
        LayoutGnnSettings(width=16, training=TRAINING), padding=0, encoding="plain"), LAYOUT),
    ("trees that know what dots sum", ContractionSettings(
        rounds=20, min_data_in_leaf=3), LAYOUT),
    ("net of costs", CostNetSettings(width=16, training=TRAINING), LAYOUT),
    ("kernel of costs", CostKernelSettings(cosines=32), LAYOUT),
    ("net of costs, on a TPU", CostNetSettings(
        backend="tpu", width=16, training=TRAINING), LAYOUT),
    ("kernel of costs, on a TPU", CostKernelSettings(backend="tpu", cosines=32), LAYOUT),
    ("mean over short lists", SublistAverageSettings(TREES, size=6, times=2), TILE),
    ("mean over parts of a list", SublistAverageSettings(PositionSettings(), size=7), LAYOUT),
]  # fmt: skip

# One case of each class of settings.
KINDS = list({type(case[1]): case for case in reversed(CASES)}.values())


def assert_ranker(settings: RankerSettings, graphs: list[Graph], folder: Path) -> None:
    """Fit on some graphs and check on another everything that Ranker promises."""
    *train, valid, graph = graphs
    ranker = settings.build(seed=0).fit(train, [valid])
    scores = ranker.predict(graph)
    assert scores.shape == (graph.num_configs,)
    assert scores.dtype == np.float32
    assert np.isfinite(scores).all()
    _assert_order_of_configs_is_free(ranker, graph, scores)
    _assert_order_of_nodes_is_free(ranker, graph, scores)
    _assert_equal_configs_score_equal(ranker, graph)
    _assert_dependence_on_a_list_is_said(ranker, graph, scores)
    again = settings.build(seed=0).fit(train, [valid])
    np.testing.assert_array_equal(again.predict(graph), scores)
    save_model(ranker, settings, 0, folder)
    loaded = load_model(folder, [settings, *OWN])
    assert loaded.settings == settings
    np.testing.assert_array_equal(loaded.ranker.predict(graph), scores)


def _assert_dependence_on_a_list_is_said(ranker: Ranker, graph: Graph, scores: np.ndarray) -> None:
    """Who compares scores of two lists must be told: in the docstring of the ranker."""
    half = np.arange(graph.num_configs // 2)
    same = np.allclose(ranker.predict(graph.select(half)), scores[half], atol=1e-5)
    documents = [" ".join((kind.__doc__ or "").split()) for kind in type(ranker).__mro__[:-3]]
    said = any("scored together" in text or "list" in text for text in documents)
    assert same or said, f"{type(ranker).__name__} does not say that scores depend on the list"


def _assert_order_of_configs_is_free(ranker: Ranker, graph: Graph, scores: np.ndarray) -> None:
    order = np.random.default_rng(1).permutation(graph.num_configs)
    np.testing.assert_allclose(ranker.predict(graph.select(order)), scores[order], atol=1e-5)


def _assert_order_of_nodes_is_free(ranker: Ranker, graph: Graph, scores: np.ndarray) -> None:
    if ranker.reads_program_order:
        return
    renumbered, _ = renumber_nodes(graph, 2)
    if graph.collection.kind == "layout":  # the configurable nodes are listed in another order, too
        order = np.random.default_rng(3).permutation(len(graph.configurable))
        renumbered = dataclasses.replace(
            renumbered,
            configurable=renumbered.configurable[order],
            configs=encode(renumbered.layouts.expand()[:, order]),
        )
    np.testing.assert_allclose(ranker.predict(renumbered), scores, atol=1e-4)


def _assert_equal_configs_score_equal(ranker: Ranker, graph: Graph) -> None:
    twice = graph.select(np.array([0, 1, 0, 2, 1]))
    scores = ranker.predict(twice)
    assert scores[0] == scores[2]
    assert scores[1] == scores[4]


@pytest.mark.parametrize(("settings", "graphs"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_contract_is_kept(settings: RankerSettings, graphs: list[Graph], tmp_path: Path) -> None:
    assert_ranker(settings, graphs, tmp_path)


@pytest.mark.parametrize(("settings", "graphs"), [c[1:] for c in KINDS], ids=[c[0] for c in KINDS])
def test_ranker_copes_without_validation_and_with_graphs_that_teach_nothing(
    settings: RankerSettings, graphs: list[Graph]
) -> None:
    same = [graph.select(np.zeros(5, np.int64)) for graph in graphs[:2]]
    for train, validation in ((graphs[:2], []), (same, same[:1])):
        scores = settings.build(seed=0).fit(train, validation).predict(graphs[3])
        assert np.isfinite(scores).all()


@pytest.mark.parametrize("settings", [
    TpuGraphsSettings(width=8, training=TRAINING),
    ViolationSettings(width=8, importance=True, training=TRAINING),
], ids=["TpuGraphs", "violation ratio"])  # fmt: skip
def test_a_net_ranks_a_graph_without_configurable_nodes(settings: RankerSettings) -> None:
    """A layout net as well: see tests/models/test_light.py."""
    bare = dataclasses.replace(
        LAYOUT[0], configurable=np.empty(0, np.int64), configs=encode(np.empty((20, 0, 18)))
    )
    assert len(np.unique(settings.build(0).fit(LAYOUT[1:3], []).predict(bare))) == 1


@pytest.mark.parametrize(("settings", "graphs"), [
    (LightGBMSettings(rounds=60, min_data_in_leaf=3), LAYOUT),
    (PointwiseSettings(rounds=60, min_data_in_leaf=3), TILE),
    (RidgeSettings(), TILE),
    (LayoutGnnSettings(width=32, rounds=(32,), training=TrainingSettings(epochs=40)), LAYOUT),
    (TileGnnSettings(width=32, training=TrainingSettings(epochs=60)), TILE),
    (TpuGraphsSettings(width=32, segment=4, training=TrainingSettings(epochs=40)), LAYOUT),
    (TpuGraphsTileSettings(width=32, training=TrainingSettings(epochs=60)), TILE),
    (ResidualSettings(width=32, training=TrainingSettings(loss="list_mle", epochs=80)), LAYOUT),
    (ResidualTileSettings(width=32, training=TrainingSettings(epochs=60)), TILE),
    (ViolationSettings(width=32, training=TrainingSettings(epochs=40)), LAYOUT),
], ids=lambda value: type(value).__name__)  # fmt: skip
def test_ranker_learns_what_it_was_shown(settings: RankerSettings, graphs: list[Graph]) -> None:
    ranker = settings.build(seed=0).fit(graphs, [])
    taus = [kendall_tau(ranker.predict(g), g.runtimes) for g in graphs if g.runtimes is not None]
    assert np.mean(taus) > 0.6


def add_options(graph: Graph) -> Graph:
    """The graph, each configuration with other compile options."""
    counts = [len(choices) for choices in vocabulary.OPTION_CHOICES.values()]
    places = np.arange(graph.num_configs)[:, None] + np.arange(len(counts))
    return dataclasses.replace(graph, options=(places % counts).astype(np.int8))


READS_OPTIONS = ("nothing", "layout LightGBM", "ridge")


@pytest.mark.parametrize(("name", "settings"), [c[:2] for c in KINDS if c[2] is LAYOUT])
def test_compile_options_are_read_or_refused(name: str, settings: RankerSettings) -> None:
    graphs = [add_options(settings.preparation(graph)) for graph in LAYOUT[:3]]
    try:
        ranker = settings.build(0).fit(graphs, [])
    except InputError as error:
        assert name not in READS_OPTIONS
        assert "program_0: " in str(error)
        assert "compile options" in str(error)
        return
    scores = ranker.predict(graphs[0])
    assert scores.shape == (graphs[0].num_configs,)
    assert np.isfinite(scores).all()


def test_tokens_are_kept_where_the_settings_ask_for_them() -> None:
    graph = make_tile_graph(0, configs=200).select(np.arange(200).repeat(2))
    without = TileGnnSettings().build(0).prepare(graph)
    kept = TileGnnSettings(tokens=True).build(0).prepare(graph)
    tokens, active = dimension_tokens(inline_fusions(graph))
    np.testing.assert_array_equal(kept.tokens, tokens[graph.distinct.first])
    np.testing.assert_array_equal(kept.active, active)
    assert without.tokens.numel() == without.active.numel() == 0
    assert count_bytes(without) < 0.7 * count_bytes(kept)
    assert kept.table is without.table  # what both take is there once
