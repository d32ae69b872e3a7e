"""The residual net of a student report, 50 graphs a step, one epoch."""

from dataclasses import replace

from solution.domain.collection import LAYOUT
from solution.experiments.base import Experiment
from solution.papers.residual_attention import TRAINING, ResidualSettings

EXPERIMENT = Experiment(
    name="layout_residual_attention_batch_50_epoch_001",
    collections=LAYOUT,
    ranker=ResidualSettings(training=replace(TRAINING, graphs_per_step=50, epochs=1)),
)
