"""Explain a prediction of a ranker whose score is a sum of costs of copies and layouts.

A state is the layouts of one instruction, or the copy of a tensor for one of its readers. A score
is the sum of the costs of the states of a program's instructions and copies
(solution.models.base.CostRanker). So two configurations differ by the instructions and copies whose
states differ, and by nothing else. If the program was measured, the costs are also given in percent
of the runtime, by a line fitted from scores to log runtimes of this program.

On a TPU, a layout is named with the bytes that the tensor has with padding to register tiles.
"""

from dataclasses import dataclass

import numpy as np
from rich.filesize import decimal
from rich.table import Table
from rich.text import Text

from solution.analysis.explanation import NAMED, READABLE, SHOWN, Comparison, compare
from solution.analysis.graph_picture import describe_node
from solution.domain.graph import Graph
from solution.features.operations import num_bytes, tensor_ranks
from solution.features.propagation.backend import BACKENDS
from solution.features.propagation.state_table import FEATURES, StateTable, state_tables
from solution.features.propagation.states import COPY, FIRST, MADE, SECOND, list_dimensions
from solution.models.base import CostRanker
from solution.system.terminal import make_table

RESULT = "the program's result"
NAMES = [feature.name for feature in FEATURES]
RUN = NAMES.index("state_run")
# by column of the state features: words for how an instruction is computed
BY_LIBRARY = {
    NAMES.index("state_in_reduction"): "at once with a reduction",
    NAMES.index("state_in_pooling"): "at once with a pooling",
    NAMES.index("state_split"): "in two steps",
    NAMES.index("state_slow_product"): "without the library",
}


@dataclass(frozen=True)
class Costs(Comparison):
    """Two configurations, and the cost difference of each part in which they differ. A part is an
    instruction or a copy of a tensor. The largest absolute difference comes first."""

    names: list[str]  # (parts,) name of the tensor that each part computes or copies
    slow_states: list[str]  # (parts,) each part's layouts or copy in configuration `slow`, in words
    fast_states: list[str]
    # (parts,) cost in `slow` minus cost in `fast`, in units of the score
    added: np.ndarray
    # (parts,) `added` as a fraction of the runtime; None if the program was not measured, or if the
    # line fitted from scores to log runtimes does not rise
    shares: np.ndarray | None
    is_padded: bool  # True if the compiler pads tensors to the register tiles of a TPU


def explain_costs(ranker: CostRanker, graph: Graph, config: int | None = None) -> Costs:
    """Return the costs that distinguish `config` (default: predicted slowest) from the fastest.
    Raises InputError if `config` does not exist, or all configurations have the same score."""
    compared = compare(ranker, graph, config)
    table = state_tables(ranker.backend)(graph)
    slow, fast = table.numbers[graph.distinct.inverse[[compared.slow, compared.fast]]]
    costs = ranker.list_costs(graph)
    added = costs[slow] - costs[fast]
    differs = np.flatnonzero(slow != fast)
    order = differs[np.argsort(-np.abs(added[differs]), kind="stable")]
    words = _Words(graph, table)
    return Costs(
        **vars(compared),
        names=[words.name(int(slow[part]), part >= table.instructions) for part in order],
        slow_states=[words.describe(int(slow[p]), p >= table.instructions) for p in order],
        fast_states=[words.describe(int(fast[p]), p >= table.instructions) for p in order],
        added=added[order],
        shares=_share_of_runtime(graph, compared.scores, added[order]),
        is_padded=BACKENDS[ranker.backend].device_layouts,
    )


def _share_of_runtime(graph: Graph, scores: np.ndarray, added: np.ndarray) -> np.ndarray | None:
    """Return costs as fractions (parts,) of the runtime: exp(rise * added) - 1.

    `rise` is the slope of a line that is fitted from scores to log runtimes. The result is None if
    the graph has no runtimes, or the line does not rise.

    Args:
        scores: (configs,) scores of all configurations.
        added: (parts,) differences of costs, in units of the score.
    """
    if graph.runtimes is None or np.ptp(scores) == 0:
        return None
    rise = float(np.polyfit(scores.astype(np.float64), np.log(graph.runtimes), 1)[0])
    return np.expm1(rise * added) if rise > 0 else None


