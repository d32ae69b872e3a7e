"""The residual net of a student report with early stopping after two epochs without improvement."""

from dataclasses import replace

from solution.domain.collection import LAYOUT
from solution.experiments.base import Experiment
from solution.papers.residual_attention import TRAINING, ResidualSettings

EXPERIMENT = Experiment(
    name="layout_residual_attention_patience_2_001",
    collections=LAYOUT,
    ranker=ResidualSettings(training=replace(TRAINING, patience=2)),
)
