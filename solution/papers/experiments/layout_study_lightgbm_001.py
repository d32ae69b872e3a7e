"""Trees on padding and counts of layout values, as in the LightGBM study."""

from solution.domain.collection import LAYOUT
from solution.experiments.base import Experiment
from solution.papers.lightgbm_model import StudyTreeSettings

EXPERIMENT = Experiment(
    name="layout_study_lightgbm_001",
    collections=LAYOUT,
    ranker=StudyTreeSettings(max_rows=66_000),
)
