"""Trees on mean node features that predict the scaled runtime, as in the LightGBM study."""

from solution.domain.collection import TILE
from solution.experiments.base import Experiment
from solution.papers.lightgbm_model import StudyTreeSettings

EXPERIMENT = Experiment(
    name="tile_study_lightgbm_001", collections=TILE, ranker=StudyTreeSettings()
)
