"""Experiments of the TpuGraphs baselines, layouts and tiles, and of techniques added to them."""

import dataclasses

from solution.domain.collection import LAYOUT, TILE
from solution.experiments.base import Experiment
from solution.models.nets.training_settings import TrainingSettings
from solution.papers.node_subsets import NodeSettings
from solution.papers.prepared import PreparedSettings
from solution.papers.tpugraphs import TpuGraphsSettings, TpuGraphsTileSettings

LAYOUT_TPUGRAPHS = Experiment(
    name="layout_tpugraphs_001",
    about="The layout baseline of TpuGraphs: whole graphs, the gradient through 1,000 nodes.",
    collections=LAYOUT,
    ranker=TpuGraphsSettings(),
)
LAYOUT_TPUGRAPHS_PRUNED = Experiment(
    name="layout_tpugraphs_pruned_001",
    about="The layout baseline of TpuGraphs on pruned graphs.",
    collections=LAYOUT,
    ranker=TpuGraphsSettings(segment=None, nodes=NodeSettings(pruning="neighbourhood")),
)
TILE_TPUGRAPHS_SAGE_EARLY = Experiment(
    name="tile_tpugraphs_sage_early_001",
    about="The tile baseline of TpuGraphs with GraphSAGE, configurations joined early.",
    collections=TILE,
    ranker=TpuGraphsTileSettings(block="sage", join="early"),
)

