"""Incremental inference with the layout net: compute only the nodes that a configuration changes.

The *reference list* is a fixed set of configurations of the graph: the mean and standard deviation
of its sums over nodes, and the frequency of layouts in it, enter every score. *Known*
configurations are the latest few whose node values were all computed and kept. After k rounds of
message passing, a node's value depends on the layouts at most k edges away. So a configuration
close to a known one (a *neighbour*) has different values at few nodes. Only these nodes are
computed: the neighbour's sums over nodes are the known sums plus the changes. A search scores
thousands of such neighbours. All other configurations are computed in full, but features of the
nodes and of the reference list are reused. Scores equal those of layout_forward up to rounding.
"""

import dataclasses
from dataclasses import dataclass

import numpy as np

from solution.domain.codebook import Codebook, encode, share_of_pairs
from solution.domain.graph import Graph
from solution.domain.neighbours import index_ragged, offsets, starts_of
from solution.features.layout.tensors import CONFLICTS, describe_orders
from solution.models.layout.colour_refinement import add_messages
from solution.models.layout.layout_forward import (
    LayoutForward,
    configure,
    describe_pairs,
    receive,
    send,
)
from solution.models.nets.forward import find_scale, put_on_scale

# A configuration is computed in full if its layouts differ from each known configuration's at more
# than this share of the configurable nodes.
NEAR = 0.1
KEPT = 4  # the node values of this many configurations are kept, the latest ones
BATCH = 64  # maximum number of configurations computed together from one known configuration
# more than MANY configurations of a graph with fewer than SMALL nodes are computed in full, because
# they share most node values
SMALL, MANY = 1000, 16


@dataclass(frozen=True)
class Known:
    """A configuration for which all values that the net computes are kept."""

    # (configurable, 18) int8: layout of each configurable node
    layouts: np.ndarray
    # (nodes, len(CONFLICTS)) float32: features of the layout constraints on each node's tensor
    extra: np.ndarray
    # for each round of message passing (3 x nodes, half): the messages that nodes send
    messages: list[np.ndarray]
    # for each round (nodes, outputs): the node values that the round's result is added to
    kept: list[np.ndarray]
    values: np.ndarray  # (nodes, outputs): node values after the last round
    sums: np.ndarray  # (NUM_SHARES * outputs,) float64: weighted sums of `values` over the nodes


@dataclass(frozen=True)
class Touched:
    """The node values of several configurations near a known one, only at those nodes where they
    may differ from the known configuration's values."""

    numbers: np.ndarray  # (touched,) int64, ascending: configuration * nodes of the graph + node
    values: np.ndarray  # (touched, width): value of each node in `numbers`

    def find(self, numbers: np.ndarray, nodes: np.ndarray, size: int) -> np.ndarray:
        """Return for each of `nodes` (n,) the row (n,) of its value in the table that has the known
        values of all `size` nodes, then self.values: for a touched node, a row in self.values.
        `numbers`: (n,) configuration * size + node."""
        if not len(self.numbers):
            return nodes
        found = np.minimum(np.searchsorted(self.numbers, numbers), len(self.numbers) - 1)
        return np.where(self.numbers[found] == numbers, size + found, nodes)


