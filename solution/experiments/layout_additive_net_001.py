"""The net on propagated states with costs that add up, which `fastslow explain` shows."""

from solution.domain.collection import LAYOUT, NLP, XLA
from solution.experiments.base import Experiment
from solution.models.layout.propagated_net import PropagatedNetSettings

EXPERIMENT = Experiment(
    name="layout_additive_net_001",
    collections=LAYOUT,
    train_jointly=(XLA, NLP),
    ranker=PropagatedNetSettings(adds_up=True),
    seeds=(0, 1, 2),
)
