"""Rank layouts for a TPU: by its rules of layout assignment, and by its compiler's estimates.

`fastslow rank --target` uses the rules where the bundle's models have not learned from the target;
`--compile` asks the compiler as well.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from solution.collecting.target import CPU, parse_target
from solution.domain.graph import TIMED, has_estimates_for, name_estimate, show_source
from solution.system.errors import InputError
from solution.system.terminal import say
from solution.system.wording import join_names

if TYPE_CHECKING:
    from solution.collecting.tpu.estimator import Estimator
    from solution.serving.bundle import Bundle
    from solution.serving.ranking import Ranking
    from solution.serving.reading import Question

# names, for messages, of what determined a ranking's order
MODELS, COPIES = "the models", "what copies and padding cost"


# function (ranking, MODELS or COPIES: what determined its order, ranked question) -> (new ranking,
# sentences about it)
Follow = Callable[["Ranking", str, "Question"], tuple["Ranking", tuple[str, ...]]]


@contextmanager
def open_compiler(target: str | None, compilations: int | None) -> Iterator[Follow]:
    """Yield a function that reorders a ranking by the estimates of the target's compiler, see
    follow_compiler. Without --compile the function returns the ranking unchanged, and advises
    --compile once if a graph was ranked by COPIES. Raises InputError if the target is unknown, or
    its compiler cannot run here."""
    if target is None and compilations is not None:
        raise InputError(
            "--compile asks the compiler of a TPU: give --target as well, such as tpu:v3."
        )
    machine = parse_target(target) if target is not None else None
    if machine is None or compilations is None:
        advice = ["--compile 32 asks the compiler of a TPU."]

        def advise(
            ranking: "Ranking", whose: str, _: "Question"
        ) -> tuple["Ranking", tuple[str, ...]]:
            return ranking, (advice.pop(),) if whose == COPIES and advice else ()

        yield advise
        return
    from solution.collecting.tpu.estimator import Estimator

    with Estimator(machine) as estimator:
        yield partial(follow_compiler, estimator=estimator, compilations=compilations)


def find_doubt(bundle: "Bundle", target: str | None) -> str:
    """Return why the models' order may be wrong for the target; "" if they learned from it."""
    from solution.serving.bundle import DEFAULT

    sources = bundle.record.label_sources
    if target is None or (
        TIMED in sources if target == CPU else has_estimates_for(sources, target)
    ):
        return ""
    learned = join_names([show_source(source) for source in sources])
    if bundle.source == DEFAULT:
        learned = "timed on a CPU"
    return (
        f"the programs that the models learned from were {learned}, so their order may be wrong "
        f"for {target}"
    )


def rank_first(
    bundle: "Bundle",
    question: "Question",
    target: str | None,
    doubt: str,
    regret: float,
    confidence: float,
) -> tuple["Ranking", str]:
    """Rank a graph without the compiler; return also what determined the order, MODELS or COPIES.

    The order is that of the bundle's models if they learned from the target. Otherwise layouts of a
    whole graph for a TPU are ranked by add_known_costs. Other configurations are ranked by the
    models without a number to measure, which would hold only for the targets of training programs.

    Args:
        doubt: why the models' order may be wrong for the target, see find_doubt; "" if no reason.
        regret, confidence: see Bundle.rank.
    """
    from solution.collecting.tpu.ranking import BACKEND
    from solution.models.layout.known_costs import add_known_costs
    from solution.serving.ranking import Ranking

    graph = question.graph
    if doubt and target != CPU and not _find_obstacle(question):
        reason = (
            f"the order is that of {COPIES} under the rules of a TPU's layout assignment, and none "
            "is calibrated for that"
        )
        scores = add_known_costs(graph, BACKEND).astype(np.float32)
        unknown = np.full(graph.num_configs, np.nan)
        return Ranking(
            graph, scores, unknown, None, reason, False, regret, confidence, ()
        ), COPIES  # fmt: skip
    ranking = bundle.rank(graph, question.facts, regret=regret, confidence=confidence)
    return replace(ranking, measure=None, reason=doubt) if doubt else ranking, MODELS


def follow_compiler(
    ranking: "Ranking", whose: str, question: "Question", estimator: "Estimator", compilations: int
) -> tuple["Ranking", tuple[str]]:
    """Ask the compiler about layouts of a program; return the new ranking, and a sentence that says
    what determined its order.

    If the compiler cannot be asked, the ranking stays as it is, and the sentence says why. A
    ranking by the compiler has no number to measure: that is calibrated for the models' order.

    Args:
        ranking: the ranking without the compiler.
        whose: what determined the order of this ranking, MODELS or COPIES.
        question: the graph that was ranked.
        compilations: maximum number of sets of layout requests to ask about.
    """
    from solution.collecting.lifting.draft import NotLiftedError
    from solution.collecting.lifting.lift import lift
    from solution.collecting.tpu.asking import find_fixed_boundary
    from solution.collecting.tpu.ranking import BACKEND, Budget, rank_by_compiler
    from solution.collecting.tpu.target import find_libtpu_version
    from solution.models.layout.known_costs import list_known_costs

    graph, target = question.graph, estimator.target.name
    unasked = f"The compiler was not asked, so the order is that of {whose}: "
    if obstacle := _find_obstacle(question):
        return ranking, (unasked + obstacle,)
    module, layouts, restored = question.module, None, ""
    if module is None:
        try:
            module = lift(graph).module
        except NotLiftedError as error:
            return ranking, (unasked + str(error),)
        restored = " It was asked about a program restored from the graph, with guesses."
    else:
        layouts = find_fixed_boundary(module)
    budget, costs = Budget(compilations), partial(list_known_costs, backend=BACKEND)
    order = rank_by_compiler(graph, module, ranking.scores, costs, estimator, budget, layouts, say)
    words = order.describe(target, whose) + restored
    if not order.is_followed:
        return ranking, (words,)
    source = name_estimate(target, f"libtpu {find_libtpu_version()}")
    followed = replace(
        ranking,
        scores=order.scores.astype(np.float32),
        spread=np.full(graph.num_configs, np.nan),
        measure=None,
        reason=f"the order follows what a compiler {source}, and none is calibrated for that",
        estimates=order.estimates,
    )
    return followed, (words,)


def _find_obstacle(question: "Question") -> str:
    """Return why the compiler cannot be asked about a graph's configurations; "" if it can."""
    from solution.serving.calibration import describe_graph

    graph = question.graph
    if graph.collection.kind != "layout":
        return f"a TPU's compiler chooses the tiles of {graph.name} itself."
    if graph.options is not None:
        return f"the configurations of {graph.name} set compile options of a CPU, not layouts."
    if question.facts != describe_graph(graph):
        return (
            f"{graph.name} is pruned, and a program is restored from all nodes. Give the file that "
            "the store was prepared from."
        )
    return ""
