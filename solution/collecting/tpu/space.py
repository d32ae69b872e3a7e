"""The configurations of a program for a TPU: layouts, drawn as TpuGraphs draws them, or options.

A site is a parameter of a configuration: the layouts of a configurable node (convolution, dot or
reshape), or an option of the compiler. A choice is the index of a site's value; choice 0 sets
nothing. If a layer repeats (solution.collecting.tpu.repeats), a search makes one choice for all
copies of a node; a collection chooses for each node alone.

In TpuGraphs' data, the two most minor dimensions of a convolution's output are feature and batch,
in either order; those of a dot's output are the last dimension of each factor. A reshape's two
layouts fit each other, so that no data move: dimensions that are split or merged stay together. Any
other layout becomes a copy behind the instruction.

Whether the compiler uses a requested layout depends on the program: it may keep the layout that it
prefers and copy the result. So the first two configurations after the default request the first and
the second choice of every node, and choices that the compiler often ignored are not requested
again.

The options are the ones that people tune by hand and whose effect shows in estimates.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import prod
from typing import Any, ClassVar

import numpy as np

from solution.collecting.constraints import INPUT, OUTPUT
from solution.collecting.program_space import (
    LAYOUTS,
    OPTIONS,
    LayoutSite,
    ProgramSpace,
    make_option_table,
    refuse_layouts,
)
from solution.collecting.space import link_sites
from solution.collecting.tpu.asking import RequestWriter, find_asked_ranks
from solution.collecting.tpu.devices import find_optimised
from solution.collecting.tpu.reading import open_tuple, spell
from solution.collecting.tpu.repeats import group_copies
from solution.domain.vocabulary import (
    LAYOUT_TENSORS,
    LAYOUT_UNSET,
    MAX_RANK,
    TPU_OPTION_CHOICES,
)
from solution.features.candidates import CHANGES, draw_sites
from solution.programs.arguments import find_entry
from solution.programs.compiler import Flags
from solution.programs.hlo.messages import instructions
from solution.programs.obstacles import DUMP
from solution.programs.portable import OPAQUE, TOKEN
from solution.programs.program import Program
from solution.system.errors import InputError

PROBES = 2  # number of configurations that test which layouts the compiler uses
ALIKE = 0.5  # share of random configurations with the same choice for all nodes of an opcode
NAMES = {  # {name of an option in this project: its name in the compiler}
    "tpu_scoped_vmem_kib": "xla_tpu_scoped_vmem_limit_kib",
    "tpu_dot_dot_fusion": "xla_tpu_dot_dot_fusion",
    "tpu_dot_dot_fusion_duplicated": "xla_tpu_dot_dot_fusion_duplicated",
    "tpu_fusion_cost_model": "xla_tpu_enable_experimental_fusion_cost_model",
    "tpu_order_dot_after_layout": "xla_tpu_order_dot_after_layout",
    "tpu_dot_strength_reduction": "xla_tpu_enable_dot_strength_reduction",
    "tpu_broadcast_priority": "xla_tpu_enable_aggressive_broadcast_priority_update",
}
# The order in which a search tries the options and their values: first those with the smallest
# estimates on 13 programs (docs/collecting.md).
IN_TURN = {
    "tpu_order_dot_after_layout": ("off",),
    "tpu_fusion_cost_model": ("on",),
    "tpu_broadcast_priority": ("on",),
    "tpu_dot_strength_reduction": ("off",),
    "tpu_scoped_vmem_kib": (
        "65536", "8192", "98304", "49152", "24576", "32768", "81920", "12288",
    ),
    "tpu_dot_dot_fusion": ("off",),
    "tpu_dot_dot_fusion_duplicated": ("on",),
}  # fmt: skip


@dataclass(frozen=True, eq=False, kw_only=True)
class TpuSpace(ProgramSpace):
    """The configurations of a program for a TPU: one site per configurable node and per option."""

    # for each site: the opcode of its configurable node, or the name of its option; empty if the
    # space is a table of options (make_option_table)
    opcodes: tuple[str, ...] = ()
    # for each site: the choices to draw from, without 0, which sets nothing; `learn` leaves out
    # those that the compiler often ignores
    offered: list[np.ndarray] = field(default_factory=list)

    option_names: ClassVar[tuple[str, ...]] = tuple(TPU_OPTION_CHOICES)

    def learn(self, untaken: Set[tuple[int, int]]) -> None:
        """Offer all choices except `untaken`: pairs (site, choice) that the compiler often
        ignored."""
        self.offered[:] = [
            np.array([c for c in range(1, size) if (site, c) not in untaken], np.int32)
            for site, size in enumerate(self.sizes.tolist())
        ]

    def probe(self, number: int) -> np.ndarray:
        """Return the configuration (sites,) in which each site makes the choice `number` + 1. A
        site with fewer choices starts again with choice 1."""
        counts = self.sizes - 1
        return np.where(counts > 0, 1 + number % np.maximum(counts, 1), 0).astype(np.int32)

    def list_choices(self, config: np.ndarray) -> list[tuple[int, int]]:
        """Return the pairs (site, choice) of a configuration; pairs with choice 0, which sets
        nothing, are left out."""
        return [(site, choice) for site, choice in enumerate(config.tolist()) if choice]

    def draw(self, generator: np.random.Generator, count: int) -> np.ndarray:
        """Return `count` random configurations (count, sites). In half of the configurations, all
        nodes of an opcode make the same choice."""
        if self.members is not None:
            return super().draw(generator, count)
        drawn = [self._draw_one(generator) for _ in range(count if len(self._open) else 0)]
        return np.array(drawn, np.int32).reshape(-1, self.sites)

    def breed(self, generator: np.random.Generator, count: int, parents: np.ndarray) -> np.ndarray:
        """Return `count` configurations (count, sites) that mix two of `parents` site by site. At a
        few sites, the configuration gets a random choice, or 0, instead of a parent's choice."""
        bred = [self._breed_one(generator, parents) for _ in range(count if len(self._open) else 0)]
        return np.array(bred, np.int32).reshape(-1, self.sites)

    def write_module(self, layouts: np.ndarray) -> bytes:
        """Return the serialized module that requests the layouts (configurable, 3, 6) of a
        configuration."""
        if (layouts == LAYOUT_UNSET).all():
            return self.unasked
        return self._writer.write(layouts)

    @cached_property
    def unasked(self) -> bytes:
        """Return the serialized module that requests no layouts."""
        shape = (len(self.program.configurable), len(LAYOUT_TENSORS), MAX_RANK)
        return self._writer.write(np.full(shape, LAYOUT_UNSET, np.int8))

    @cached_property
    def _writer(self) -> RequestWriter:
        return RequestWriter(self.program.module, self.program.configurable)

    def find_flags(self, options: np.ndarray) -> Flags:
        """Return the compiler's flags for the choices of options (options,). Return no flags if the
        space has no options."""
        return find_tpu_flags(options) if self.option_choices else Flags()

    def describe_copies(self) -> str:
        """Say in a sentence which layouts are decided once for all copies of a layer; return "" if
        no layer repeats."""
        tied = [site for site in self.layout_sites if site.copies and len(site.values) > 1]
        if not tied:
            return ""
        copies = [1 + len(site.copies) for site in tied]
        least = f"{min(copies)} to " if min(copies) < max(copies) else ""
        return (
            f"{least}{max(copies)} copies of a layer: {len(tied)} layouts are decided once for all "
            f"copies (of {sum(copies)})."
        )

    @property
    def _open(self) -> np.ndarray:
        """Return the sites with at least one offered choice, see `offered`."""
        return np.array(
            [site for site, choices in enumerate(self.offered) if len(choices)], np.int64
        )

    def _draw_one(self, generator: np.random.Generator) -> np.ndarray:
        chosen = self._open[draw_sites(generator, len(self._open))]
        is_alike = generator.random() < ALIKE
        common = {opcode: int(generator.integers(2**31)) for opcode in sorted(set(self.opcodes))}
        config = self.default.copy()
        for site in chosen:
            number = common[self.opcodes[site]] if is_alike else int(generator.integers(2**31))
            config[site] = self._offer(site, number)
        return config

    def _breed_one(self, generator: np.random.Generator, parents: np.ndarray) -> np.ndarray:
        sites = self._open
        first, second = (parents[generator.integers(len(parents))] for _ in range(2))
        config = np.where(generator.random(self.sites) < 0.5, first, second)
        for site in sites[draw_sites(generator, len(sites), CHANGES)]:
            config[site] = self._offer(site, int(generator.integers(2**31)))
            if generator.random() < 0.25:
                config[site] = 0
        return config

    def _offer(self, site: int, number: int) -> int:
        """Return the site's offered choice at position `number` modulo their number."""
        return int(self.offered[site][number % len(self.offered[site])])


