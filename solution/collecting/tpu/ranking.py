"""Rank a graph's configurations by asking a TPU's compiler about some of them.

Configurations that request equal layouts form a set, and are compiled once. If the budget does not
suffice for all sets, a model (solution.collecting.tpu.request_model) chooses the sets to compile,
and predicts the estimates of the others. Nothing is measured. A state is the layouts of an
instruction or of an operand in a configuration.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from typing import Any

import numpy as np

from solution.collecting.target import Tell
from solution.collecting.tpu.estimator import Answer, Estimator
from solution.collecting.tpu.libtpu import EntryLayouts
from solution.collecting.tpu.request_model import RequestModel, make_effects
from solution.collecting.tpu.requests import RequestSets, group_by_requests
from solution.domain.graph import Graph
from solution.features.propagation.state_table import BYTES, state_tables
from solution.system.wording import count, spell

BATCH = 8  # number of sets that are compiled before the model chooses again
FEWEST = 2  # minimum number of estimates from which others are predicted
REFUSALS = 4  # if the first REFUSALS answers are all refusals, the compiler is not asked again
BACKEND = "tpu"
Costs = Callable[[Graph], np.ndarray]
# the standard deviation of an effect (see request_model) is the state's prior cost + DOUBT x (bytes
# that the state moves / bytes of all tensors)
DOUBT = 0.03
# Processor seconds of a compilation: PASSES for the passes over HLO, whatever the program; for each
# node of the program EACH_NODE if all kernels are known, EACH_NODE_NEW if some are new. The kernels
# of a program's first configuration take FIRST_NODE for each node in addition.
PASSES, EACH_NODE, EACH_NODE_NEW, FIRST_NODE = 0.4, 0.001, 0.005, 0.2


@dataclass(frozen=True)
class Budget:
    """The maximum number and processor time of compilations for one graph."""

    compilations: int  # maximum number of compilations, each of one set of layout requests
    seconds: float = inf  # no compilation starts after this processor time; the last may exceed it


@dataclass(frozen=True, eq=False)
class CompilerOrder:
    """A ranking of a graph's configurations by the compiler's estimates, and what it took."""

    # (configs,) float64; lower is faster, comparable in this graph only
    scores: np.ndarray
    # (configs,) float64: the compiler's estimates in nanoseconds; NaN where it was not asked or
    # refused
    estimates: np.ndarray
    sets: int  # number of different sets of requests
    asked: int  # number of sets that were given to the compiler
    refused: tuple[str, ...]  # for each set that the compiler refused: its reason
    processor_seconds: float  # in all processes; near 0 if the answers were cached

    @property
    def is_followed(self) -> bool:
        """True if the scores follow the compiler's estimates, False if these are too few."""
        return self.asked - len(self.refused) >= min(FEWEST, self.sets)

    def describe(self, target: str, other: str) -> str:
        """Return sentences on the compilations, and on whose order the scores follow.

        Args:
            target: the TPU for which the compiler estimated.
            other: who ranked the configurations before, such as "the bundle".
        """
        refused = ""
        if self.refused:
            reason = self.refused[0].rstrip(".")
            refused = f" It refused {len(self.refused)} of them, the first because: {reason}."
        spent = f"It took {spell(self.processor_seconds)} of processor time."
        begin = (
            f"The compiler for {target} was asked about {self.asked:,} of "
            f"{count(self.sets, 'set')} of layout requests.{refused} {spent}"
        )
        if not self.is_followed:
            return f"{begin} Its answers are too few: the order is that of {other}."
        known = int(np.isfinite(self.estimates).sum())
        words = (
            f"{begin} {known:,} of {count(len(self.estimates), 'configuration')} are in the order "
            "estimated by the compiler, never timed."
        )
        if known < len(self.estimates):
            words += f" The others are where its answers and the scores of {other} predict them."
        return words


def rank_by_compiler(
    graph: Graph,
    module: Any,
    prior: np.ndarray,
    list_costs: Costs,
    estimator: Estimator,
    budget: Budget,
    layouts: EntryLayouts | None = None,
    tell: Tell = lambda _: None,
) -> CompilerOrder:
    """Return scores of a graph's configurations that follow the compiler's estimates.

    Args:
        graph: a layout graph, not pruned. Its runtimes are not used.
        module: the message Module whose instructions are the graph's nodes.
        prior: (configs,) scores of another ranker, lower is faster. With the compiler's estimates
            they predict the estimates of the sets that are not compiled.
        list_costs: returns the prior costs (states,) of the graph's state table for BACKEND.
        layouts: layouts at the program's boundary, see Estimator.estimate.
        tell: called beforehand with a sentence on the cost of the compilations.

    Raises InputError if the compiler cannot be started.
    """
    sets = group_by_requests(graph, module)
    if budget.compilations:
        tell(_describe_cost(graph, len(sets), budget))
    model, answers, spent = None, dict[int, Answer](), 0.0
    most = min(budget.compilations, len(sets))

    def is_finished() -> bool:
        is_hopeless = len(answers) >= REFUSALS and not _list_estimates(answers)
        return len(answers) >= most or spent >= budget.seconds or is_hopeless

    while not is_finished():
        number = min(BATCH, most - len(answers))
        if most == len(sets):  # all sets fit into the budget: compile them in order
            chosen = list(range(len(answers), len(answers) + number))
        else:
            model = model or _make_model(graph, sets, prior, list_costs(graph))
            _predict(model, answers)
            chosen = model.choose(np.array(list(answers), np.int64), number)
        if not chosen:
            break
        for one in chosen:
            if not is_finished():
                answers[one] = estimator.estimate(sets.write_module(one), layouts=layouts)
                spent += answers[one].processor_seconds
    if model is None and FEWEST <= len(_list_estimates(answers)) < len(sets):
        model = _make_model(graph, sets, prior, list_costs(graph))
    return _order(sets, prior, model, answers, spent)


