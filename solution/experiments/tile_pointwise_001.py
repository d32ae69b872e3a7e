"""Trees on the tile table that predict the normalised rank."""

from solution.domain.collection import TILE
from solution.experiments.base import Experiment
from solution.models.trees.lightgbm_ranker import PointwiseSettings

EXPERIMENT = Experiment(name="tile_pointwise_001", collections=TILE, ranker=PointwiseSettings())
