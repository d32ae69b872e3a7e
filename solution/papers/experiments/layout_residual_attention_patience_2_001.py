"""The residual net of a student report that stops after two epochs without a better one."""

from dataclasses import replace

from solution.domain.collection import LAYOUT
from solution.experiments.base import Experiment
from solution.papers.residual_attention import TRAINING, ResidualSettings

EXPERIMENT = Experiment(
    name="layout_residual_attention_patience_2_001",
    collections=LAYOUT,
    ranker=ResidualSettings(training=replace(TRAINING, patience=2)),
)
