"""Trees on the layout table and on which dimensions of dots are contiguous and summed."""

from solution.domain.collection import LAYOUT
from solution.experiments.base import Experiment
from solution.papers.contraction_ranker import ContractionSettings

EXPERIMENT = Experiment(
    name="layout_pointwise_contractions_001", collections=LAYOUT, ranker=ContractionSettings()
)
