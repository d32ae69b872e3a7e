"""TGraph without attention across configurations: each is scored by itself."""

from solution.domain.collection import LAYOUT
from solution.experiments.base import Experiment
from solution.papers.tgraph import TGraphSettings

EXPERIMENT = Experiment(
    name="layout_tgraph_alone_001", collections=LAYOUT, ranker=TGraphSettings(across=False)
)
