"""TGraph on the four layout collections, scores averaged over lists of the training's length."""

from solution.domain.collection import LAYOUT
from solution.experiments.base import Experiment
from solution.papers.tgraph import TGraphSettings
from solution.papers.wrappers import SublistAverageSettings

EXPERIMENT = Experiment(
    name="layout_tgraph_001",
    collections=LAYOUT,
    ranker=SublistAverageSettings(TGraphSettings(), size=64, times=4),
)
