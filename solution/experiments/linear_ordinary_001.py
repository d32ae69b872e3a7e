"""Ordinary least squares on the feature tables: the plainest baseline."""

from solution.domain.collection import NAMES
from solution.experiments.base import Experiment
from solution.models.linear import OrdinarySettings

EXPERIMENT = Experiment(name="linear_ordinary_001", collections=NAMES, ranker=OrdinarySettings())
