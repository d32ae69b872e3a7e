"""The layout net on the four layout collections: a net for each, three seeds averaged."""

from solution.collection import LAYOUT
from solution.experiments.base import Experiment
from solution.models.layout_gnn import LayoutGnnSettings

EXPERIMENT = Experiment(
    name="layout_gnn_001", collections=LAYOUT, ranker=LayoutGnnSettings(), seeds=(0, 1, 2)
)
