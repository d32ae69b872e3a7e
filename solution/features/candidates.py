"""Configurations for a program that brings none: layouts or tiles that a search would try.

Layouts: half of them set a random share of the tensors and leave the rest to the compiler, half
lie around the compiler's own choice, with a few tensors set anew; the first one leaves everything
to the compiler. Tiles: all products of divisors of the sizes that are cut, or a random part of
them. What is drawn depends on the graph and the seed alone.
"""

import dataclasses
from itertools import product
from math import isqrt, prod

import numpy as np

from solution.domain.codebook import Codebook
from solution.domain.codebook_encoder import LayoutEncoder
from solution.domain.graph import Graph, find_longer
from solution.domain.vocabulary import (
    LAYOUT_TENSORS,
    LAYOUT_UNSET,
    MAX_RANK,
    NUM_LAYOUT_FEATURES,
    NUM_TILE_FEATURES,
    TILE_BLOCKS,
)
from solution.features.layout.tensors import find_tensors, list_tensors
from solution.features.padding import repair_padding
from solution.features.tile.fusions import inline_fusions
from solution.features.tile.tiling import find_tiling
from solution.system.errors import InputError

DEFAULT, MOST = 1000, 100_000  # configurations
# In every search a random configuration sets this share of its tensors, evenly on a logarithmic
# scale, and one around the compiler's choice at most so many: as most measured for the sample do.
SHARES, CHANGES = (0.03, 0.7), 4
MIN_RANK = 2  # below there is nothing to order
BLOCK_VALUES = 1 << 24  # of the config tensor that are in memory at once
MAX_FACTOR = 1 << 16
MAX_GRID = 1 << 20  # tiles that are listed, of which some are drawn


class NothingToChooseError(InputError):
    """Nothing of the program may be configured."""


def make_candidates(graph: Graph, count: int = DEFAULT, seed: int = 0) -> Graph:
    """The same program with at most `count` configurations, each another.

    Raises NothingToChooseError where nothing of the program may be configured, InputError where
    the count is out of range.
    """
    if not 1 <= count <= MOST:
        raise InputError(f"--configs is {count}, expected a number from 1 to {MOST:,}.")
    generator = np.random.default_rng(seed)
    if graph.collection.kind == "tile":
        return _replace(graph, _draw_tiles(graph, count, generator))
    return _draw_layouts(graph, count, generator)


def _replace(graph: Graph, configs: Codebook | np.ndarray) -> Graph:
    return dataclasses.replace(graph, configs=configs, runtimes=None, options=None)


def _draw_layouts(graph: Graph, count: int, generator: np.random.Generator) -> Graph:
    ranks = _find_ranks(graph)
    if not ranks.any():
        raise NothingToChooseError(
            f"{graph.name}: expected a convolution, dot or reshape of rank {MIN_RANK} to "
            f"{MAX_RANK}, whose layouts may be set, found none. There is nothing to choose."
        )
    encoder = LayoutEncoder(count, len(graph.configurable))
    step = max(1, BLOCK_VALUES // (len(ranks) * NUM_LAYOUT_FEATURES))
    for first in range(0, count, step):
        places = range(first, min(first + step, count))
        block = np.stack([_draw_layout(ranks, place, generator) for place in places])
        encoder.add(block.reshape(len(block), len(ranks), NUM_LAYOUT_FEATURES))
    drawn = _replace(graph, encoder.finish())
    return drawn.select(np.sort(drawn.distinct.first))


def _find_ranks(graph: Graph) -> np.ndarray:
    """The rank (configurable, 3) of each tensor whose layout may be set; 0 where none may be.

    The slots of a configuration do not hold an order of more than six dimensions.
    """
    repaired, is_longer = repair_padding(graph), find_longer(graph.node_features)
    ranks = np.stack([find_tensors(repaired, name).ranks for name in LAYOUT_TENSORS], axis=1)
    nodes = np.stack([list_tensors(repaired, name) for name in LAYOUT_TENSORS], axis=1)
    return np.where((ranks >= MIN_RANK) & ~((nodes >= 0) & is_longer[nodes]), ranks, 0)


def _draw_layout(ranks: np.ndarray, place: int, generator: np.random.Generator) -> np.ndarray:
    """(configurable, 3, 6) int8: by turns random and around the compiler's choice; first that."""
    layout = np.full((*ranks.shape, MAX_RANK), LAYOUT_UNSET, np.int8)
    if place == 0:
        return layout
    tensors = np.argwhere(ranks > 0)
    if place % 2:
        share = np.exp(generator.uniform(*np.log(SHARES)))
        number = max(1, int(generator.binomial(len(tensors), share)))
    else:
        number = min(len(tensors), int(generator.integers(1, CHANGES + 1)))
    node, tensor = tensors[generator.choice(len(tensors), number, replace=False)].T
    # A random order of as many slots as the tensor has: those past its rank are sorted last.
    past = np.arange(MAX_RANK) >= ranks[node, tensor][:, None]
    order = np.argsort(generator.random((number, MAX_RANK)) + past, axis=1)
    layout[node, tensor] = np.where(past, LAYOUT_UNSET, order)
    return layout


def _draw_tiles(graph: Graph, count: int, generator: np.random.Generator) -> np.ndarray:
    """(configs, 24) float32: bounds of the tensor that is cut, and the step of a sum."""
    kernel = inline_fusions(_replace(repair_padding(graph), np.zeros((1, NUM_TILE_FEATURES), "f4")))
    tiling = find_tiling(kernel)
    sizes = [int(size) for size in tiling.extents[: tiling.rank]]
    sums = int(tiling.extents[MAX_RANK])
    choices = [divide(size) for size in (*sizes, sums)]
    bounds = _choose(choices, count, generator)
    tiles = np.zeros((len(bounds), NUM_TILE_FEATURES))
    _fill(tiles[:, TILE_BLOCKS["output"]], bounds[:, :-1])
    if sums > 1:
        _fill(tiles[:, TILE_BLOCKS["input"]], bounds[:, -1:])
    return tiles.astype(np.float32)


def divide(size: int) -> list[int]:
    """The divisors of a size, ascending; of huge ones those of which a factor is small."""
    largest = min(isqrt(size), MAX_FACTOR)
    small = [number for number in range(1, largest + 1) if size % number == 0]
    return sorted({*small, *(size // number for number in small)})


def _choose(choices: list[list[int]], count: int, generator: np.random.Generator) -> np.ndarray:
    """At most `count` different rows that take one of each of the choices."""
    if prod(map(len, choices)) <= MAX_GRID:
        grid = np.array(list(product(*choices)))
        return grid[np.sort(generator.permutation(len(grid))[:count])]
    drawn = [generator.choice(own, count) for own in choices]
    return np.unique(np.stack(drawn, axis=1), axis=0)


def _fill(block: np.ndarray, bounds: np.ndarray) -> None:
    """Sizes, their sum and their product, as the competition's tiles have them."""
    block[:, : bounds.shape[1]] = bounds
    block[:, MAX_RANK] = bounds.sum(axis=1)
    block[:, MAX_RANK + 1] = bounds.prod(axis=1)
