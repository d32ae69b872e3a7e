"""Experiments of the residual net of a student report, with and without attention."""

import dataclasses

from solution.domain.collection import LAYOUT, TILE
from solution.experiments.base import Experiment
from solution.papers.node_subsets import NodeSettings
from solution.papers.residual import TRAINING, ResidualSettings, ResidualTileSettings

EXPERIMENTS = (
    Experiment(name="layout_residual_001", collections=LAYOUT,
               about="The residual net of a student report, without attention: 10 graphs a step, "
                     "6 epochs.",
               ranker=ResidualSettings(attention=False)),
    Experiment(name="layout_residual_attention_001", collections=LAYOUT,
               about="The residual net of a student report with self-attention: 10 graphs a step, "
                     "6 epochs.",
               ranker=ResidualSettings()),
    Experiment(name="layout_residual_attention_batch_100_001", collections=LAYOUT,
               about="The residual net of a student report with self-attention, 100 graphs a step.",
               ranker=ResidualSettings(training=dataclasses.replace(TRAINING,
                                       graphs_per_step=100))),
    Experiment(name="layout_residual_attention_batch_100_epoch_001", collections=LAYOUT,
               about="The residual net of a student report, 100 graphs a step, one epoch.",
               ranker=ResidualSettings(training=dataclasses.replace(TRAINING, graphs_per_step=100,
                                       epochs=1))),
    Experiment(name="layout_residual_attention_batch_50_001", collections=LAYOUT,
               about="The residual net of a student report with self-attention, 50 graphs a step.",
               ranker=ResidualSettings(training=dataclasses.replace(TRAINING, graphs_per_step=50))),
    Experiment(name="layout_residual_attention_batch_50_epoch_001", collections=LAYOUT,
               about="The residual net of a student report, 50 graphs a step, one epoch.",
               ranker=ResidualSettings(training=dataclasses.replace(TRAINING, graphs_per_step=50,
                                       epochs=1))),
    Experiment(name="layout_residual_attention_batch_50_patience_2_001", collections=LAYOUT,
               about="The residual net of a student report, 50 graphs a step, at most six epochs.",
               ranker=ResidualSettings(training=dataclasses.replace(TRAINING, graphs_per_step=50,
                                       patience=2))),
    Experiment(name="layout_residual_attention_epoch_001", collections=LAYOUT,
               about="The residual net of a student report as it was submitted: 10 graphs a step, "
                     "one epoch.",
               ranker=ResidualSettings(training=dataclasses.replace(TRAINING, epochs=1))),
    Experiment(name="layout_residual_attention_patience_2_001", collections=LAYOUT,
               about="The residual net of a student report with early stopping after two epochs "
                     "without improvement.",
               ranker=ResidualSettings(training=dataclasses.replace(TRAINING, patience=2))),
    Experiment(name="layout_residual_batch_100_001", collections=LAYOUT,
               about="The residual net of a student report, without attention, 100 graphs a step.",
               ranker=ResidualSettings(attention=False, training=dataclasses.replace(TRAINING,
                                       graphs_per_step=100))),
    Experiment(name="layout_residual_batch_50_001", collections=LAYOUT,
               about="The residual net of a student report, without attention, 50 graphs a step.",
               ranker=ResidualSettings(attention=False, training=dataclasses.replace(TRAINING,
                                       graphs_per_step=50))),
    Experiment(name="layout_residual_pruned_001", collections=LAYOUT,
               about="The residual net of a student report with self-attention, on pruned graphs, "
                     "its future work.",
               ranker=ResidualSettings(nodes=NodeSettings(pruning="neighbourhood", trained=100))),
    Experiment(name="layout_residual_subsets_001", collections=LAYOUT,
               about="The residual net with self-attention, predicting from eight subsets of 100 "
                     "nodes.",
               ranker=ResidualSettings(nodes=NodeSettings(trained=100, scored=100, subsets=8))),
    Experiment(name="tile_residual_001", collections=TILE,
               about="The residual net of a student report for tiles, without attention.",
               ranker=ResidualTileSettings(attention=False)),
    Experiment(name="tile_residual_attention_001", collections=TILE,
               about="The residual net of a student report for tiles, with self-attention.",
               ranker=ResidualTileSettings()),
    Experiment(name="tile_residual_attention_batch_100_001", collections=TILE,
               about="The residual net of a student report for tiles, 100 kernels a step.",
               ranker=ResidualTileSettings(training=dataclasses.replace(TRAINING,
                                           graphs_per_step=100))),
    Experiment(name="tile_residual_attention_batch_50_001", collections=TILE,
               about="The residual net of a student report for tiles, 50 kernels a step.",
               ranker=ResidualTileSettings(training=dataclasses.replace(TRAINING,
                                           graphs_per_step=50))),
    Experiment(name="tile_residual_attention_epoch_001", collections=TILE,
               about="The residual net of a student report for tiles, one epoch.",
               ranker=ResidualTileSettings(training=dataclasses.replace(TRAINING, epochs=1))),
)  # fmt: skip
