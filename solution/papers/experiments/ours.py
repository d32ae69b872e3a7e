"""Ablations: this project's models with techniques of papers added or removed."""

import dataclasses

from solution.domain.collection import LAYOUT, TILE
from solution.experiments.base import Experiment
from solution.experiments.layout_gnn_001 import EXPERIMENT as LAYOUT_NET
from solution.experiments.tile_gnn_001 import EXPERIMENT as TILE_NET
from solution.models.nets.training_settings import TrainingSettings
from solution.models.tile.tile_gnn import TileGnnSettings
from solution.papers.prepared import ContractionSettings, PreparedSettings

EXPERIMENTS = (
    dataclasses.replace(LAYOUT_NET, name="layout_gnn_contractions_001",
                        about="Our layout net, with the contracted dimensions of dots as features.",
                        ranker=PreparedSettings(LAYOUT_NET.ranker, contractions=True)),
    dataclasses.replace(LAYOUT_NET, name="layout_gnn_padding_0_001",
                        about="Our layout net with unused slots at 0, as in the files.",
                        ranker=PreparedSettings(LAYOUT_NET.ranker, padding=0)),
    dataclasses.replace(LAYOUT_NET, name="layout_gnn_plain_001",
                        about="Our layout net with raw node features instead of logarithms.",
                        ranker=PreparedSettings(LAYOUT_NET.ranker, encoding="plain")),
    dataclasses.replace(LAYOUT_NET, name="layout_gnn_virtual_001",
                        about="Our layout net with a virtual node for every connected part that "
                              "pruning drops.",
                        ranker=dataclasses.replace(LAYOUT_NET.ranker, pruning="virtual")),  # type: ignore[type-var]
    Experiment(name="layout_pointwise_contractions_001", collections=LAYOUT,
               about="Trees on the layout table and on which dimensions of dots are contiguous "
                     "and summed.",
               ranker=ContractionSettings()),
    dataclasses.replace(TILE_NET, name="tile_gnn_contractions_001",
                        about="Our tile net, with the contracted dimensions of dots as features.",
                        ranker=PreparedSettings(TILE_NET.ranker, contractions=True)),
    dataclasses.replace(TILE_NET, name="tile_gnn_padding_0_001",
                        about="Our tile net with unused slots at 0, as in the files.",
                        ranker=PreparedSettings(TILE_NET.ranker, padding=0)),
    dataclasses.replace(TILE_NET, name="tile_gnn_plain_001",
                        about="Our tile net with raw node features instead of logarithms.",
                        ranker=PreparedSettings(TILE_NET.ranker, encoding="plain")),
    Experiment(name="tile_gnn_rivals_001", collections=TILE,
               about="The tile net with dimension tokens and attention across configurations.",
               ranker=TileGnnSettings(tokens=True, heads=4, dropout=0.3,
                                      training=TrainingSettings(graphs_per_step=16,
                                      weight_decay=0.01))),
)  # fmt: skip