class ListedNet:
    """A scorer of configurations of the graph `listed`, whose configurations are the fixed
    reference list."""

    def __init__(self, net: LayoutForward, listed: Graph) -> None:
        self._net, self._graph = net, listed
        self._arrays = net.describe(listed)
        self._embedded = self._nodes, _ = net.embed(self._arrays)
        sums = net.sum(self._arrays, self._embedded)
        self._scale = find_scale(sums)
        # scores (configs,) of the reference list
        self.listed = self._read_out(sums)[listed.distinct.inverse]
        pairs, share = listed.layouts, share_of_pairs(listed.layouts)
        keys = zip(pairs.node.tolist(), map(bytes, pairs.layouts), strict=True)
        # (configurable node, bytes of its layout) -> share of the reference list with the layout
        self._share = dict(zip(keys, share.tolist(), strict=True))
        # maximum number of layouts that differ from a known configuration's; above it, a
        # configuration is computed in full
        self._limit = max(1, int(NEAR * listed.layouts.codes.shape[1]))
        self._known: list[Known] = []

    def score(self, layouts: np.ndarray) -> np.ndarray:
        """Return scores (k,) float32 of layouts (k, configurable, 18) int8, each as if scored
        together with the reference list only."""
        if len(self._nodes) < SMALL and len(layouts) > MANY:
            return self._read_out(self._sum_anew(layouts))
        nearest = self._find_nearest(layouts)
        far = nearest < 0
        if far.any() and self._get_to_know(layouts[far]):
            nearest = self._find_nearest(layouts)
            far = nearest < 0
        sums = np.empty((len(layouts), len(self._scale[0])), np.float32)
        if far.any():
            sums[far] = self._sum_anew(layouts[far])
        for number, known in enumerate(self._known):
            near = np.flatnonzero(nearest == number)
            for begin in range(0, len(near), BATCH):
                part = near[begin : begin + BATCH]
                sums[part] = self._sum_changes(known, layouts[part])
        return self._read_out(sums)

    def _read_out(self, sums: np.ndarray) -> np.ndarray:
        return self._net.read_out(put_on_scale(sums, *self._scale))

    def _find_nearest(self, layouts: np.ndarray) -> np.ndarray:
        """Return for each configuration the index (k,) of the known configuration that differs at
        the fewest nodes; -1 if all known configurations differ at more than `_limit` nodes."""
        nearest = np.full(len(layouts), -1)
        fewest = np.full(len(layouts), self._limit + 1)
        for number, known in enumerate(self._known):
            changed = (layouts != known.layouts).any(axis=2).sum(axis=1)
            nearest[changed < fewest] = number
            fewest = np.minimum(fewest, changed)
        return nearest

    def _get_to_know(self, far: np.ndarray) -> bool:
        """Make far[0] a known configuration, if it is the only one or close to another of the
        configurations `far` (k, configurable, 18). Return True if so."""
        changed = (far != far[0]).any(axis=2).sum(axis=1)
        is_worth_it = len(far) == 1 or (changed <= self._limit).sum() > 1
        if is_worth_it:
            self._known = [*self._known[-KEPT + 1 :], self._know(far[0])]
        return bool(is_worth_it)

    def _know(self, layouts: np.ndarray) -> Known:
        """Return all node values and messages of a configuration, `layouts` (configurable, 18)."""
        structure, number_of = self._arrays.structure, np.arange(len(self._nodes))
        every = np.ones((1, len(layouts)), bool)
        configured = self._configure(layouts[None], every)
        x = self._nodes.copy()
        x[configured.numbers] = configured.values
        extra = np.zeros((len(x), len(CONFLICTS)), np.float32)
        constrained, found = self._describe_conflicts(layouts[None], every)
        extra[constrained] = found
        rows = add_messages(
            number_of, lambda _, node: node, len(x), structure.operands, structure.consumers
        )
        messages, kept = [], []
        for number in range(self._net.rounds):
            sent, stays = send(self._net.layers, x, number)
            messages.append(sent)
            kept.append(stays)
            x = self._receive(rows.product(sent), extra, stays, number)
        sums = (structure.shares.T.astype(np.float64) @ x).ravel()
        return Known(layouts.copy(), extra, messages, kept, x, sums)

    def _sum_changes(self, known: Known, layouts: np.ndarray) -> np.ndarray:
        """Return sums over nodes (k, values) of layouts (k, configurable, 18) close to a known
        configuration; only nodes that may differ are computed."""
        size = len(self._nodes)
        sums = np.repeat(known.sums[None], len(layouts), axis=0)
        changed = (layouts != known.layouts).any(axis=2)
        if not changed.any():
            return sums
        touched = self._configure(layouts, changed)
        conflicts = self._describe_conflicts(layouts, changed)
        for number in range(self._net.rounds):
            touched = self._convolve(known, touched, conflicts, number)
        # sums of a configuration += sum of shares * (value - known value) over its touched nodes
        config, node = np.divmod(touched.numbers, size)
        change = touched.values.astype(np.float64) - known.values[node]
        weighed = self._arrays.structure.shares[node][:, :, None] * change[:, None, :]
        asked, begins = np.unique(config, return_index=True)
        sums[asked] += np.add.reduceat(weighed.reshape(len(node), -1), begins, axis=0)
        return sums

    def _configure(self, layouts: np.ndarray, changed: np.ndarray) -> Touched:
        """Return the values before the first round of the nodes whose layouts differ from a known
        configuration's. `layouts`: (k, configurable, 18); `changed`: (k, configurable) bool, True
        for these nodes."""
        config, position = np.nonzero(changed)
        node = self._arrays.structure.configurable[position]
        numbers = config * len(self._nodes) + node
        # A codebook needs its (node, layout) pairs sorted by node.
        order = np.argsort(position, kind="stable")
        given, position = layouts[config, position][order], position[order]
        pairs = Codebook(
            layouts=given,
            starts=starts_of(np.bincount(position, minlength=layouts.shape[1])),
            codes=np.zeros((0, layouts.shape[1]), np.uint8),
            rows=np.zeros(0, np.int64),
        )
        values = configure(
            self._net.layers,
            *self._embedded,
            node[order],
            given + np.int8(1),
            self._describe(pairs),
        )
        back = np.argsort(numbers[order])
        return Touched(numbers[order][back], values[back])

    def _describe_conflicts(
        self, layouts: np.ndarray, changed: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the tensors that are constrained by nodes with a changed layout, as numbers (n,)
        configuration * nodes + node; and features (n, len(CONFLICTS)) float32 of all constraints on
        these tensors. Arguments: as in _configure."""
        ordered = self._arrays.ordered
        if not len(ordered.nodes):
            return np.empty(0, np.int64), np.empty((0, len(CONFLICTS)), np.float32)
        reordered = np.maximum.reduceat(
            changed[:, ordered.configurable], ordered.starts[:-1], axis=1
        )
        config, tensor = np.nonzero(reordered)
        counts = np.diff(ordered.starts)[tensor]
        rows, inside = index_ragged(counts)
        which = ordered.starts[tensor[rows]] + inside
        given = layouts[config[rows], ordered.configurable[which]]
        found = describe_orders(*ordered.number(which, given), offsets(counts))
        return config * len(self._nodes) + ordered.nodes[tensor], found.astype(np.float32)

    def _convolve(
        self, known: Known, touched: Touched, conflicts: tuple[np.ndarray, np.ndarray], number: int
    ) -> Touched:
        """Return the nodes whose values after round `number` may differ from the values in the
        configuration `known`, with their new values. `touched`: such nodes before the round;
        `conflicts`: the result of _describe_conflicts."""
        structure, size = self._arrays.structure, len(self._nodes)
        both = structure.operands, structure.consumers
        # Recompute the touched nodes, their operands and consumers, and the nodes whose tensor's
        # constraints changed; `numbers` lists them.
        config, node = np.divmod(touched.numbers, size)
        reached = [touched.numbers, conflicts[0]]
        for neighbours in both:
            row, other = neighbours.spread(node)
            reached.append(config[row] * size + other)
        numbers = np.unique(np.concatenate(reached))
        config, node = np.divmod(numbers, size)

        def find(row: np.ndarray, others: np.ndarray) -> np.ndarray:
            return touched.find(config[row] * size + others, others, size)

        messages, kept = send(self._net.layers, touched.values, number)
        rows = add_messages(node, find, size + len(touched.numbers), *both)
        sums = rows.product(np.concatenate([known.messages[number], messages]))
        extra = known.extra[node]
        extra[np.searchsorted(numbers, conflicts[0])] = conflicts[1]
        before = np.concatenate([known.kept[number], kept])[touched.find(numbers, node, size)]
        return Touched(numbers, self._receive(sums, extra, before, number))

    def _receive(
        self, sums: np.ndarray, extra: np.ndarray, kept: np.ndarray, number: int
    ) -> np.ndarray:
        marked = np.flatnonzero(extra.any(axis=1))
        return receive(self._net.layers, sums, marked, extra[marked], kept, number)

    def _sum_anew(self, layouts: np.ndarray) -> np.ndarray:
        """Return sums over nodes (k, values) of k configurations, computed in full."""
        pairs = encode(layouts)
        arrays = dataclasses.replace(
            self._arrays,
            pair_tokens=pairs.layouts + np.int8(1),
            pair_features=self._describe(pairs),
            structure=dataclasses.replace(
                self._arrays.structure,
                codebook=pairs,
                constraints=self._arrays.ordered.under(pairs),
            ),
        )
        return self._net.sum(arrays, self._embedded)[pairs.rows]

    def _describe(self, pairs: Codebook) -> np.ndarray:
        """Return features of (node, layout) pairs, with their frequencies in the reference list."""
        keys = zip(pairs.node.tolist(), map(bytes, pairs.layouts), strict=True)
        share = np.array([self._share.get(key, 0.0) for key in keys])
        return describe_pairs(self._graph, pairs, share)
