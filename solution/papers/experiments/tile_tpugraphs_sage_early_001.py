"""The tile baseline of TpuGraphs with GraphSAGE, configurations joined early."""

from solution.domain.collection import TILE
from solution.experiments.base import Experiment
from solution.papers.tpugraphs_tile import TpuGraphsTileSettings

EXPERIMENT = Experiment(
    name="tile_tpugraphs_sage_early_001",
    collections=TILE,
    ranker=TpuGraphsTileSettings(block="sage", join="early"),
)
