"""A net whose costs add up, with so little training that a test can wait for it."""

from solution.experiments.base import Experiment
from solution.models.layout.propagated_net import PropagatedNetSettings
from solution.models.nets.training_loop import TrainingSettings

EXPERIMENT = Experiment(
    name="quick_additive_net",
    collections=("layout:xla:random",),
    ranker=PropagatedNetSettings(
        width=8, adds_up=True, training=TrainingSettings(epochs=1, configs_per_graph=8)
    ),
)
