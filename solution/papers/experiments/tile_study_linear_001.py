"""Least squares on mean node features to predict the scaled runtime, as in the LightGBM study."""

from solution.domain.collection import TILE
from solution.experiments.base import Experiment
from solution.papers.lightgbm_model import StudyOrdinarySettings

EXPERIMENT = Experiment(
    name="tile_study_linear_001", collections=TILE, ranker=StudyOrdinarySettings()
)
