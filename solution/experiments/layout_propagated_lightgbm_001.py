"""Lambdarank on the layout table and on copies and layouts as the compiler would have them."""

from solution.domain.collection import LAYOUT
from solution.experiments.base import Experiment
from solution.models.trees.propagated_ranker import PropagatedTreeSettings

EXPERIMENT = Experiment(
    name="layout_propagated_lightgbm_001", collections=LAYOUT, ranker=PropagatedTreeSettings()
)
