"""Experiments of TGraph."""

from solution.domain.collection import LAYOUT
from solution.experiments.base import Experiment
from solution.papers.tgraph import TGraphSettings
from solution.papers.wrappers import SublistAverageSettings

EXPERIMENTS = (
    Experiment(name="layout_tgraph_001", collections=LAYOUT,
               about="TGraph on the four layout collections, scores averaged over lists of the "
                     "training's length.",
               ranker=SublistAverageSettings(TGraphSettings(), size=64, times=4)),
    Experiment(name="layout_tgraph_alone_001", collections=LAYOUT,
               about="TGraph without attention across configurations: each is scored by itself.",
               ranker=TGraphSettings(across=False)),
)  # fmt: skip