def make_tpu_space(program: Program, kind: str, *, varies_fastest: bool = False) -> TpuSpace:
    """Return the space of a program's layouts, or of the compiler's options, as `kind` says.

    `varies_fastest`: while layouts are collected, new configurations mix and change the fastest
    ones so far instead of being random. Raises InputError if the program has nothing to set of this
    kind, was optimised already, or returns no elements.
    """
    _check_program(program)
    if kind == OPTIONS:
        found = make_option_table(TpuSpace, program, TPU_OPTION_CHOICES)
        assert isinstance(found, TpuSpace)
        return found
    return _make_free_space(program, _list_sites(program), {}, varies_fastest=varies_fastest)


def make_search_space(
    program: Program, kinds: Sequence[str] = (), *, each_copy: bool = False
) -> TpuSpace:
    """Return the space of a search: a program's layouts, the compiler's options, or both together.

    Args:
        kinds: LAYOUTS, OPTIONS or both; empty: both, or the options alone if the program has no
            layouts to set.
        each_copy: decide the layouts of each copy of a repeated layer alone, not once for all.

    Raises InputError if layouts are wanted and the program has none to set, if the program was
    optimised already, or if it returns no elements.
    """
    _check_program(program)
    has_layouts = bool((find_asked_ranks(program.module, program.configurable) > 0).any())
    wanted = kinds or ((LAYOUTS, OPTIONS) if has_layouts else (OPTIONS,))
    sites = _list_sites(program) if LAYOUTS in wanted else ()
    if not each_copy:
        sites = _tie_copies(program, sites)
    return _make_free_space(program, sites, TPU_OPTION_CHOICES if OPTIONS in wanted else {})


