"""The tile baseline of TpuGraphs without a graph."""

from solution.domain.collection import TILE
from solution.experiments.base import Experiment
from solution.papers.tpugraphs_tile import TpuGraphsTileSettings

EXPERIMENT = Experiment(
    name="tile_tpugraphs_mlp_001",
    collections=TILE,
    ranker=TpuGraphsTileSettings(block=None),
)
