"""Rank configurations by an additive cost model with random features: similar states cost alike.

    cost of a state = copied or slow bytes x (1 + f(state)) - spared bytes + bytes x g(state)

A *state* is the layout assignment of an instruction, or of an operand as one instruction reads it
(which may need a copy). The compiler's rules give the states of each configuration. A score sums
the costs of a configuration's states, as in the additive cost net
(solution.models.layout.cost_net). *Prior costs* (solution.models.layout.known_costs) apply where
nothing was learned. Here f and g are smooth functions instead of nets: f of copied or slow states,
g of instructions. They are draws of a Gaussian process, in which two states covary if their columns
are close, and less if the opcodes of the producers or readers differ. Random cosines of a state's
columns have this covariance, so the mean of the process is a ridge regression on the sums of the
cosines over each configuration's states. The regression has one solution, found in seconds.

Programs differ, so each training program has random effects: the cost of a state is a value shared
by all programs plus a deviation of the program. So a program in which a few tensors decide the
runtime says little about other programs, however many configurations it has. Predictions use the
shared value only. The random effects correlate a program's configurations, which are therefore
weighted by the inverse of their covariance (a mixed model, solved by generalised least squares).

The target is the logarithm of the runtime, standardised in each program; for each training program,
one slope converts prior costs to that scale. For a state unlike all training states, f and g are
near 0. Copies of arguments (parameters of the program) have one learned factor on their prior cost:
it is 0 if arguments come in the layouts that a program asks for.

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
from solution.features.propagation.state_table import StateTable, state_tables
from solution.models.base import CostRanker, check_no_options
from solution.models.layout import known_costs
from solution.models.settings import check_penalties, check_size
from solution.system.report import Report, silent

MODEL = "model.safetensors"
# standardised columns are clipped to -FARTHEST ... FARTHEST
FARTHEST = 10.0
# scale of the terms of opcodes in an angle: two states that differ in the opcode only are about
# sqrt(2) * OPCODE deviations apart
OPCODE = 0.3
# expected cost of a byte that an instruction reads or writes, relative to a copied byte
MAKING = 0.2
# expected size of the factor on copies of arguments, relative to all other learned weights
ARGUMENT = 10.0
# Each program has a line: standardised log runtime = slope * prior cost / deviation of copied
# bytes. Its slope is at least LEAST_SLOPE.
LEAST_SLOPE = 0.05
MOST_COSINES, MOST_CONFIGS = 1 << 12, 1 << 20
# maximum number of cosines, or of (configuration, state) entries, in memory at once
CHUNK_VALUES = 1 << 22


@dataclass(frozen=True)
class CostKernelSettings(known_costs.CostSettings):
    """Settings of the additive cost model with random features."""

    # number of random features of a state
    cosines: int = 1024
    # penalty of squared weights, added to the mean squared error over configurations and programs
    penalty: float = 5e-5
    # variance of a program's deviations from the weights that all programs share, relative to noise
    own: float = 1.0
    # at most this many configurations of a graph are used for training: see choose_predicted
    max_configs: int = 1000

    def __post_init__(self) -> None:
        super().__post_init__()
        check_size("cosines", self.cosines, most=MOST_COSINES)
        check_size("max_configs", self.max_configs, most=MOST_CONFIGS, least=2)
        check_penalties("penalty", (self.penalty,))
        check_penalties("own", (self.own,))

    def build(self, seed: int) -> "CostKernelRanker":
        return CostKernelRanker(self, seed)


@dataclass(frozen=True)
class Cosines:
    """A function that returns random features of states: cos(columns @ directions + opcode terms +
    phases), where columns are the standardised features of a state in the state table."""

    # standardises the columns of the state table
    scaler: Scaler
    # (columns, cosines) float32: random weights of the columns in each cosine's angle
    directions: np.ndarray
    # (2, opcodes, cosines) float32: terms of the producer's and of the reader's opcode in the angle
    opcodes: np.ndarray
    phases: np.ndarray  # (cosines,) float32: random phase of each cosine

    @classmethod
    def draw(cls, scaler: Scaler, count: int, seed: int) -> "Cosines":
        """Draw `count` random features of the Gaussian process's kernel."""
        random = np.random.default_rng(seed)
        columns = len(scaler.mean)
        shapes = (columns, count), (2, vocabulary.NUM_OPCODES, count)
        directions, opcodes = (random.standard_normal(shape, np.float32) for shape in shapes)
        # Scale directions so that the mean distance does not depend on the number of columns.
        directions /= np.float32(np.sqrt(columns))
        phases = random.uniform(0, 2 * np.pi, count).astype(np.float32)
        return cls(scaler, directions, np.float32(OPCODE) * opcodes, phases)

    def __call__(self, graph: Graph, table: StateTable, states: slice) -> np.ndarray:
        """Return random features (states, cosines) float64 of rows of the state table."""
        columns = np.clip(self.scaler(table.features[states]), -FARTHEST, FARTHEST)
        opcodes = known_costs.list_opcodes(graph)
        angles = columns @ self.directions + self.phases
        angles += self.opcodes[0, opcodes[table.node[states]]]
        angles += self.opcodes[1, opcodes[table.reader[states]]]
        return np.cos(angles).astype(np.float64) * np.sqrt(2 / len(self.phases))