def _list_sites(program: Program) -> tuple[LayoutSite, ...]:
    """Return a site for each configurable node; raise InputError if no layout can be set."""
    ranks = find_asked_ranks(program.module, program.configurable)
    if not (ranks > 0).any():
        raise refuse_layouts(program)
    nodes = list(instructions(program.module))
    shapes = {node.id: list(node.shape.dimensions) for node in nodes}
    return tuple(
        LayoutSite((site,), _list_choices(nodes[node], shapes, wanted))
        for site, (node, wanted) in enumerate(zip(program.configurable, ranks, strict=True))
    )


def _tie_copies(program: Program, sites: tuple[LayoutSite, ...]) -> tuple[LayoutSite, ...]:
    """Return the sites after merging: the copies of a node in a repeated layer become one site, at
    the first copy. Copies that differ in the list of possible choices are not merged."""
    nodes = list(instructions(program.module))
    numbers = {nodes[node].id: site for site, node in enumerate(program.configurable[: len(sites)])}
    found: dict[tuple[int, bytes], list[LayoutSite]] = defaultdict(list)
    for site, group in zip(sites, group_copies(program.module, numbers).tolist(), strict=True):
        found[group, site.values.tobytes()].append(site)
    return tuple(
        replace(first, copies=tuple(site.index[0] for site in others))
        for first, *others in found.values()
    )


