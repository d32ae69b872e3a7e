"""The residual net of a student report for tiles, one epoch."""

from dataclasses import replace

from solution.domain.collection import TILE
from solution.experiments.base import Experiment
from solution.papers.residual_attention import TRAINING
from solution.papers.residual_tile import ResidualTileSettings

EXPERIMENT = Experiment(
    name="tile_residual_attention_epoch_001",
    collections=TILE,
    ranker=ResidualTileSettings(training=replace(TRAINING, epochs=1)),
)
