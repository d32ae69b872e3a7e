"""Rank a graph's configurations by asking a TPU's compiler about some of them.

Configurations with equal requests are asked about once. If the budget does not suffice for all sets
of requests, a model of the states' costs (solution.collecting.tpu.request_model) chooses which ones
are asked about, and predicts the others from the answers. All numbers are the compiler's estimates
or predictions of them; nothing is measured.
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

BATCH = 8  # number of answers after which the next sets are chosen anew
FEWEST = 2  # minimum number of answers for predictions
REFUSALS = 4  # if this many first answers are all refusals, the compiler is not asked again
BACKEND = "tpu"
Costs = Callable[[Graph], np.ndarray]
# standard deviation of an effect beside the state's prior cost, as a share of the bytes that the
# state reads and writes
DOUBT = 0.03
# Processor seconds of a compilation: PASSES for the passes over HLO, whatever the program; for each
# node of the program EACH_NODE if all kernels are known, EACH_NODE_NEW if some are new. The kernels
# of a program's first configuration take FIRST_NODE for each node in addition.
PASSES, EACH_NODE, EACH_NODE_NEW, FIRST_NODE = 0.4, 0.001, 0.005, 0.2


@dataclass(frozen=True)
class Budget:
    """How much the compiler may be asked about one graph."""

    compilations: int  # maximum number of compilations, each of one set of layout requests
    # No set is asked about after this much processor time. The last compilation may exceed it.
    seconds: float = inf


@dataclass(frozen=True, eq=False)
class CompilerOrder:
    """Scores that follow the compiler's estimates, and what the compiler was asked."""

    scores: np.ndarray  # (configs,) float64; lower is faster, comparable in this graph only
    # (configs,) float64: the compiler's estimates in nanoseconds; NaN where it was not asked or
    # refused
    estimates: np.ndarray
    sets: int  # number of different sets of requests
    asked: int  # number of sets that were asked about
    refused: tuple[str, ...]  # the compiler's reasons, for each set that it refused
    processor_seconds: float  # in all processes; near 0 if the answers were cached

    @property
    def is_followed(self) -> bool:
        """True if the order follows the compiler; False if there are too few answers for that."""
        return self.asked - len(self.refused) >= min(FEWEST, self.sets)

    def describe(self, target: str, other: str) -> str:
        """Return sentences that say what the compiler was asked, and whose order the scores follow.

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
        prior: (configs,) scores of another ranker, lower is faster. They rank the configurations
            that the compiler was not asked about, as far as they fit its answers.
        list_costs: returns the prior costs (states,) of the graph's state table for BACKEND.
        layouts: layouts at the program's boundary, see Estimator.estimate.
        tell: called beforehand with a sentence on the cost of asking the compiler.

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
        if most == len(sets):  # all sets fit into the budget: ask about them in order
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
    """Return a sentence that says what it will cost to ask the compiler about a graph."""
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
    """Return the order of the configurations by the log estimates of their sets, predicted ones for
    sets without an estimate. If the answers are too few for that, the scores are `prior`."""
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
    """Return logarithms of estimates; one of 0, as of a program that computes only scalars, counts
    as 1 ns."""
    return np.log(np.maximum(estimates, 1.0))


def _make_model(
    graph: Graph, sets: RequestSets, prior: np.ndarray, costs: np.ndarray
) -> RequestModel:
    """Return the model of the costs of the graph's states.

    Before any answer, the log estimate of a set is expected to be log(1 + its prior costs), which
    are shares of the bytes of all tensors. Where `prior` has another order than the prior costs, it
    decides which set is expected to have which of these values.
    """
    counts = sets.counts
    scores = np.bincount(sets.of_config, weights=prior, minlength=len(sets)) / counts
    table = state_tables(BACKEND)(graph)
    first = np.unique(sets.of_config, return_index=True)[1]  # a configuration of each set
    states = table.numbers[graph.layouts.rows[first]]
    expected = np.empty(len(sets))
    expected[np.argsort(scores, kind="stable")] = np.sort(np.log1p(costs[states].sum(axis=1)))
    # also what costs nothing by the prior costs may cost something
    sizes = (costs + DOUBT * table.shares[:, BYTES])[states]
    points = np.broadcast_to(np.arange(states.shape[1]), states.shape)
    return RequestModel([make_effects(each, sizes) for each in (states, points)], expected, counts)
