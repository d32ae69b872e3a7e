"""Compute prior costs of states: estimates that need no training.

A *state* is the layout assignment of an instruction, or of an operand as one instruction reads it.
The state of an operand may need a copy, which costs about the bytes copied, and more if it reads
with a large stride. The state of an instruction costs more if its loops are short
(solution.features.propagation.state_table), if it reduces in two steps, or if a library cannot
compute it; it costs less if the library fuses it with a reduction
(solution.features.propagation.library). On a TPU, which pads tensors to register tiles, copied
bytes include the padding, each copy takes some time to start, an instruction costs more if it reads
or writes padding, and copies of arguments (parameters of the program) cost as much as other copies.
The unit of cost is the time to copy as many bytes as all tensors have.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from solution.domain import vocabulary
from solution.domain.dividing import choose_configs
from solution.domain.graph import Graph, PerGraph
from solution.domain.metrics import kendall_tau
from solution.features.propagation.backend import BACKENDS
from solution.features.propagation.state_table import BYTES, MANY, StateTable, state_tables
from solution.models.base import RankerSettings, check_no_options
from solution.models.sampling import TrainingRows, choose_rows
from solution.models.settings import check_choice
from solution.system.shelf import is_keeping

STRIDED = 0.3  # extra cost of a copied byte for each doubling of the read stride
ONCE = 0.5  # cost saved per byte that a library fuses with a reduction, relative to a copied byte
SHORT = 16.0  # cost of a byte in loops of one element, relative to a copied byte
SPLIT = 3.0  # cost of a byte reduced in two steps, relative to a copied byte
SLOW = 0.4  # cost of a multiplication that the library does not compute, relative to a copied byte
# cost of a byte of padding in StateTable.padding, relative to a copied byte; chosen on 18 programs
# of all program families
PADDED = 0.1
# Cost of starting a copy: the bytes that a TPU copies in the time of a start, about 600 cycles on a
# TPU v3. Chosen on 48 programs with random layouts.
STARTED = 7e4
# lower bound, as a share of all bytes, on the deviation of copied bytes that scores are divided by
LEAST = 1e-3
PARAMETER = vocabulary.OPCODE_IDS["parameter"]
DRAW = 0  # seed to draw the configurations that decide between the backends
AUTO = "auto"
# At most MOST_GRAPHS graphs decide between the backends: by FEW_CONFIGS configurations of each, or
# by MANY_CONFIGS if there are fewer graphs.
MOST_GRAPHS, FEW_CONFIGS, MANY_CONFIGS = 24, 16, 128


@dataclass(frozen=True)
class CostSettings(RankerSettings):
    """The settings that all cost models share."""

    # a name in features.propagation.backend.BACKENDS, or AUTO: see choose_backend
    backend: str = AUTO

    def __post_init__(self) -> None:
        check_choice("backend", self.backend, (AUTO, *BACKENDS))

    @property
    def needed_hops(self) -> int | None:
        """None: the whole graph, because layout requests propagate any number of nodes."""
        return None


@dataclass(frozen=True)
class KnownCosts:
    """Prior costs of states: each array is (states,) float64, in shares of the bytes of all tensors
    (see CostRanker)."""

    # Bytes copied, whose deviation scales the scores. Copies of arguments (parameters of the
    # program) do not count if they may be free. On a TPU this includes the cost of padding, because
    # layouts may differ in padding alone.
    moved: np.ndarray
    # cost of the copies counted in `moved`
    copying: np.ndarray
    # cost of copying arguments, which may be free: not included in `extra` and `total`
    arguments: np.ndarray
    # extra cost of instructions with short loops, two-step reductions, slow products or padding
    slowed: np.ndarray
    spared: np.ndarray  # cost saved where a library fuses an instruction with a reduction
    made: np.ndarray  # bytes that instructions read and write

    @property
    def extra(self) -> np.ndarray:
        """Cost (states,) of slow instructions, and of all copies but copies of arguments."""
        return self.copying + self.slowed

    @property
    def total(self) -> np.ndarray:
        """Cost of each state (states,) if copies of arguments are free."""
        return self.extra - self.spared


def weigh_states(graph: Graph, table: StateTable) -> KnownCosts:
    """Return the prior costs of the states in a graph's state table."""
    is_made, is_argument = table.is_made.astype(np.float64), find_arguments(graph, table)
    moved = table.is_copied * table.shares[:, BYTES].astype(np.float64)
    copying = (1 + STRIDED * table.strides) * moved
    if table.pads:
        copying = copying + STARTED * table.is_copied * table.runs
    slowed = SHORT * table.short_loops + SPLIT * table.split + SLOW * table.slow_products
    padding = PADDED * table.padding
    slowed = slowed + padding
    return KnownCosts(
        moved=np.where(is_argument, 0, moved) + is_made * padding,
        copying=np.where(is_argument, 0, copying),
        arguments=np.where(is_argument, copying, 0),
        slowed=is_made * slowed,
        spared=is_made * ONCE * table.at_once,
        made=is_made * table.shares[:, BYTES],
    )


