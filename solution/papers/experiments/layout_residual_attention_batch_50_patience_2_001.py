"""The residual net of a student report, 50 graphs a step, at most six epochs."""

from dataclasses import replace

from solution.domain.collection import LAYOUT
from solution.experiments.base import Experiment
from solution.papers.residual_attention import TRAINING, ResidualSettings

EXPERIMENT = Experiment(
    name="layout_residual_attention_batch_50_patience_2_001",
    collections=LAYOUT,
    ranker=ResidualSettings(training=replace(TRAINING, graphs_per_step=50, patience=2)),
)
