"""Build the space of a program's configurations: layouts, compile options, tiles of a dot.

A site is a parameter of a configuration. Each tensor whose layout may be set is a site; its values
are the compiler's default and every order of the tensor's dimensions. Each compile option is a
site. If the program is a single matrix product, its tile is a site, too; the first value of that
site means that there is no tile, because a library computes the matrix product. Some options cannot
be combined with a tile: such configurations are not legal.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import permutations, product
from typing import Any, ClassVar

import numpy as np

from solution.collecting.constraints import constrain, find_ranks
from solution.collecting.identity import ADVICE
from solution.collecting.options import find_flags, list_settings
from solution.collecting.space import Space, link_sites
from solution.collecting.tiles import DEFAULT, Product, find_product, find_tile_flags
from solution.domain.vocabulary import (
    LAYOUT_TENSORS,
    LAYOUT_UNSET,
    MAX_RANK,
    OPTION_CHOICES,
    OPTION_NAMES,
)
from solution.programs.compiler import Flags
from solution.programs.hlo.messages import MESSAGES
from solution.programs.program import Program
from solution.system.errors import InputError

LAYOUTS, OPTIONS, TILES = "layouts", "options", "tiles"
KINDS = (LAYOUTS, OPTIONS, TILES)
# positions of the options that set flags which a tile sets, too
OF_PRODUCTS = [OPTION_NAMES.index(name) for name in ("library_fusions", "products")]
CHOOSE = "Choose its options instead: `fastslow choose PROGRAM --over options`."


@dataclass(frozen=True, eq=False)
class LayoutSite:
    """A parameter of the space: the layout of one tensor, or of all three tensors of a node."""

    # (node, tensor), or (node,) for all three tensors; node: position among the configurable nodes
    index: tuple[int, ...]
    # (choices, 6) layouts, minor to major; (choices, 3, 6) for three tensors. [0] is the default
    values: np.ndarray
    # more nodes that get these layouts: the copies of `index`'s node in repeated layers
    copies: tuple[int, ...] = ()


@dataclass(frozen=True, eq=False, kw_only=True)
class ProgramSpace(Space):
    """The configurations of a program (columns: layout sites, options, tile), and the compiler's
    inputs for each."""

    program: Program
    layout_sites: tuple[LayoutSite, ...] = ()
    # {name of a compile option: its values}; empty if options are not in the space.
    option_choices: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    # the matrix product whose tile is searched; None: no tile
    product: Product | None = None
    # True if the program without any layout, option or tile is one of the configurations
    has_unchanged: bool = True
    # for a collection: True to make new configurations by mixing and changing the fastest ones so
    # far, False to draw them at random
    varies_fastest: bool = False

    # Names of the compile options, as records store them; empty for the CPU's compiler.
    option_names: ClassVar[tuple[str, ...]] = ()

    @property
    def kind(self) -> str:
        """Return what differs between the configurations: "layout", "options" or "tile"."""
        if self.option_choices:
            return "options"
        return "layout" if self.product is None else "tile"

    def layouts(self, configs: np.ndarray) -> np.ndarray:
        """Return layouts (n, configurable, 3, 6), minor to major, of configurations (n, sites)."""
        shape = (len(configs), len(self.program.configurable), len(LAYOUT_TENSORS), MAX_RANK)
        found = np.full(shape, LAYOUT_UNSET, np.int8)
        for number, site in enumerate(self.layout_sites):
            first, *tensor = site.index
            for node in (first, *site.copies):
                index: tuple[int | slice, ...] = (slice(None), node, *tensor)
                found[index] = site.values[configs[:, number]]
        return found

    def options(self, config: np.ndarray) -> np.ndarray:
        """Return the index of each option's value (options,) in one configuration (sites,)."""
        if not self.option_choices:
            return np.zeros(len(OPTION_NAMES), np.int8)
        first = len(self.layout_sites)
        return config[first : first + len(self.option_choices)].astype(np.int8)

    def tile(self, config: np.ndarray) -> np.ndarray | None:
        """Return the tile (rows, sums, vectors) of one configuration; None if it has no tile."""
        if self.product is None or not config[-1]:
            return None
        return np.asarray(self.product.tiles[config[-1] - 1])

    def flags(self, config: np.ndarray) -> Flags:
        """Return the compiler's flags for one configuration."""
        flags, tile = self.find_flags(self.options(config)), self.tile(config)
        if tile is None:
            return flags
        of_tile = find_tile_flags(tile)
        return Flags((*of_tile.options, *flags.options), (*of_tile.backend, *flags.backend))

    def prepare(self, config: np.ndarray) -> tuple[bytes, Flags]:
        """Return the serialized module and the flags to compile one configuration (sites,)."""
        return self.write_module(self.layouts(config[None])[0]), self.flags(config)

    def write_module(self, layouts: np.ndarray) -> bytes:
        """Return the serialized module that requests the given layouts (configurable, 3, 6)."""
        if (layouts == LAYOUT_UNSET).all():
            return self.program.plain
        return constrain(self.program.module, self.program.configurable, layouts)

    def find_flags(self, options: np.ndarray) -> Flags:
        """Return the compiler's flags for the indices of the options' values (options,)."""
        return find_flags(options)

    def from_bytes(self, data: bytes) -> np.ndarray:
        """Return the configuration (sites,) that journals store as these bytes; InputError if there
        is none."""
        if len(data) == self.sites * np.dtype(np.int32).itemsize:
            config = np.frombuffer(data, np.int32)
            if ((config >= 0) & (config < self.sizes)).all():
                return config
        raise InputError(
            f"{self.program.name}: its journal has a configuration that the program does not "
            f"have. {ADVICE}"
        )

    def describe(self, configs: np.ndarray) -> np.ndarray:
        """Return features (n, columns), see Space.describe. In a table of tiles they are the
        standardised logarithms of rows, sums and vectors, and a column: 0 with a tile, 2 without.
        """
        if self.product is None or self.members is None:
            return super().describe(configs)
        sizes = np.log(self.product.tiles.astype(np.float64))
        scaled = (sizes - sizes.mean(axis=0)) / np.maximum(sizes.std(axis=0), 1e-9)
        # features of each choice: (0, 0, 0, 2) for no tile, then (scaled sizes, 0) for each tile
        rows = np.concatenate([np.zeros((1, 3)), scaled])
        library = np.zeros((len(rows), 1))
        library[0] = 2.0
        return np.hstack([rows, library])[configs[:, 0]].astype(np.float32)

    def make_run(self, config: np.ndarray, nanoseconds: int) -> Any:
        """Return one configuration and its time as a message Run; `nanoseconds` 0: it failed."""
        is_default = bool((config == self.default).all())
        run = MESSAGES["Run"](is_default=is_default, error=not nanoseconds)
        run.profile.compute_time_ns = nanoseconds
        tile = self.tile(config)
        if tile is not None and self.product is not None:
            self.product.write(tile, run)
            return run
        run.layout.layouts.SetInParent()
        for node in self.layouts(config[None])[0]:
            given = run.layout.layouts.nodes.add()
            for tensor in node if not self.option_choices else ():
                given.tensors.add().dims[:] = tensor[tensor != LAYOUT_UNSET].tolist()
        if self.option_choices:
            run.options.choices[:] = self.options(config).tolist()
        return run


