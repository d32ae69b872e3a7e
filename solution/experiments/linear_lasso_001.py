"""Lasso on the feature tables; the penalty is chosen by grid search."""

from solution.domain.collection import NAMES
from solution.experiments.base import Experiment
from solution.models.linear import LassoSettings

EXPERIMENT = Experiment(name="linear_lasso_001", collections=NAMES, ranker=LassoSettings())
