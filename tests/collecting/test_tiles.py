"""Tiles of a product: which are tried."""

import numpy as np

from solution.collecting.spaces import draw_untried, name_configuration
from solution.collecting.tiles import TileSpace
from solution.programs.program import Program
from tests.made import modules


def make_product() -> Program:
    """Of 6 rows, 9 sums and 32 columns: a hundred tiles are no larger."""
    nodes = [
        modules.node(10, "parameter", modules.shape(6, 9)),
        modules.node(11, "parameter", modules.shape(9, 32), parameter_number=1),
        modules.node(
            12, "dot", modules.shape(6, 32), (10, 11), dot=modules.dot([1], [0], [], [])
        ),
    ]  # fmt: skip
    return Program("product", modules.module(("main", 12, nodes)), [])


def test_every_tile_of_a_small_grid_is_drawn() -> None:
    """One after the other, as a collection asks for them, and in another order by another seed."""
    space = TileSpace(make_product())
    orders = []
    for seed in range(5):
        generator, drawn = np.random.default_rng(seed), list[str]()
        while found := draw_untried(space, generator, 1, set(drawn), []):
            drawn += [name_configuration(values) for values in found]
        assert len(drawn) == len(set(drawn)) == len(space.grid)
        orders.append(drawn)
    assert orders[0] != orders[1]
