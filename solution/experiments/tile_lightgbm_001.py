"""Lambdarank on the tile table."""

from solution.domain.collection import TILE
from solution.experiments.base import Experiment
from solution.models.trees.lightgbm_ranker import LightGBMSettings

EXPERIMENT = Experiment(name="tile_lightgbm_001", collections=TILE, ranker=LightGBMSettings())
