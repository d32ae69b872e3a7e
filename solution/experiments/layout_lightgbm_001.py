"""Lambdarank on the layout table."""

from solution.domain.collection import LAYOUT
from solution.experiments.base import Experiment
from solution.models.trees.lightgbm_ranker import LightGBMSettings

EXPERIMENT = Experiment(name="layout_lightgbm_001", collections=LAYOUT, ranker=LightGBMSettings())