def _make_free_space(
    program: Program,
    sites: tuple[LayoutSite, ...],
    options: Mapping[str, tuple[str, ...]],
    *,
    varies_fastest: bool = False,
) -> TpuSpace:
    """Return the space of all combinations of layouts at these sites and values of these options.

    Its `settings` hold the option values in IN_TURN: a search tries each of them alone before it
    combines them. `varies_fastest`: see make_tpu_space.
    """
    nodes = list(instructions(program.module))
    opcodes = tuple(nodes[program.configurable[site.index[0]]].opcode for site in sites)
    sizes = [len(site.values) for site in sites] + [len(values) for values in options.values()]
    space = TpuSpace(
        program=program,
        sizes=np.array(sizes),
        default=np.zeros(len(sizes), np.int32),
        links=_link(program, sites),
        settings=tuple(
            ((len(sites) + list(options).index(name), options[name].index(value)),)
            for name, values in IN_TURN.items()
            for value in values
            if value in options.get(name, ())
        ),
        layout_sites=sites,
        option_choices=options,
        varies_fastest=varies_fastest,
        opcodes=(*opcodes, *options),
    )
    space.learn(set())
    return space


def _link(program: Program, sites: tuple[LayoutSite, ...]) -> np.ndarray:
    """Return pairs (links, 2) of sites with neighbouring nodes; a site stands for all copies of its
    node."""
    nodes = program.nodes
    owner = np.full(len(program.configurable), -1)  # the site of each configurable node
    for number, site in enumerate(sites):
        owner[[site.index[0], *site.copies]] = number
    with_sites = np.flatnonzero(owner >= 0)
    found = link_sites(nodes.edges, len(nodes.opcodes), program.configurable, with_sites)
    links = owner[with_sites[found]]
    return np.unique(links[links[:, 0] != links[:, 1]], axis=0)


def _check_program(program: Program) -> None:
    """Raise InputError if the program was optimised already, or has an empty result."""
    if sign := find_optimised(program.module):
        raise InputError(
            f"{program.name}: expected a program as it is before optimisation, found one that was "
            f"optimised for a backend already ({sign}). {DUMP}"
        )
    entry = find_entry(program.module)
    (root,) = (i for i in entry.instructions if i.id == entry.root_id)
    arrays = [s for s in open_tuple(root.shape) if s.element_type not in (OPAQUE, TOKEN)]
    if arrays and not any(prod(shape.dimensions) for shape in arrays):
        found = spell(arrays[0]).partition("{")[0]
        raise InputError(
            f"{program.name}: expected a result with elements, found an empty one ({found}), for "
            "which nothing is computed. Give the program inputs that are not empty."
        )


def find_tpu_flags(options: np.ndarray) -> Flags:
    """Return the compiler's flags for `options` (options,), which are positions among the values in
    TPU_OPTION_CHOICES. Position 0 sets no flag."""
    told: list[tuple[str, bool | int | str]] = []
    for (name, choices), value in zip(TPU_OPTION_CHOICES.items(), options.tolist(), strict=True):
        if value:
            told.append((NAMES[name], read_choice(choices[value])))
    return Flags(tuple(told))


def read_choice(choice: str) -> bool | int | str:
    """Return an option's choice as the compiler's value. `on` becomes True, `off` False, digits an
    integer; other words stay unchanged."""
    if choice in ("on", "off"):
        return choice == "on"
    return int(choice) if choice.isdigit() else choice


