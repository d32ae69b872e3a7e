"""Build the search space of a program that is compiled here: layouts, compile options, tiles.

A parameter (site) of a layout is a tensor; its values (choices) are the compiler's default and
every order of its dimensions. If the program is a single product, its tile is one parameter, whose
first value is the library's product. If a tile is set, no option may ask for a library's product:
such combinations are not legal.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import permutations

import numpy as np

from solution.choosing.space import Space
from solution.choosing.table import link_sites
from solution.collecting.constraints import constrain, find_ranks
from solution.collecting.options import find_flags, list_settings
from solution.collecting.tiles import TileSpace
from solution.domain.vocabulary import (
    LAYOUT_TENSORS,
    LAYOUT_UNSET,
    MAX_RANK,
    OPTION_CHOICES,
    OPTION_NAMES,
)
from solution.programs.compiler import Flags
from solution.programs.program import Program
from solution.system.errors import InputError

LAYOUTS, OPTIONS, TILES = "layouts", "options", "tiles"
KINDS = (LAYOUTS, OPTIONS, TILES)
OF_PRODUCTS = [OPTION_NAMES.index(name) for name in ("library_fusions", "products")]


@dataclass(frozen=True, eq=False)
class ProgramSpace:
    """The search space of a program, and the compiler's inputs for each configuration."""

    program: Program
    space: Space
    tensors: np.ndarray  # (layout sites, 2) position among the configurable nodes, tensor
    ranks: np.ndarray  # (layout sites,) rank of each tensor
    has_options: bool
    tiles: np.ndarray  # (tiles, 3) sizes of rows, sums, vectors; empty if tiles are not searched

    def layouts(self, choices: np.ndarray) -> np.ndarray:
        """Return the layouts (n, configurable, 3, 6) of configurations (n, sites)."""
        shape = (len(choices), len(self.program.configurable), len(LAYOUT_TENSORS), MAX_RANK)
        found = np.full(shape, LAYOUT_UNSET, np.int8)
        for site, ((node, tensor), rank) in enumerate(zip(self.tensors, self.ranks, strict=True)):
            found[:, node, tensor] = list_orders(int(rank))[choices[:, site]]
        return found

    def options(self, choices: np.ndarray) -> np.ndarray:
        """Return positions in OPTION_CHOICES (options,) of one configuration (sites,)."""
        if not self.has_options:
            return np.zeros(len(OPTION_NAMES), np.int8)
        first = len(self.tensors)
        return choices[first : first + len(OPTION_NAMES)].astype(np.int8)

    def tile(self, choices: np.ndarray) -> np.ndarray | None:
        """Return the tile's rows, sums and vectors (3,) of one configuration; None: library
        product."""
        if not len(self.tiles) or not choices[-1]:
            return None
        return np.asarray(self.tiles[choices[-1] - 1])

    def flags(self, choices: np.ndarray) -> Flags:
        """Return the compiler's flags for one configuration."""
        told, tile = find_flags(self.options(choices)), self.tile(choices)
        if tile is None:
            return told
        _, own = TileSpace(self.program).prepare(tile)
        return Flags((*own.options, *told.options), (*own.backend, *told.backend))

    def prepare(self, choices: np.ndarray) -> tuple[bytes, Flags]:
        """Return the module and the flags of one configuration (sites,)."""
        layouts = self.layouts(choices[None])[0]
        if (layouts == LAYOUT_UNSET).all():
            return self.program.plain, self.flags(choices)
        module = constrain(self.program.module, self.program.configurable, layouts)
        return module, self.flags(choices)


