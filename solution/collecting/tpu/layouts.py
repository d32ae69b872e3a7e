"""The layouts that a configuration may ask a TPU's compiler for, drawn as TpuGraphs draws them.

In TpuGraphs' data a convolution's output has its feature and batch dimension as the two most minor
ones, in either order; a dot's has the last dimension of each factor. A reshape's two layouts fit
each other, so that no data move: dimensions that are split or merged stay together. Anything else
becomes a copy behind the instruction.

Which of these the compiler takes depends on the program: it may keep the order that it prefers and
copy behind it. So the first two configurations ask for the first and for the second choice
everywhere, and what the compiler mostly did not take so far is not asked for again.
"""

from typing import Any

import numpy as np

from solution.collecting.constraints import INPUT, OUTPUT
from solution.collecting.spaces import LayoutSpace
from solution.collecting.tpu.asking import ask, find_asked_ranks
from solution.domain.vocabulary import LAYOUT_UNSET, MAX_RANK
from solution.features.candidates import CHANGES, SHARES
from solution.programs.compiler import Flags
from solution.programs.hlo.messages import instructions
from solution.programs.program import Program

PROBES = 2  # configurations that probe which layouts the compiler takes
ALIKE = 0.5  # share of random configurations with one choice for all nodes of an opcode


class TpuLayoutSpace(LayoutSpace):
    """Layouts of outputs, and of reshapes' operands: values (configurable, 3, 6)."""

    def __init__(self, program: Program, search: str) -> None:
        super().__init__(program, search, find_asked_ranks(program.module, program.configurable))
        nodes = list(instructions(program.module))
        shapes = {node.id: list(node.shape.dimensions) for node in nodes}
        self._opcodes = [nodes[place].opcode for place in program.configurable]
        self.choices = [
            _list_choices(nodes[place], shapes, ranks)
            for place, ranks in zip(program.configurable, self._ranks, strict=True)
        ]
        self._set_offered([np.arange(len(own)) for own in self.choices])

    def learn(self, untaken: set[tuple[int, int]]) -> None:
        """Stop drawing choices that the compiler does not take: (configurable, choice) of each."""
        self._set_offered(
            [
                np.array([c for c in range(len(own)) if (place, c) not in untaken], np.int64)
                for place, own in enumerate(self.choices)
            ]
        )

    def probe(self, number: int) -> np.ndarray:
        """Return the configuration that requests the choice with this number everywhere."""
        values = self.default.copy()
        for place, own in enumerate(self.choices):
            if len(own):
                values[place] = own[number % len(own)]
        return values

    def list_choices(self, values: np.ndarray) -> list[tuple[int, int]]:
        """Return the choices of a configuration: (configurable, choice) of each node that it
        sets."""
        return [
            (place, number)
            for place, choices in enumerate(self.choices)
            for number, own in enumerate(choices)
            if (own == values[place]).all()
        ]

    def draw(
        self, generator: np.random.Generator, count: int, parents: list[np.ndarray]
    ) -> list[np.ndarray]:
        """Draw random choices; or, to search around the default, mutate parents."""
        if not len(self._sites):
            return []
        if self._search == "random":
            return [self._draw_choices(generator) for _ in range(count)]
        own = parents or [self.default]
        return [self._mutate_choices(generator, own) for _ in range(count)]

    def prepare(self, values: np.ndarray) -> tuple[bytes, Flags]:
        """Return the module that requests the layouts, and no flags."""
        return ask(self._program.module, self._program.configurable, values), Flags()

    def _set_offered(self, offered: list[np.ndarray]) -> None:
        self._offered = offered
        self._sites = np.array([place for place, own in enumerate(offered) if len(own)], np.int64)

    def _draw_choices(self, generator: np.random.Generator) -> np.ndarray:
        share = np.exp(generator.uniform(*np.log(SHARES)))
        chosen = self._sites[generator.random(len(self._sites)) < share]
        if not len(chosen):
            chosen = self._sites[generator.integers(len(self._sites), size=1)]
        is_alike = generator.random() < ALIKE
        common = {opcode: int(generator.integers(2**31)) for opcode in sorted(set(self._opcodes))}
        values = self.default.copy()
        for place in chosen:
            own = common[self._opcodes[place]] if is_alike else int(generator.integers(2**31))
            self._choose(values, place, own)
        return values

    def _mutate_choices(
        self, generator: np.random.Generator, parents: list[np.ndarray]
    ) -> np.ndarray:
        """Mix the choices of two parents, then redraw or unset some."""
        first, second = (parents[generator.integers(len(parents))] for _ in range(2))
        is_first = generator.random(len(first)) < 0.5
        values = np.where(is_first[:, None, None], first, second)
        count = min(len(self._sites), int(generator.integers(1, CHANGES + 1)))
        for place in generator.choice(self._sites, count, replace=False):
            self._choose(values, place, int(generator.integers(2**31)))
            if generator.random() < 0.25:
                values[place] = LAYOUT_UNSET
        return values

    def _choose(self, values: np.ndarray, place: int, number: int) -> None:
        offered = self._offered[place]
        values[place] = self.choices[place][offered[number % len(offered)]]


