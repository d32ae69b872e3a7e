"""Ridge regression on the feature tables; the penalty is chosen by grid search."""

from solution.domain.collection import NAMES
from solution.experiments.base import Experiment
from solution.models.linear import RidgeSettings

EXPERIMENT = Experiment(name="linear_ridge_001", collections=NAMES, ranker=RidgeSettings())
