"""The residual net of a student report for tiles, without attention."""

from solution.domain.collection import TILE
from solution.experiments.base import Experiment
from solution.papers.residual_tile import ResidualTileSettings

EXPERIMENT = Experiment(
    name="tile_residual_001",
    collections=TILE,
    ranker=ResidualTileSettings(attention=False),
)
