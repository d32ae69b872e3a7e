"""The residual net of a student report, without attention, 100 graphs a step."""

from dataclasses import replace

from solution.domain.collection import LAYOUT
from solution.experiments.base import Experiment
from solution.papers.residual_attention import TRAINING, ResidualSettings

EXPERIMENT = Experiment(
    name="layout_residual_batch_100_001",
    collections=LAYOUT,
    ranker=ResidualSettings(attention=False, training=replace(TRAINING, graphs_per_step=100)),
)
