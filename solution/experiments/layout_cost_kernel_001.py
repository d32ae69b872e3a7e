"""The cost kernel: an additive cost model in which similar states cost alike; three seeds
averaged."""

from solution.domain.collection import LAYOUT, NLP, XLA
from solution.experiments.base import Experiment
from solution.models.layout.cost_kernel import CostKernelSettings

EXPERIMENT = Experiment(
    name="layout_cost_kernel_001",
    collections=LAYOUT,
    train_jointly=(XLA, NLP),
    ranker=CostKernelSettings(),
    seeds=(0, 1, 2),
)
