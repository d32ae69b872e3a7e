"""Trees on the layout table that predict the normalised rank."""

from solution.domain.collection import LAYOUT
from solution.experiments.base import Experiment
from solution.models.trees.lightgbm_ranker import PointwiseSettings

EXPERIMENT = Experiment(name="layout_pointwise_001", collections=LAYOUT, ranker=PointwiseSettings())