def add_known_costs(graph: Graph, backend: str) -> np.ndarray:
    """Return the sum (configs,) float64 of each configuration's prior costs; nothing is learned.
    `backend`: a name in BACKENDS."""
    table = state_tables(backend)(graph)
    costs = weigh_states(graph, table).total
    return np.asarray(costs[table.numbers].sum(axis=1)[graph.layouts.rows])


def list_known_costs(graph: Graph, backend: str) -> np.ndarray:
    """Return the prior cost (states,) float64 of each state in the graph's state table."""
    return weigh_states(graph, state_tables(backend)(graph)).total


def choose_predicted(graph: Graph, limit: int | None) -> TrainingRows:
    """Return at most `limit` configurations to learn from, counting duplicates (None: all). If
    `limit` is MAX_CONFIGS, choose the configurations that are predicted out of fold. Then all
    folds, seeds and cost models need the same state table of a graph, which is slow to compute."""
    limit = graph.num_configs if limit is None else limit
    if graph.num_configs > limit:
        graph = graph.select(choose_configs(graph.key, graph.num_configs, limit))
    return choose_rows(graph, None, DRAW)


def share_tables(graphs: Sequence[Graph], limit: int | None, backend: str) -> None:
    """Compute the missing state tables of large graphs, for the configurations that
    `choose_predicted` returns, and keep them in files. Each process computes them in its own random
    order, so that processes that need the same tables divide the work. If tables are not kept in
    files, do nothing."""
    if not is_keeping():
        return
    sizes = [
        graph.num_nodes * min(limit or graph.num_configs, graph.num_configs) for graph in graphs
    ]
    large = np.flatnonzero(np.array(sizes) >= MANY)
    for number in np.random.default_rng(os.getpid()).permutation(large):
        state_tables(backend)(choose_predicted(graphs[number], limit).graph)


def choose_backend(setting: str, graphs: Sequence[Graph]) -> str:
    """Return the name of the backend: `setting` or, for AUTO, the backend whose prior costs order
    the runtimes better (mean Kendall's tau over at most MOST_GRAPHS evenly spaced `graphs`; the
    first of BACKENDS if both are equal). Files of graphs do not say where their programs ran."""
    if setting != AUTO:
        return setting
    chosen = np.linspace(0, len(graphs) - 1, min(len(graphs), MOST_GRAPHS)).astype(int)
    compare = _FEW if len(graphs) >= MOST_GRAPHS else _MANY
    taus = np.sum([compare(graphs[number]) for number in chosen], axis=0)
    return list(BACKENDS)[int(np.argmax(taus))]


def _try_backends(graph: Graph, configs: int) -> tuple[float, ...]:
    """Return Kendall's tau of the prior costs and runtimes of `configs` distinct configurations,
    for each of BACKENDS."""
    check_no_options(graph)
    if graph.listed is not None:  # the configurations drawn below may not be in the reference list
        graph = replace(graph, listed=None)
    few = choose_rows(graph, configs, seed=DRAW).graph
    assert few.runtimes is not None
    return tuple(kendall_tau(add_known_costs(few, backend), few.runtimes) for backend in BACKENDS)


_FEW, _MANY = (PerGraph(partial(_try_backends, configs=n)) for n in (FEW_CONFIGS, MANY_CONFIGS))


def find_arguments(graph: Graph, table: StateTable) -> np.ndarray:
    """Return a mask (states,) bool: True if the state's tensor is a parameter of the program, whose
    copies may be free. All False on a TPU, where the compiler fixes the layouts of parameters, so
    their copies cost as much as others."""
    is_parameter = list_opcodes(graph)[table.node] == PARAMETER
    return np.zeros_like(is_parameter) if table.pads else is_parameter


def list_opcodes(graph: Graph) -> np.ndarray:
    """Return the opcode of each node (nodes + 1,) int64; the last entry, VIRTUAL, is for states
    without a node."""
    return np.append(graph.node_opcodes, vocabulary.VIRTUAL).astype(np.int64)
