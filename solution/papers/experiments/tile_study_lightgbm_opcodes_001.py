"""Trees on mean node features and opcodes, as in the LightGBM study."""

from solution.domain.collection import TILE
from solution.experiments.base import Experiment
from solution.papers.lightgbm_model import StudyTreeSettings

EXPERIMENT = Experiment(
    name="tile_study_lightgbm_opcodes_001",
    collections=TILE,
    ranker=StudyTreeSettings(opcodes="kept"),
)
