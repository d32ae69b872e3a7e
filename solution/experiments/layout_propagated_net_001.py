"""The net on what the compiler makes of the layouts: one for each source; three seeds averaged."""

from solution.domain.collection import LAYOUT, NLP, XLA
from solution.experiments.base import Experiment
from solution.models.layout.propagated_net import PropagatedNetSettings

EXPERIMENT = Experiment(
    name="layout_propagated_net_001",
    collections=LAYOUT,
    train_jointly=(XLA, NLP),
    ranker=PropagatedNetSettings(),
    seeds=(0, 1, 2),
)
