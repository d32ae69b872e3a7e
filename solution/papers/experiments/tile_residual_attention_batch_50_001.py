"""The residual net of a student report for tiles, 50 kernels a step."""

from dataclasses import replace

from solution.domain.collection import TILE
from solution.experiments.base import Experiment
from solution.papers.residual_attention import TRAINING
from solution.papers.residual_tile import ResidualTileSettings

EXPERIMENT = Experiment(
    name="tile_residual_attention_batch_50_001",
    collections=TILE,
    ranker=ResidualTileSettings(training=replace(TRAINING, graphs_per_step=50)),
)
