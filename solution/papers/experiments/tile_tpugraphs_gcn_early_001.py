"""The tile baseline of TpuGraphs with GCN, configurations joined early."""

from solution.domain.collection import TILE
from solution.experiments.base import Experiment
from solution.papers.tpugraphs_tile import TpuGraphsTileSettings

EXPERIMENT = Experiment(
    name="tile_tpugraphs_gcn_early_001",
    collections=TILE,
    ranker=TpuGraphsTileSettings(block="gcn", join="early"),
)
