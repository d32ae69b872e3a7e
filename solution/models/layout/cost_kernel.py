"""Costs of states, where states that are alike cost alike: a kernel instead of a net.

    cost of a state = what is copied or slow x (1 + f(state)) - what is spared + bytes x g(state)

As in the net of costs (solution.models.layout.cost_net) a score adds up what the states of a
program cost, which the compiler's own rules say, and what is known of them beforehand
(solution.models.layout.known_costs) holds where nothing else was learned. Here f, of what is copied
or slow, and g, of instructions, are no nets but smooth functions: draws of a Gaussian process in
which two states covary as their columns are near to each other, and less where the opcodes of what
is made or of who reads differ. Its mean is a ridge regression on sums over the states of each
configuration, which has one solution, found in seconds; the covariance is that of random cosines.

Programs differ: what a state costs in one of them is what it costs everywhere and a draw of the
program's own. So one in which few tensors decide everything says little of others, however many
configurations it has. Nobody asks for these draws; because of them the configurations of a program
are not independent, and are weighed by the inverse of their covariance (a mixed model, as
generalised least squares solves it).

Learned is the logarithm of the runtime, standardised inside each program; what is known is put on
that scale by a line for each program that is learned from. Of a state that is like nothing in those
f and g are near 0. Copies of arguments cost one learned number times what is known: nothing where
they come in the layouts that a program asks for.

Sources: Rahimi and Recht, "Random features for large-scale kernel machines", NIPS 2007; Laird and
Ware, "Random-effects models for longitudinal data", Biometrics, 1982.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
from safetensors.numpy import load_file, save_file

from solution.domain import vocabulary
from solution.domain.graph import Graph
from solution.features.nodes import Scaler, fit_scaler
from solution.features.propagation.backend import BACKENDS
from solution.features.propagation.state_table import FEATURES, StateTable, state_tables
from solution.models.base import CostRanker, RankerSettings, check_no_options
from solution.models.layout.known_costs import LEAST, KnownCosts, list_opcodes, weigh_states
from solution.models.sampling import choose_rows
from solution.models.settings import check_choice, check_penalties, check_size
from solution.system.report import Report, silent

MODEL = "model.safetensors"
FARTHEST = 10.0  # standard deviations: what is further away in a column is as far as this
OPCODE = 0.3  # how far apart two opcodes are, in root mean squared columns' standard deviations
MAKING = 0.2  # how freely what an instruction's byte costs is learned, beside one that is copied
ARGUMENT = 10.0  # how freely what copies of arguments cost is learned, beside all else
LEAST_SLOPE = 0.05  # of the line from what is known to labels, both standardised
MOST_COSINES, MOST_CONFIGS = 1 << 12, 1 << 20
CHUNK_VALUES = 1 << 22  # cosines, or (configuration, place) entries, at once


@dataclass(frozen=True)
class CostKernelSettings(RankerSettings):
    """Settings of the kernel of costs."""

    backend: str = "cpu"  # whose layout assignment: a name in features.propagation.backend.BACKENDS
    cosines: int = 1024  # random functions of a state
    penalty: float = 5e-5  # of the squares of weights, beside a program's mean squared error
    own: float = 1.0  # variance of a program's own weights, beside its configurations' noise
    max_configs: int = 1000  # distinct configurations of a graph to learn from, at most

    def __post_init__(self) -> None:
        check_choice("backend", self.backend, BACKENDS)
        check_size("cosines", self.cosines, most=MOST_COSINES)
        check_size("max_configs", self.max_configs, most=MOST_CONFIGS, least=2)
        check_penalties("penalty", (self.penalty,))
        check_penalties("own", (self.own,))

    @property
    def needed_hops(self) -> int | None:
        """The whole graph: what is asked of one tensor reaches as far as it is handed on."""
        return None

    def build(self, seed: int) -> "CostKernelRanker":
        """Make a ranker that is not fitted yet."""
        return CostKernelRanker(self, seed)


@dataclass(frozen=True)
class Cosines:
    """Random functions of a state: cos(columns @ directions + what opcodes and phases add)."""

    scaler: Scaler  # of the columns of the state table
    directions: np.ndarray  # (columns, cosines) float32
    opcodes: np.ndarray  # (2, opcodes, cosines) float32: of whose tensor it is, of who reads it
    phases: np.ndarray  # (cosines,) float32

    @classmethod
    def draw(cls, scaler: Scaler, count: int, seed: int) -> "Cosines":
        """As many, for the kernel that the module describes."""
        random = np.random.default_rng(seed)
        shapes = (len(FEATURES), count), (2, vocabulary.NUM_OPCODES, count)
        directions, opcodes = (random.standard_normal(shape, np.float32) for shape in shapes)
        # Standardised columns are this far apart on average, however many there are.
        directions /= np.float32(np.sqrt(len(FEATURES)))
        phases = random.uniform(0, 2 * np.pi, count).astype(np.float32)
        return cls(scaler, directions, np.float32(OPCODE) * opcodes, phases)

    def __call__(self, graph: Graph, table: StateTable, states: slice) -> np.ndarray:
        """Their values (states, cosines) float64 for some states of the table."""
        columns = np.clip(self.scaler(table.features[states]), -FARTHEST, FARTHEST)
        own = list_opcodes(graph)
        angles = columns @ self.directions + self.phases
        angles += self.opcodes[0, own[table.node[states]]]
        angles += self.opcodes[1, own[table.reader[states]]]
        return np.cos(angles).astype(np.float64) * np.sqrt(2 / len(self.phases))


class CostKernelRanker(CostRanker):
    """The kernel of costs as a Ranker. A score is of its configuration alone."""

    reads_program_order = True

    def __init__(self, settings: CostKernelSettings, seed: int) -> None:
        self.settings = settings
        self.seed = seed
        self.cosines_: Cosines | None = None
        self.weights_: np.ndarray = np.zeros(0)  # (2 * cosines + 1,): of f, of g, of arguments

    @property
    def backend(self) -> str:
        return self.settings.backend

    def fit(
        self, graphs: Sequence[Graph], validation: Sequence[Graph], report: Report = silent
    ) -> Self:
        everything = [*graphs, *validation]  # nothing is stopped early
        steps = 2 * len(everything)
        scaler = fit_scaler(self._list_columns(everything, steps, report))
        cosines = Cosines.draw(scaler, self.settings.cosines, self.seed)
        size = 2 * self.settings.cosines + 1
        products, sums = np.zeros((size, size)), np.zeros(size)
        for done, graph in enumerate(everything, start=len(everything) + 1):
            rows = choose_rows(graph, self.settings.max_configs, self.seed)
            known, learned = self._add_up(rows.graph, cosines)
            label = _standardise(np.log(rows.runtimes))
            slope = max(LEAST_SLOPE, float(known @ label) / max(float(known @ known), LEAST))
            learned *= slope
            weighed = self._weigh_configs(learned)
            products += learned.T @ weighed
            sums += weighed.T @ (label - slope * known)
            report(done, steps)
        penalties = self.settings.penalty * len(everything) * np.eye(size)
        self.cosines_, self.weights_ = cosines, np.linalg.solve(products + penalties, sums)
        return self

    def predict(self, graph: Graph) -> np.ndarray:
        numbers, costs = self._table(graph).numbers, self.list_costs(graph)
        step = max(1, CHUNK_VALUES // max(1, numbers.shape[1]))
        sums = [
            costs[numbers[first : first + step]].sum(axis=1)
            for first in range(0, len(numbers), step)
        ]
        return np.concatenate(sums).astype(np.float32)[graph.distinct.inverse]

    def list_costs(self, graph: Graph) -> np.ndarray:
        if self.cosines_ is None:
            raise RuntimeError("fit the ranker before it explains")
        table = self._table(graph)
        known = weigh_states(graph, table)
        costs = known.total + ARGUMENT * self.weights_[-1] * known.arguments
        for states in self._list_chunks(table):
            values = self.cosines_(graph, table, states)
            for counted, weights in zip(_list_counts(known), self._split_weights(), strict=True):
                costs[states] += counted[states] * (values @ weights)
        return costs

    def save(self, folder: Path) -> None:
        if self.cosines_ is None:
            raise RuntimeError("fit the ranker before it is saved")
        cosines = self.cosines_
        arrays = {
            "mean": cosines.scaler.mean,
            "scale": cosines.scaler.scale,
            "directions": cosines.directions,
            "opcodes": cosines.opcodes,
            "phases": cosines.phases,
            "weights": self.weights_,
        }
        save_file(arrays, folder / MODEL)

    def load(self, folder: Path) -> Self:
        arrays = load_file(folder / MODEL)
        scaler = Scaler(arrays["mean"], arrays["scale"])
        self.cosines_ = Cosines(scaler, arrays["directions"], arrays["opcodes"], arrays["phases"])
        self.weights_ = arrays["weights"]
        return self

    def _table(self, graph: Graph) -> StateTable:
        check_no_options(graph)
        return state_tables(self.settings.backend)(graph)

    def _list_columns(
        self, graphs: Sequence[Graph], steps: int, report: Report
    ) -> Iterator[np.ndarray]:
        """Of each graph the columns of its states; to find them takes longest."""
        for done, graph in enumerate(graphs, start=1):
            yield self._table(graph).features
            report(done, steps)

    def _weigh_configs(self, learned: np.ndarray) -> np.ndarray:
        """A program's columns (configs, weights) times the inverse of its labels' covariance.

        Which is that of noise, and of what the program's own weights make of these columns; but for
        the last, for whether copies of arguments are free is not a program's own.
        """
        own = learned[:, :-1]
        covariance = np.eye(len(learned)) + self.settings.own * (own @ own.T)
        return np.linalg.solve(covariance, learned) / len(learned)

    def _list_chunks(self, table: StateTable) -> Iterator[slice]:
        step = max(1, CHUNK_VALUES // self.settings.cosines)
        for first in range(0, len(table.node), step):
            yield slice(first, first + step)

    def _split_weights(self) -> np.ndarray:
        """Those (2, cosines) of f and of g."""
        return self.weights_[:-1].reshape(2, -1)

    def _add_up(self, graph: Graph, cosines: Cosines) -> tuple[np.ndarray, np.ndarray]:
        """What is known (distinct configs,), and what weights are learned for, beside each other.

        Both are sums over states, without the configurations' mean, on the scale of the copies: so
        programs that copy much and little count alike.
        """
        table = self._table(graph)
        known = weigh_states(graph, table)
        counts = _count_states(table)
        scale = max(float((counts @ known.moved).std()), LEAST)
        columns = np.zeros((len(table.numbers), 2 * self.settings.cosines + 1))
        for states in self._list_chunks(table):
            values = cosines(graph, table, states)
            blocks = [counted[states, None] * values for counted in _list_counts(known)]
            columns[:, :-1] += counts[:, states] @ np.concatenate(blocks, axis=1)
        columns[:, -1] = ARGUMENT * (counts @ known.arguments)
        sums = counts @ known.total
        return (sums - sums.mean()) / scale, (columns - columns.mean(axis=0)) / scale


def _list_counts(known: KnownCosts) -> tuple[np.ndarray, np.ndarray]:
    """What f and g count (states,) in a score."""
    return known.extra, MAKING * known.made


def _count_states(table: StateTable) -> Any:
    """How often each configuration is in each state: a sparse matrix (distinct configs, states)."""
    from scipy.sparse import csc_matrix  # takes long to import, and who predicts needs none

    configs, places = table.numbers.shape
    rows = np.repeat(np.arange(configs), places)
    shape = configs, len(table.node)
    return csc_matrix((np.ones(rows.size), (rows, table.numbers.ravel())), shape=shape)


def _standardise(values: np.ndarray) -> np.ndarray:
    """With mean 0 and deviation 1, and nothing further away than 3; 0 where all are equal."""
    deviation = values.std()
    if deviation == 0:
        return np.zeros(len(values))
    scaled: np.ndarray = np.clip((values - values.mean()) / deviation, -3, 3)
    return scaled
