"""Draw configurations for a program that has none: layouts or tiles that a search would try.

Layouts: the first configuration leaves everything to the compiler. Of the others, one half sets a
random share of the tensors and leaves the rest to the compiler; the other half changes a few
tensors of the compiler's default. Tiles: all combinations of divisors of the tiled dimensions, or a
random part of them. The result depends on the graph and the seed alone.
"""

import dataclasses
from itertools import product
from math import isqrt, prod

import numpy as np

from solution.domain.codebook import Codebook, LayoutEncoder
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
from solution.features.preparation import repair_padding
from solution.features.tile.fusions import inline_fusions
from solution.features.tile.tiling import find_tiling
from solution.system.errors import InputError

# default and maximum number of configurations
DEFAULT, MOST = 1000, 100_000
# SHARES: range of the share of parameters that a random configuration sets. CHANGES: maximum number
# of parameters in which a neighbour of a configuration differs from it.
SHARES, CHANGES = (0.03, 0.7), 4
MIN_RANK = 2  # a tensor of lower rank has one layout
BLOCK_VALUES = 1 << 24  # maximum number of values of the configuration tensor in memory at once
MAX_FACTOR = 1 << 16  # bound on the divisors that are searched; see divide
MAX_GRID = 1 << 20  # list all tiles if at most this many are possible, otherwise draw some


class NothingToChooseError(InputError):
    """Raised if nothing in the program can be configured."""


def draw_sites(generator: np.random.Generator, sites: int, most: int | None = None) -> np.ndarray:
    """Return the indices (k,) of the parameters that a configuration changes, without repeats: 1 to
    `most` of `sites` parameters or, without `most`, a share drawn log-uniformly from SHARES."""
    if most is None:
        share = np.exp(generator.uniform(*np.log(SHARES)))
        count = max(1, int(generator.binomial(sites, share)))
    else:
        count = min(sites, int(generator.integers(1, most + 1)))
    return generator.choice(sites, count, replace=False)


def make_candidates(graph: Graph, count: int = DEFAULT, seed: int = 0) -> Graph:
    """Return the program with at most `count` distinct new configurations. Raises
    NothingToChooseError if none is possible, InputError if the count is out of range."""
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
        numbers = range(first, min(first + step, count))
        block = np.stack([_draw_layout(ranks, number, generator) for number in numbers])
        encoder.add(block.reshape(len(block), len(ranks), NUM_LAYOUT_FEATURES))
    drawn = _replace(graph, encoder.finish())
    return drawn.select(np.sort(drawn.distinct.first))


def _find_ranks(graph: Graph) -> np.ndarray:
    """Return the rank (configurable, 3) of each configurable node's output, input and kernel; 0 if
    its layout cannot be set: it is missing, or its rank is below MIN_RANK or above six."""
    repaired, is_longer = repair_padding(graph), find_longer(graph.node_features)
    ranks = np.stack([find_tensors(repaired, name).ranks for name in LAYOUT_TENSORS], axis=1)
    nodes = np.stack([list_tensors(repaired, name) for name in LAYOUT_TENSORS], axis=1)
    return np.where((ranks >= MIN_RANK) & ~((nodes >= 0) & is_longer[nodes]), ranks, 0)


def _draw_layout(ranks: np.ndarray, number: int, generator: np.random.Generator) -> np.ndarray:
    """Return configuration `number` (configurable, 3, 6). Number 0 sets no layouts; odd numbers set
    layouts of a random share of the tensors, even numbers layouts of at most CHANGES tensors."""
    layout = np.full((*ranks.shape, MAX_RANK), LAYOUT_UNSET, np.int8)
    if number == 0:
        return layout
    tensors = np.argwhere(ranks > 0)
    sites = draw_sites(generator, len(tensors), None if number % 2 else CHANGES)
    node, tensor = tensors[sites].T
    # Sort random keys to permute a tensor's dimensions; slots past the rank get the highest keys.
    past = np.arange(MAX_RANK) >= ranks[node, tensor][:, None]
    order = np.argsort(generator.random(past.shape) + past, axis=1)
    layout[node, tensor] = np.where(past, LAYOUT_UNSET, order)
    return layout


def _draw_tiles(graph: Graph, count: int, generator: np.random.Generator) -> np.ndarray:
    """Return tiles (configs, 24) float32: the bound along each dimension of the tiled tensor and,
    if the kernel sums, the number of terms that are summed in one block."""
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
    """Return the divisors d of `size` with d or size / d at most MAX_FACTOR, in ascending order."""
    largest = min(isqrt(size), MAX_FACTOR)
    small = [number for number in range(1, largest + 1) if size % number == 0]
    return sorted({*small, *(size // number for number in small)})


def _choose(choices: list[list[int]], count: int, generator: np.random.Generator) -> np.ndarray:
    """Return at most `count` distinct rows: combinations of one value from each of `choices`."""
    if prod(map(len, choices)) <= MAX_GRID:
        grid = np.array(list(product(*choices)))
        return grid[np.sort(generator.permutation(len(grid))[:count])]
    drawn = [generator.choice(values, count) for values in choices]
    return np.unique(np.stack(drawn, axis=1), axis=0)


def _fill(block: np.ndarray, bounds: np.ndarray) -> None:
    """Write `bounds` (tiles, n), their sum and their product into `block` (tiles, 8), in the
    columns where the competition's tile configurations have them."""
    block[:, : bounds.shape[1]] = bounds
    block[:, MAX_RANK] = bounds.sum(axis=1)
    block[:, MAX_RANK + 1] = bounds.prod(axis=1)
