"""The layout net, trained only a little, for tests."""

from solution.domain.collection import XLA
from solution.experiments.base import Experiment
from solution.models.layout.layout_gnn import LayoutGnnSettings
from solution.models.nets.training_settings import TrainingSettings

EXPERIMENT = Experiment(
    name="quick_layout_gnn",
    collections=XLA,
    train_jointly=(XLA,),
    ranker=LayoutGnnSettings(width=16, training=TrainingSettings(epochs=2, configs_per_graph=8)),
)
