"""The additive cost net, trained only a little, for tests."""

from solution.experiments.base import Experiment
from solution.models.layout.cost_net import CostNetSettings
from solution.models.nets.training_settings import TrainingSettings

EXPERIMENT = Experiment(
    name="quick_cost_net",
    collections=("layout:xla:random",),
    ranker=CostNetSettings(width=8, training=TrainingSettings(epochs=1, configs_per_graph=8)),
)