def make_program_space(program: Program, kinds: Sequence[str] = ()) -> ProgramSpace:
    """Return the space of a program's configurations to search, with the `kinds` of sites (see
    KINDS; empty: all that the program has). Raises InputError for a kind that is unknown or that
    the program lacks."""
    check_kinds(kinds)
    wanted = kinds or KINDS
    sites = list_layout_sites(program) if LAYOUTS in wanted else ()
    if LAYOUTS in kinds and not sites:
        raise refuse_layouts(program)
    found = _find_product(program, is_asked=TILES in kinds) if TILES in wanted else None
    if set(kinds) == {TILES} and found is not None:
        return _make_table(program, np.arange(1 + len(found.tiles))[:, None], product=found)
    options = OPTION_CHOICES if OPTIONS in wanted else {}
    first, settings = len(sites), list_settings() if options else []
    sizes = [len(site.values) for site in sites]
    sizes += [len(choices) for choices in options.values()]
    sizes += [1 + len(found.tiles)] if found is not None else []

    def are_legal(configs: np.ndarray) -> np.ndarray:
        if not options or found is None:
            return np.ones(len(configs), bool)
        # a tile and the options OF_PRODUCTS set the same flags, so only one of them may be set
        has_library = configs[:, [first + option for option in OF_PRODUCTS]].any(axis=1)
        return np.asarray(~(has_library & (configs[:, -1] > 0)))

    return ProgramSpace(
        program=program,
        sizes=np.array(sizes),
        default=np.zeros(len(sizes), np.int32),
        links=_link(program, sites),
        are_legal=are_legal,
        settings=tuple(
            tuple((first + option, choice) for option, choice in setting) for setting in settings
        ),
        layout_sites=sites,
        option_choices=options,
        product=found,
    )


