"""The tile baseline of TpuGraphs with attention in front, as a student report has it."""

from solution.domain.collection import TILE
from solution.experiments.base import Experiment
from solution.papers.tpugraphs_tile import TpuGraphsTileSettings

EXPERIMENT = Experiment(
    name="tile_tpugraphs_attention_001",
    collections=TILE,
    ranker=TpuGraphsTileSettings(join="early", heads=16),
)