def make_program_space(program: Program, kinds: Sequence[str] = ()) -> ProgramSpace:
    """Return the space of the named kinds; by default of all kinds that the program has.

    Raises InputError if the program has nothing to set of a named kind.
    """
    unknown = sorted(set(kinds) - set(KINDS))
    if unknown:
        raise InputError(f"--over is {', '.join(unknown)}, expected some of {', '.join(KINDS)}.")
    ranks = find_ranks(program.module, program.configurable)
    wanted = kinds or KINDS
    tensors = np.argwhere(ranks > 0) if LAYOUTS in wanted else np.zeros((0, 2), int)
    if LAYOUTS in kinds and not len(tensors):
        raise InputError(
            f"{program.name}: expected a convolution, dot or reshape of rank 2 to {MAX_RANK}, "
            "whose layouts may be set, found none. Choose over its options instead."
        )
    own_ranks = ranks[tensors[:, 0], tensors[:, 1]]
    tiles = _find_tiles(program, is_asked=TILES in kinds) if TILES in wanted else _no_tiles()
    has_options = OPTIONS in wanted
    sizes = [len(list_orders(int(rank))) for rank in own_ranks]
    sizes += [len(choices) for choices in OPTION_CHOICES.values()] * has_options
    sizes += [1 + len(tiles)] * bool(len(tiles))
    links = link_sites(
        program.nodes.edges, len(program.nodes.opcodes), program.configurable, tensors[:, 0]
    )
    first = len(tensors)
    told = list_settings() if has_options else []

    def are_legal(choices: np.ndarray) -> np.ndarray:
        if not (has_options and len(tiles)):
            return np.ones(len(choices), bool)
        asked = choices[:, [first + place for place in OF_PRODUCTS]].any(axis=1)
        return np.asarray(~(asked & (choices[:, -1] > 0)))

    space = Space(
        sizes=np.array(sizes),
        default=np.zeros(len(sizes), np.int32),
        links=links,
        coordinates=(None,) * len(sizes),
        are_legal=are_legal,
        settings=tuple(tuple((first + place, choice) for place, choice in own) for own in told),
    )
    if set(kinds) == {TILES}:
        space = _tile_table(tiles)
    return ProgramSpace(program, space, tensors, own_ranks, has_options, tiles)


@cache
def list_orders(rank: int) -> np.ndarray:
    """Return layouts (choices, 6) of a tensor: the compiler's default, then every order, minor
    first."""
    orders = [(*order, *[LAYOUT_UNSET] * (MAX_RANK - rank)) for order in permutations(range(rank))]
    return np.array([[LAYOUT_UNSET] * MAX_RANK, *orders], np.int8)


def _find_tiles(program: Program, *, is_asked: bool) -> np.ndarray:
    """Return the tiles of a program that is a single product; otherwise none."""
    try:
        return TileSpace(program).grid
    except InputError:
        if is_asked:
            raise
        return _no_tiles()


def _no_tiles() -> np.ndarray:
    return np.zeros((0, 3), np.int16)


def _tile_table(tiles: np.ndarray) -> Space:
    """Return a table of the library's product and all tiles, for a search over tiles alone.

    Values are positions in the list of tiles, as in other spaces. The space needs no coordinates,
    because its members are described by their sizes.
    """
    members = np.arange(1 + len(tiles), dtype=np.int32)[:, None]
    return TileTable(
        sizes=np.array([1 + len(tiles)]),
        default=members[0],
        links=np.zeros((0, 2), int),
        coordinates=(None,),
        members=members,
        tiles=tiles,
    )


@dataclass(frozen=True, eq=False)
class TileTable(Space):
    """A space of tiles alone, in which the distance of two tiles depends on their sizes."""

    tiles: np.ndarray | None = None  # (tiles, 3)

    def describe(self, choices: np.ndarray) -> np.ndarray:
        """Return standardised logarithms of the sizes; the library's product lies apart."""
        assert self.tiles is not None
        sizes = np.log(self.tiles.astype(np.float64))
        scaled = (sizes - sizes.mean(axis=0)) / np.maximum(sizes.std(axis=0), 1e-9)
        rows = np.concatenate([np.zeros((1, 3)), scaled])
        library = np.zeros((len(rows), 1))
        library[0] = 2.0
        return np.hstack([rows, library])[choices[:, 0]].astype(np.float32)
