"""The control: configurations stay in the file's order."""

from solution.domain.collection import NAMES
from solution.experiments.base import Experiment
from solution.models.nothing import NothingSettings

EXPERIMENT = Experiment(name="nothing_001", collections=NAMES, ranker=NothingSettings())
