"""The residual net of a student report for tiles, with self-attention."""

from solution.domain.collection import TILE
from solution.experiments.base import Experiment
from solution.papers.residual_tile import ResidualTileSettings

EXPERIMENT = Experiment(
    name="tile_residual_attention_001",
    collections=TILE,
    ranker=ResidualTileSettings(),
)
