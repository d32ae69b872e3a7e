"""What does not matter of a decision is taken out of it; what does stays."""

import numpy as np
import pytest

from solution.placement.baselines.divisions import decide_at_random
from solution.placement.evaluation import TASKS, Evaluator
from solution.placement.graphs.recurrent import make_rnnlm
from solution.placement.machine import make_machine
from solution.placement.policy.tidying import LOSS, tidy
from solution.placement.search import optimize
from solution.placement.simulation.decision import Decision
from solution.placement.simulation.environment import Environment
from tests.placement.made import make_graph


def count_cuts(evaluator: Evaluator, decision: Decision) -> int:
    placement = decision.placement[evaluator.graph.leaders][evaluator.graph.edges]
    return int((placement[:, 0] != placement[:, 1]).sum())


def test_what_a_search_left_behind_is_cleared_away() -> None:
    evaluator = Evaluator(Environment(make_rnnlm(2, 3), make_machine(2)))
    optimize(evaluator, None, 600)
    assert evaluator.best is not None
    before, after = evaluator.best, tidy(evaluator, evaluator.best)
    assert evaluator.environment.runtime(after).seconds <= (1 + LOSS) * evaluator.seconds
    assert count_cuts(evaluator, after) < count_cuts(evaluator, before)
    assert len(np.unique(after.fusion)) <= len(np.unique(before.fusion))
    assert len(np.unique(after.fusion)) <= 2


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("tasks", [TASKS, ("placement",), ("fusion", "schedule")])
def test_no_decision_becomes_slower_than_is_allowed(tasks: tuple[str, ...], seed: int) -> None:
    evaluator = Evaluator(Environment(make_graph(40, seed, tied=True), make_machine(3)), tasks)
    random = np.random.default_rng(seed)
    decision = evaluator.keep_fixed(decide_at_random(evaluator.graph, evaluator.machine, random))
    after = tidy(evaluator, decision)
    runtime = evaluator.environment.runtime
    assert runtime(after).seconds <= (1 + LOSS) * runtime(decision).seconds
    kept = evaluator.keep_fixed(after)
    for one, other in zip(vars(after).values(), vars(kept).values(), strict=True):
        assert np.array_equal(one, other)  # what is not decided stays
