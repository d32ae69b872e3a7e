"""Ridge on padding and counts of layout values, as in the LightGBM study."""

from solution.domain.collection import LAYOUT
from solution.experiments.base import Experiment
from solution.papers.lightgbm_model import StudyRidgeSettings

EXPERIMENT = Experiment(
    name="layout_study_ridge_001",
    collections=LAYOUT,
    ranker=StudyRidgeSettings(max_rows=66_000),
)