def check_kinds(kinds: Sequence[str]) -> None:
    """Raise InputError unless all `kinds` are in KINDS."""
    if unknown := sorted(set(kinds) - set(KINDS)):
        raise InputError(f"--over is {', '.join(unknown)}, expected some of {', '.join(KINDS)}.")


def make_collected_space(
    program: Program, kind: str, *, varies_fastest: bool = False
) -> ProgramSpace:
    """Return the space of a collection, which varies only layouts, only options or only tiles
    (`kind`, see KINDS). Raises InputError if the program has none to vary."""
    if kind == TILES:
        found = find_product(program)
        return _make_table(
            program,
            1 + np.arange(len(found.tiles))[:, None],
            1 + np.flatnonzero((found.tiles == DEFAULT).all(axis=1)),
            product=found,
            has_unchanged=False,
        )
    if kind == OPTIONS:
        return make_option_table(ProgramSpace, program, OPTION_CHOICES)
    return replace(make_program_space(program, (LAYOUTS,)), varies_fastest=varies_fastest)


def refuse_layouts(program: Program) -> InputError:
    """Return the error for a program without layouts to set."""
    return InputError(
        f"{program.name}: expected a convolution, dot or reshape of rank 2 to {MAX_RANK}, "
        f"whose layouts can be set, found none. {CHOOSE}"
    )


def make_option_table(
    make: type[ProgramSpace], program: Program, options: Mapping[str, tuple[str, ...]]
) -> ProgramSpace:
    """Return a space, of the class `make`, of all combinations of options (values by name). Raises
    InputError if the program has no configurable node."""
    if not len(program.configurable):
        raise InputError(
            f"{program.name}: expected a convolution, dot or reshape, without which a program has "
            f"no layout graph, found none. {CHOOSE}"
        )
    grid = np.array(list(product(*(range(len(choices)) for choices in options.values()))))
    return _make_table(program, grid, make=make, option_choices=options)


def list_layout_sites(program: Program) -> tuple[LayoutSite, ...]:
    """Return a site (parameter) for each tensor whose layout may be set."""
    ranks = find_ranks(program.module, program.configurable)
    return tuple(
        LayoutSite((node, tensor), list_orders(int(ranks[node, tensor])))
        for node, tensor in np.argwhere(ranks > 0).tolist()
    )


@cache
def list_orders(rank: int) -> np.ndarray:
    """Return the layouts (choices, 6) that a tensor may have: unset, then every dimension order."""
    orders = [(*order, *[LAYOUT_UNSET] * (MAX_RANK - rank)) for order in permutations(range(rank))]
    return np.array([[LAYOUT_UNSET] * MAX_RANK, *orders], np.int8)


def _make_table(
    program: Program,
    members: np.ndarray,
    default: np.ndarray | None = None,
    make: type[ProgramSpace] = ProgramSpace,
    **more: Any,
) -> ProgramSpace:
    """Return a table: a space whose configurations are `members` (members, sites). `default`:
    (sites,), None: the first member. `more`: other fields of the class `make`."""
    rows = members.astype(np.int32)
    return make(
        program=program,
        sizes=rows.max(axis=0) + 1,
        default=(rows[0] if default is None else default.astype(np.int32)),
        members=rows,
        **more,
    )


def _link(program: Program, sites: Sequence[LayoutSite]) -> np.ndarray:
    nodes = np.array([site.index[0] for site in sites], int)
    return link_sites(program.nodes.edges, len(program.nodes.opcodes), program.configurable, nodes)


def _find_product(program: Program, *, is_asked: bool) -> Product | None:
    """Return the matrix product if the program is a single one; otherwise None or, if `is_asked`,
    raise InputError."""
    try:
        return find_product(program)
    except InputError:
        if is_asked:
            raise
        return None