def _describe_cost(graph: Graph, sets: int, budget: Budget) -> str:
    """Return a sentence on the number and the processor time of the compilations for a graph."""
    asked, nodes = min(budget.compilations, sets), graph.num_nodes
    low = asked * (PASSES + EACH_NODE * nodes)
    high = asked * (PASSES + EACH_NODE_NEW * nodes) + FIRST_NODE * nodes
    limit = "" if budget.seconds == inf else f", and stops after {spell(budget.seconds)}"
    return (
        f"{graph.name}: {count(graph.num_configs, 'configuration')} of {graph.num_nodes:,} nodes "
        f"make {count(sets, 'set')} of layout requests. To ask the compiler about {asked:,} takes "
        f"{spell(low)} to {spell(high)} of processor time{limit}."
    )


def _list_estimates(answers: dict[int, Answer]) -> dict[int, float]:
    """Return the estimates in nanoseconds, by number of the set; refused sets are left out."""
    return {n: a.nanoseconds for n, a in answers.items() if a.nanoseconds is not None}


def _predict(model: RequestModel, answers: dict[int, Answer]) -> np.ndarray | None:
    """Return predicted log estimates (sets,) and update the model; None if answers are too few."""
    known = _list_estimates(answers)
    if len(known) < FEWEST:
        return None
    return model.predict(np.array(list(known)), _take_logs(list(known.values())))


def _order(
    sets: RequestSets,
    prior: np.ndarray,
    model: RequestModel | None,
    answers: dict[int, Answer],
    spent: float,
) -> CompilerOrder:
    """Rank the configurations by their sets' log estimates, which are predicted for sets without an
    estimate. With too few estimates for that, the scores are `prior`."""
    known = _list_estimates(answers)
    estimates = np.full(len(sets), np.nan)
    estimates[list(known)] = list(known.values())
    scores = prior.astype(np.float64)
    if len(known) >= min(FEWEST, len(sets)):
        logs = _take_logs(estimates)
        if len(known) < len(sets):
            assert model is not None
            predicted = _predict(model, answers)
            assert predicted is not None
            logs = np.where(np.isfinite(logs), logs, predicted)
        scores = (logs - logs.mean())[sets.of_config]
    return CompilerOrder(
        scores=scores,
        estimates=estimates[sets.of_config],
        sets=len(sets),
        asked=len(answers),
        refused=tuple(a.refused for a in answers.values() if a.nanoseconds is None),
        processor_seconds=spent,
    )


def _take_logs(estimates: np.ndarray | list[float]) -> np.ndarray:
    """Return logarithms of estimates in ns; estimates below 1 count as 1, because a program that
    computes only scalars has the estimate 0."""
    return np.log(np.maximum(estimates, 1.0))


def _make_model(
    graph: Graph, sets: RequestSets, prior: np.ndarray, costs: np.ndarray
) -> RequestModel:
    """Return the model of the costs of the graph's states.

    Before any answer, the expected log estimates of the sets are the values log(1 + a set's summed
    prior costs), assigned in the order of `prior`: the n-th fastest set by `prior` gets the n-th
    smallest value. Prior costs are shares of the bytes of all tensors.
    """
    counts = sets.counts
    scores = np.bincount(sets.of_config, weights=prior, minlength=len(sets)) / counts
    table = state_tables(BACKEND)(graph)
    first = np.unique(sets.of_config, return_index=True)[1]  # a configuration of each set
    states = table.numbers[graph.layouts.rows[first]]
    expected = np.empty(len(sets))
    expected[np.argsort(scores, kind="stable")] = np.sort(np.log1p(costs[states].sum(axis=1)))
    # states without a prior cost may have a cost, too
    sizes = (costs + DOUBT * table.shares[:, BYTES])[states]
    points = np.broadcast_to(np.arange(states.shape[1]), states.shape)
    return RequestModel([make_effects(each, sizes) for each in (states, points)], expected, counts)