def _list_choices(node: Any, shapes: dict[int, list[int]], ranks: np.ndarray) -> np.ndarray:
    """Return the distinct choices (choices, 3, 6) of layouts of a configurable node. The first one
    sets nothing (-1 everywhere). A layout is minor to major. `shapes`: sizes by instruction id;
    `ranks` (3,): ranks of output and operands, 0 where no layout can be requested."""
    layouts: list[dict[int, list[int]]] = []
    if node.opcode == "reshape":
        layouts = _list_of_reshape(shapes[node.operand_ids[0]], list(node.shape.dimensions))
    elif ranks[OUTPUT]:
        minor = _find_minor(node, shapes)
        layouts = [{OUTPUT: minor}, {OUTPUT: minor[::-1]}]
    rows = [np.full((len(ranks), MAX_RANK), LAYOUT_UNSET, np.int8)]
    for orders in layouts:
        row = np.full((len(ranks), MAX_RANK), LAYOUT_UNSET, np.int8)
        for tensor, order in orders.items():
            if ranks[tensor]:
                row[tensor, : len(order)] = order
        rows.append(row)
    distinct = [row for n, row in enumerate(rows) if not any((row == o).all() for o in rows[:n])]
    return np.array(distinct, np.int8)


def _find_minor(node: Any, shapes: dict[int, list[int]]) -> list[int]:
    """Return the two most minor dimensions of a convolution's or dot's output in TpuGraphs."""
    if node.opcode == "convolution":
        numbers = node.convolution
        return [numbers.output_feature_dimension, numbers.output_batch_dimension]
    # A dot's output has the batch dimensions, then the left factor's, then the right factor's.
    batch, rank = len(node.dot.lhs_batch_dimensions), len(node.shape.dimensions)
    left, right = (len(shapes[operand]) - batch for operand in node.operand_ids)
    rows = left - len(node.dot.lhs_contracting_dimensions)
    columns = right - len(node.dot.rhs_contracting_dimensions)
    return [rank - 1, batch + rows - 1] if rows and columns else [rank - 1, rank - 2]


def _list_of_reshape(source: list[int], target: list[int]) -> list[dict[int, list[int]]]:
    """Return two pairs of layouts (of output and operand) under which a reshape moves no data.

    The first pair is row-major. In the second, the most major group of dimensions that are split or
    merged together becomes the most minor one.
    """
    groups = split_into_groups(source, target)
    found = []
    for order in (groups, [*groups[1:], *groups[:1]]):
        major_first = ([axis for group in order for axis in group[side]] for side in (1, 0))
        found.append(
            {tensor: axes[::-1] for tensor, axes in zip((OUTPUT, INPUT), major_first, strict=True)}
        )
    return found


def split_into_groups(source: list[int], target: list[int]) -> list[tuple[list[int], list[int]]]:
    """Return groups of dimensions of a reshape's operand and result that hold the same elements.

    Each group is a pair: dimensions of the operand, dimensions of the result. Groups are as small
    as possible and in the order of the dimensions; a dimension of size 1 belongs to the group
    before it.
    """
    groups: list[tuple[list[int], list[int]]] = []
    left = right = 0
    while left < len(source) or right < len(target):
        group: tuple[list[int], list[int]] = ([], [])
        sizes = [1, 1]
        while not group[0] or not group[1] or sizes[0] != sizes[1]:
            if left < len(source) and (sizes[0] <= sizes[1] or right == len(target)):
                group[0].append(left)
                sizes[0] *= source[left]
                left += 1
            elif right < len(target):
                group[1].append(right)
                sizes[1] *= target[right]
                right += 1
            else:
                break
        is_whole = sizes[0] == sizes[1] and group[0] and group[1]
        if is_whole or not groups:
            groups.append(group)
        else:
            groups[-1][0].extend(group[0])
            groups[-1][1].extend(group[1])
        while left < len(source) and source[left] == 1:
            groups[-1][0].append(left)
            left += 1
        while right < len(target) and target[right] == 1:
            groups[-1][1].append(right)
            right += 1
    return groups
