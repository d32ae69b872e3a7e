"""The tile baseline of TpuGraphs with attention before the convolutions, from a student report."""

from solution.domain.collection import TILE
from solution.experiments.base import Experiment
from solution.papers.tpugraphs_tile import TpuGraphsTileSettings

EXPERIMENT = Experiment(
    name="tile_tpugraphs_attention_001",
    collections=TILE,
    ranker=TpuGraphsTileSettings(join="early", heads=16),
)