EXPERIMENTS = (
    LAYOUT_TPUGRAPHS,
    Experiment(name="layout_tpugraphs_blend_001", collections=LAYOUT,
               about="The layout baseline of TpuGraphs with squared error of runtimes beside its "
                     "ranking loss.",
               ranker=TpuGraphsSettings(training=TrainingSettings(regression=0.02,
                                        configs_per_graph=16, max_configs=None))),
    dataclasses.replace(LAYOUT_TPUGRAPHS, name="layout_tpugraphs_contractions_001",
                        about="The layout baseline of TpuGraphs, with the contracted dimensions "
                              "of dots as features.",
                        ranker=PreparedSettings(LAYOUT_TPUGRAPHS.ranker, contractions=True)),
    Experiment(name="layout_tpugraphs_full_001", collections=LAYOUT,
               about="The layout baseline of TpuGraphs, full graph training.",
               ranker=TpuGraphsSettings(segment=None)),
    Experiment(name="layout_tpugraphs_gcn_001", collections=LAYOUT,
               about="The layout baseline of TpuGraphs with graph convolutions.",
               ranker=TpuGraphsSettings(block="gcn")),
    Experiment(name="layout_tpugraphs_gcn_full_001", collections=LAYOUT,
               about="The layout baseline of TpuGraphs with graph convolutions, full graph "
                     "training.",
               ranker=TpuGraphsSettings(block="gcn", segment=None)),
    Experiment(name="layout_tpugraphs_mse_001", collections=LAYOUT,
               about="The layout baseline of TpuGraphs with an element-wise loss.",
               ranker=TpuGraphsSettings(training=TrainingSettings(loss="mean_squared_error",
                                        configs_per_graph=16, max_configs=None))),
    Experiment(name="layout_tpugraphs_opa_001", collections=LAYOUT,
               about="The layout baseline of TpuGraphs, using the epoch with the most ordered "
                     "pairs.",
               ranker=TpuGraphsSettings(training=TrainingSettings(chosen_by="opa",
                                        configs_per_graph=16, max_configs=None))),
    dataclasses.replace(LAYOUT_TPUGRAPHS, name="layout_tpugraphs_padding_0_001",
                        about="The layout baseline of TpuGraphs with unused slots at 0, as in the "
                              "files.",
                        ranker=PreparedSettings(LAYOUT_TPUGRAPHS.ranker, padding=0)),
    dataclasses.replace(LAYOUT_TPUGRAPHS, name="layout_tpugraphs_plain_001",
                        about="The layout baseline of TpuGraphs with raw node features instead of "
                              "logarithms.",
                        ranker=PreparedSettings(LAYOUT_TPUGRAPHS.ranker, encoding="plain")),
    LAYOUT_TPUGRAPHS_PRUNED,
    Experiment(name="layout_tpugraphs_random_001", collections=LAYOUT,
               about="The layout baseline of TpuGraphs, learning from 1,000 random nodes of each "
                     "graph.",
               ranker=TpuGraphsSettings(segment=None, nodes=NodeSettings(trained=1000))),
    dataclasses.replace(LAYOUT_TPUGRAPHS_PRUNED, name="layout_tpugraphs_virtual_001",
                        about="The layout baseline of TpuGraphs on pruned graphs with virtual "
                              "nodes for the dropped parts.",
                        ranker=dataclasses.replace(LAYOUT_TPUGRAPHS_PRUNED.ranker,  # type: ignore[type-var]
                                                   nodes=NodeSettings(pruning="virtual"))),
    Experiment(name="tile_tpugraphs_attention_001", collections=TILE,
               about="The tile baseline of TpuGraphs with attention before the convolutions, from "
                     "a student report.",
               ranker=TpuGraphsTileSettings(join="early", heads=16)),
    dataclasses.replace(TILE_TPUGRAPHS_SAGE_EARLY, name="tile_tpugraphs_contractions_001",
                        about="The tile baseline of TpuGraphs, with the contracted dimensions of "
                              "dots as features.",
                        ranker=PreparedSettings(TILE_TPUGRAPHS_SAGE_EARLY.ranker,
                                                contractions=True)),
    Experiment(name="tile_tpugraphs_gcn_early_001", collections=TILE,
               about="The tile baseline of TpuGraphs with GCN, configurations joined early.",
               ranker=TpuGraphsTileSettings(block="gcn", join="early")),
    Experiment(name="tile_tpugraphs_gcn_late_001", collections=TILE,
               about="The tile baseline of TpuGraphs with GCN, configurations joined late.",
               ranker=TpuGraphsTileSettings(block="gcn", join="late")),
    Experiment(name="tile_tpugraphs_mlp_001", collections=TILE,
               about="The tile baseline of TpuGraphs without a graph.",
               ranker=TpuGraphsTileSettings(block=None)),
    dataclasses.replace(TILE_TPUGRAPHS_SAGE_EARLY, name="tile_tpugraphs_padding_0_001",
                        about="The tile baseline of TpuGraphs with unused slots at 0, as in the "
                              "files.",
                        ranker=PreparedSettings(TILE_TPUGRAPHS_SAGE_EARLY.ranker, padding=0)),
    dataclasses.replace(TILE_TPUGRAPHS_SAGE_EARLY, name="tile_tpugraphs_plain_001",
                        about="The tile baseline of TpuGraphs with raw node features instead of "
                              "logarithms.",
                        ranker=PreparedSettings(TILE_TPUGRAPHS_SAGE_EARLY.ranker,
                                                encoding="plain")),
    TILE_TPUGRAPHS_SAGE_EARLY,
    Experiment(name="tile_tpugraphs_sage_early_blend_001", collections=TILE,
               about="The tile baseline of TpuGraphs, GraphSAGE joined early, with both of its "
                     "published losses.",
               ranker=TpuGraphsTileSettings(join="early", training=TrainingSettings(loss="list_mle",
                                            regression=0.02, graphs_per_step=10,
                                            configs_per_graph=10))),
    Experiment(name="tile_tpugraphs_sage_late_001", collections=TILE,
               about="The tile baseline of TpuGraphs with GraphSAGE, configurations joined late.",
               ranker=TpuGraphsTileSettings(block="sage", join="late")),
    Experiment(name="tile_tpugraphs_sage_late_blend_001", collections=TILE,
               about="The tile baseline of TpuGraphs, GraphSAGE joined late, with both of its "
                     "published losses.",
               ranker=TpuGraphsTileSettings(join="late", training=TrainingSettings(loss="list_mle",
                                            regression=0.02, graphs_per_step=10,
                                            configs_per_graph=10))),
    Experiment(name="tile_tpugraphs_sage_late_mse_001", collections=TILE,
               about="The tile baseline of TpuGraphs with GraphSAGE, late join and an "
                     "element-wise loss.",
               ranker=TpuGraphsTileSettings(training=TrainingSettings(loss="mean_squared_error",
                                            graphs_per_step=10, configs_per_graph=10))),
)  # fmt: skip
