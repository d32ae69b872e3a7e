"""The residual net of a student report, without attention: 10 graphs a step, 6 epochs."""

from solution.domain.collection import LAYOUT
from solution.experiments.base import Experiment
from solution.papers.residual_attention import ResidualSettings

EXPERIMENT = Experiment(
    name="layout_residual_001",
    collections=LAYOUT,
    ranker=ResidualSettings(attention=False),
)