@dataclass(frozen=True)
class _Words:
    graph: Graph
    table: StateTable

    def name(self, number: int, is_copy: bool) -> str:
        """Return the name of the instruction with the state `number`, such as `dot 4 64x128 (32
        kB)`. With `is_copy` it is a tensor that is copied for a reader: `..., for add 7`."""
        node, reader = int(self.table.node[number]), int(self.table.reader[number])
        if node == self.graph.num_nodes:
            return RESULT
        opcode, _, shape = describe_node(self.graph, node).partition(" ")
        tensor = f"{opcode} {node} {shape} ({decimal(int(num_bytes(self.graph)[node]))})"
        if not is_copy:
            return tensor
        if reader == node:
            return f"{tensor}, as asked of it"
        if reader == self.graph.num_nodes:
            return f"{tensor}, for {RESULT}"
        return f"{tensor}, for {describe_node(self.graph, reader).partition(' ')[0]} {reader}"

    def describe(self, number: int, is_copy: bool) -> str:
        """Return the state `number` in words: layouts (minor to major) and loops of an instruction.
        With `is_copy`, the words are the layouts between which a tensor is copied."""
        made, first, second = (
            self._name_layout(number, column) for column in (MADE, FIRST, SECOND)
        )
        copies = bool(self.table.layouts[number, COPY])
        if is_copy:
            return f"copied from {made} to {first}" if copies else "read as it is"
        read = " and ".join(layout for layout in (first, second) if layout)
        words = [f"makes {made}" if made else "", f"reads {read}" if read else ""]
        if self.table.short_loops[number] > 0:
            words.append(f"in loops of {2 ** self.table.features[number, RUN]:.0f}")
        words += [
            text for column, text in BY_LIBRARY.items() if self.table.features[number, column]
        ]
        return (
            ", ".join([word for word in words if word] + ["moves all"] * copies)
            or "left to the compiler"
        )

    def _name_layout(self, number: int, column: int) -> str:
        """Return a tensor's layout in the state `number`, and its bytes if they include padding; ""
        if it has no layout. `column`: MADE (the output), FIRST or SECOND (a tensor it reads)."""
        layout = self.table.layouts[number, [column]]
        tensor = int(self.table.tensors[number, column])
        if layout[0] < 0 or tensor == self.graph.num_nodes:
            return ""
        dimensions = list_dimensions(layout, tensor_ranks(self.graph)[[tensor]])[0]
        order = ",".join(str(one) for one in dimensions if one >= 0)
        size = self.table.tensor_bytes[number, column]
        is_padded = size > num_bytes(self.graph)[tensor]
        return f"{{{order}}}" + (f" ({decimal(int(size))} with padding)" if is_padded else "")


def name_reasons(costs: Costs) -> list[str]:
    """Return in words the instructions and copies that add most to the slow configuration's score,
    at most NAMED."""
    return [
        f"{costs.names[part]}: {costs.slow_states[part]}, not {costs.fast_states[part]}"
        f"{_say_share(costs, int(part), ', about {:+.0%} of the runtime')}"
        for part in np.flatnonzero(costs.added > 0)[:NAMED]
    ]


def _say_share(costs: Costs, part: int, text: str) -> str:
    return "" if costs.shares is None else text.format(costs.shares[part])


def show_costs(costs: Costs) -> Table:
    """Return a table of the instructions and copies whose states differ, and their added costs."""
    slow, fast = costs.slow, costs.fast
    note = " Of the runtime: by a line through this program's labels."
    tiles = " With padding: as a TPU stores tensors, in register tiles."
    rules = "TPU" if costs.is_padded else "CPU"
    table = make_table(
        Text(f"Why {slow} is predicted slower than {fast}: + slower, - faster"),
        "Costs add up to the difference of the two scores. Layouts are minor to major, as the "
        f"compiler of a {rules} assigns them."
        + (tiles if costs.is_padded else "")
        + (note if costs.shares is not None else ""),
    )
    table.add_column("Tensor", min_width=READABLE)
    table.add_column(f"config {slow}")
    table.add_column(f"config {fast}")
    table.add_column("adds", justify="right", no_wrap=True)
    table.add_column("of the runtime", justify="right", no_wrap=True)
    for part, name in enumerate(costs.names[:SHOWN]):
        table.add_row(
            name, costs.slow_states[part], costs.fast_states[part],
            f"{costs.added[part]:+.3f}", _say_share(costs, part, "{:+.1%}"),
        )  # fmt: skip
    rest = len(costs.names) - SHOWN
    if rest > 0:
        table.add_row(f"{rest} others", "", "", f"{costs.added[SHOWN:].sum():+.3f}", "")
    table.add_row("sum", "", "", f"{costs.added.sum():+.3f}", "")
    return table
