"""The cost net under the rules of a TPU's layout assignment; three seeds averaged."""

from solution.domain.collection import LAYOUT, NLP, XLA
from solution.experiments.base import Experiment
from solution.models.layout.cost_net import CostNetSettings

EXPERIMENT = Experiment(
    name="layout_cost_net_002",
    collections=LAYOUT,
    train_jointly=(XLA, NLP),
    ranker=CostNetSettings(backend="tpu"),
    seeds=(0, 1, 2),
)
