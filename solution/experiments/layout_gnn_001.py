"""The layout net: one per source (xla, nlp), for both of its collections; three seeds averaged.

The random and the default collection of a source have the same programs. A net that learns from
both collections ranks each of them better than a net that learns from this collection only. Its
training costs no more, because it replaces two nets.
"""

from solution.domain.collection import LAYOUT, NLP, XLA
from solution.experiments.base import Experiment
from solution.models.layout.layout_gnn import LayoutGnnSettings

EXPERIMENT = Experiment(
    name="layout_gnn_001",
    collections=LAYOUT,
    train_jointly=(XLA, NLP),
    ranker=LayoutGnnSettings(),
    seeds=(0, 1, 2),
)
