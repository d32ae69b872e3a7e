"""What the tile net keeps of a kernel."""

import numpy as np

from solution.domain.graph import count_bytes
from solution.features.tile.fusions import inline_fusions
from solution.features.tile.loops import dimension_tokens
from solution.models.tile.tile_gnn import TileGnnSettings
from tests.made.graphs import make_tile_graph


def test_tokens_are_kept_where_the_settings_ask_for_them() -> None:
    graph = make_tile_graph(0, configs=200).select(np.arange(200).repeat(2))
    without = TileGnnSettings().build(0).prepare(graph)
    kept = TileGnnSettings(tokens=True).build(0).prepare(graph)
    tokens, active = dimension_tokens(inline_fusions(graph))
    np.testing.assert_array_equal(kept.tokens, tokens[graph.distinct.first])
    np.testing.assert_array_equal(kept.active, active)
    assert without.tokens.numel() == without.active.numel() == 0
    assert count_bytes(without) < 0.7 * count_bytes(kept)
    assert kept.table is without.table  # what both take is there once
