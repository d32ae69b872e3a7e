"""Trees on differences of two rows of the tile table."""

from solution.domain.collection import TILE
from solution.experiments.base import Experiment
from solution.models.trees.pairwise_ranker import PairwiseSettings

EXPERIMENT = Experiment(name="tile_pairwise_001", collections=TILE, ranker=PairwiseSettings())
