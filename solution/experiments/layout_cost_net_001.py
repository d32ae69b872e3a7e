"""The cost net: an additive cost model, which `fastslow explain` shows; three seeds averaged."""

from solution.domain.collection import LAYOUT, NLP, XLA
from solution.experiments.base import Experiment
from solution.models.layout.cost_net import CostNetSettings

EXPERIMENT = Experiment(
    name="layout_cost_net_001",
    collections=LAYOUT,
    train_jointly=(XLA, NLP),
    ranker=CostNetSettings(),
    seeds=(0, 1, 2),
)