class CostKernelRanker(CostRanker):
    """The additive cost model with random features; a score depends on no other configuration."""

    reads_program_order = True

    def __init__(self, settings: CostKernelSettings, seed: int) -> None:
        self.settings = settings
        self.seed = seed
        self.cosines_: Cosines | None = None
        # (2 * cosines + 1,): weights of the random features in f, then in g (the module docstring
        # defines both functions). The last weight, times ARGUMENT, is the factor on the prior cost
        # of copied arguments.
        self.weights_: np.ndarray = np.zeros(0)

    def fit(
        self, graphs: Sequence[Graph], validation: Sequence[Graph], report: Report = silent
    ) -> Self:
        everything = [*graphs, *validation]  # without early stopping, learn from both
        self.backend = known_costs.choose_backend(self.settings.backend, everything)
        limit, steps = self.settings.max_configs, 2 * len(everything)
        known_costs.share_tables(everything, limit, self.backend)
        chosen = [known_costs.choose_predicted(graph, limit) for graph in everything]
        scaler = fit_scaler(self._list_columns([rows.graph for rows in chosen], steps, report))
        cosines = Cosines.draw(scaler, self.settings.cosines, self.seed)
        size = 2 * self.settings.cosines + 1
        # Sums over programs of X^T V^-1 X / configs and X^T V^-1 (label - slope * prior costs) /
        # configs. X: the columns of _add_up times slope; V: the covariance in _weigh_configs.
        products, sums = np.zeros((size, size)), np.zeros(size)
        for done, rows in enumerate(chosen, start=len(everything) + 1):
            known, learned = self._add_up(rows.graph, cosines)
            label = _standardise(np.log(rows.runtimes))
            slope = max(
                LEAST_SLOPE, float(known @ label) / max(float(known @ known), known_costs.LEAST)
            )
            learned *= slope
            weighed = self._weigh_configs(learned)
            products += learned.T @ weighed
            sums += weighed.T @ (label - slope * known)
            report(done, steps)
        penalties = self.settings.penalty * len(everything) * np.eye(size)
        self.cosines_, self.weights_ = cosines, np.linalg.solve(products + penalties, sums)
        return self

    def predict(self, graph: Graph) -> np.ndarray:
        costs, numbers = self.list_costs(graph), self._table(graph).numbers
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
        known = known_costs.weigh_states(graph, table)
        costs = known.total + ARGUMENT * self.weights_[-1] * known.arguments
        # cost = prior cost + f(state) * copies and slow loops + g(state) * bytes of instructions
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
        self.save_backend(folder)

    def load(self, folder: Path) -> Self:
        self.load_backend(folder)
        arrays = load_file(folder / MODEL)
        scaler = Scaler(arrays["mean"], arrays["scale"])
        self.cosines_ = Cosines(scaler, arrays["directions"], arrays["opcodes"], arrays["phases"])
        self.weights_ = arrays["weights"]
        return self

    def _table(self, graph: Graph) -> StateTable:
        check_no_options(graph)
        return state_tables(self.backend)(graph)

    def _list_columns(
        self, graphs: Sequence[Graph], steps: int, report: Report
    ) -> Iterator[np.ndarray]:
        """Yield the features (states, columns) of each graph's state table, and report progress,
        because tables are slow to compute."""
        for done, graph in enumerate(graphs, start=1):
            yield self._table(graph).features
            report(done, steps)

    def _weigh_configs(self, learned: np.ndarray) -> np.ndarray:
        """Return covariance^-1 @ learned / configs: a program's rows `learned` (configs, weights),
        weighted by the inverse covariance of its labels. The covariance is I (noise) + own *
        varying @ varying^T (random effects of the program). `varying` has all columns of `learned`
        but the last, which is for copies of arguments."""
        varying = learned[:, :-1]
        covariance = np.eye(len(learned)) + self.settings.own * (varying @ varying.T)
        return np.linalg.solve(covariance, learned) / len(learned)

    def _list_chunks(self, table: StateTable) -> Iterator[slice]:
        step = max(1, CHUNK_VALUES // self.settings.cosines)
        for first in range(0, len(table.node), step):
            yield slice(first, first + step)

    def _split_weights(self) -> np.ndarray:
        """Return the weights (2, cosines) of two learned functions, see the module docstring: f
        corrects the prior cost of copied or slow states, g is an instruction's cost per byte."""
        return self.weights_[:-1].reshape(2, -1)

    def _add_up(self, graph: Graph, cosines: Cosines) -> tuple[np.ndarray, np.ndarray]:
        """Return a program's prior costs (distinct configs,), and the columns (distinct configs, 2
        x cosines + 1) that learned weights multiply: sums over states, centred and divided by the
        deviation of copied bytes, so that programs have equal influence."""
        table = self._table(graph)
        known = known_costs.weigh_states(graph, table)
        counts = _count_states(table)
        scale = max(float((counts @ known.moved).std()), known_costs.LEAST)
        columns = np.zeros((len(table.numbers), 2 * self.settings.cosines + 1))
        for states in self._list_chunks(table):
            values = cosines(graph, table, states)
            blocks = [counted[states, None] * values for counted in _list_counts(known)]
            columns[:, :-1] += counts[:, states] @ np.concatenate(blocks, axis=1)
        columns[:, -1] = ARGUMENT * (counts @ known.arguments)
        sums = counts @ known.total
        return (sums - sums.mean()) / scale, (columns - columns.mean(axis=0)) / scale


def _list_counts(known: known_costs.KnownCosts) -> tuple[np.ndarray, np.ndarray]:
    """Return two arrays (states,): the prior costs of copies and slow loops, which the learned
    function f multiplies, and the bytes of instructions times MAKING, which g multiplies."""
    return known.extra, MAKING * known.made


def _count_states(table: StateTable) -> Any:
    """Return the sparse matrix (distinct configs, states) of how often each state occurs."""
    from scipy.sparse import csc_matrix  # slow to import, and prediction does not need it

    configs, entries = table.numbers.shape
    rows = np.repeat(np.arange(configs), entries)
    shape = configs, len(table.node)
    return csc_matrix((np.ones(rows.size), (rows, table.numbers.ravel())), shape=shape)


def _standardise(values: np.ndarray) -> np.ndarray:
    """Standardise values (n,) and clip them to -3 ... 3; return 0 if all values are equal."""
    deviation = values.std()
    if deviation == 0:
        return np.zeros(len(values))
    scaled: np.ndarray = np.clip((values - values.mean()) / deviation, -3, 3)
    return scaled