def _list_choices(node: Any, shapes: dict[int, list[int]], ranks: np.ndarray) -> np.ndarray:
    """Return the choices (choices, 3, 6) of a configurable node; none if nothing may be set."""
    layouts: list[dict[int, list[int]]] = []
    if node.opcode == "reshape":
        layouts = _list_of_reshape(shapes[node.operand_ids[0]], list(node.shape.dimensions))
    elif ranks[OUTPUT]:
        minor = _find_minor(node, shapes)
        layouts = [{OUTPUT: minor}, {OUTPUT: minor[::-1]}]
    rows = []
    for own in layouts:
        row = np.full((len(ranks), MAX_RANK), LAYOUT_UNSET, np.int8)
        for tensor, order in own.items():
            if ranks[tensor]:
                row[tensor, : len(order)] = order
        rows.append(row)
    kept = [row for row in rows if (row != LAYOUT_UNSET).any()]
    distinct = [row for n, row in enumerate(kept) if not any((row == o).all() for o in kept[:n])]
    return np.array(distinct, np.int8).reshape(-1, len(ranks), MAX_RANK)


def _find_minor(node: Any, shapes: dict[int, list[int]]) -> list[int]:
    """Return the two dimensions of a product's output that may be the most minor ones."""
    if node.opcode == "convolution":
        numbers = node.convolution
        return [numbers.output_feature_dimension, numbers.output_batch_dimension]
    # The output's dimensions: batch, then the left factor's, then the right factor's.
    batch, rank = len(node.dot.lhs_batch_dimensions), len(node.shape.dimensions)
    left, right = (len(shapes[operand]) - batch for operand in node.operand_ids)
    rows = left - len(node.dot.lhs_contracting_dimensions)
    columns = right - len(node.dot.rhs_contracting_dimensions)
    return [rank - 1, batch + rows - 1] if rows and columns else [rank - 1, rank - 2]


def _list_of_reshape(source: list[int], target: list[int]) -> list[dict[int, list[int]]]:
    """Return two pairs of layouts under which a reshape moves no data, row-major first.

    In the other pair the most major group of dimensions is the most minor one.
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
    """Return the dimensions of a reshape's operand and result that hold the same elements.

    Groups are as small as can be, in the order of the dimensions; a dimension of size 1 belongs to
    the group before it.
    """
    groups: list[tuple[list[int], list[int]]] = []
    left = right = 0
    while left < len(source) or right < len(target):
        own: tuple[list[int], list[int]] = ([], [])
        sizes = [1, 1]
        while not own[0] or not own[1] or sizes[0] != sizes[1]:
            if left < len(source) and (sizes[0] <= sizes[1] or right == len(target)):
                own[0].append(left)
                sizes[0] *= source[left]
                left += 1
            elif right < len(target):
                own[1].append(right)
                sizes[1] *= target[right]
                right += 1
            else:
                break
        is_whole = sizes[0] == sizes[1] and own[0] and own[1]
        if is_whole or not groups:
            groups.append(own)
        else:
            groups[-1][0].extend(own[0])
            groups[-1][1].extend(own[1])
        while left < len(source) and source[left] == 1:
            groups[-1][0].append(left)
            left += 1
        while right < len(target) and target[right] == 1:
            groups[-1][1].append(right)
            right += 1
    return groups
