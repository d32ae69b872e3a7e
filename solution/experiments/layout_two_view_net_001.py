"""The net with two views, of what is asked and of what is made of it; three seeds averaged."""

from solution.domain.collection import LAYOUT, NLP, XLA
from solution.experiments.base import Experiment
from solution.models.layout.two_view_net import TwoViewSettings

EXPERIMENT = Experiment(
    name="layout_two_view_net_001",
    collections=LAYOUT,
    train_jointly=(XLA, NLP),
    ranker=TwoViewSettings(),
    seeds=(0, 1, 2),
)
