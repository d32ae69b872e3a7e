"""Trees on differences of two rows of the layout table."""

from solution.domain.collection import LAYOUT
from solution.experiments.base import Experiment
from solution.models.trees.pairwise_ranker import PairwiseSettings

EXPERIMENT = Experiment(name="layout_pairwise_001", collections=LAYOUT, ranker=PairwiseSettings())
