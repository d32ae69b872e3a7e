"""The compiler of a TPU v3 as a ranker: it estimates 32 configurations of a graph, and a model of
its estimates ranks the others.

A graph is turned back into a program (solution.collecting.lifting). Measured runtimes are used
neither to train the ranker nor to rank. A graph whose program cannot be restored, or is rejected by
the compiler, is ranked by the prior costs of copies (solution.models.layout.known_costs) alone,
with a warning.

Another budget is another experiment: a file with, for example,
CompilerSettings(compilations=200, minutes=30).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Self

import numpy as np

from solution.collecting.lifting.draft import NotLiftedError
from solution.collecting.lifting.lift import lift
from solution.collecting.target import parse_target
from solution.collecting.tpu.estimator import Estimator
from solution.collecting.tpu.ranking import BACKEND, Budget, rank_by_compiler
from solution.collecting.tpu.target import TpuTarget
from solution.domain.collection import LAYOUT
from solution.domain.graph import Graph
from solution.experiments.base import Experiment
from solution.models.base import Ranker, RankerSettings, check_no_options
from solution.models.layout.known_costs import add_known_costs, list_known_costs
from solution.models.settings import check_choice, check_size
from solution.system.progress import console, warn
from solution.system.report import Report, silent

COPIES = "the prior costs of copies"  # how a warning names the costs that replace estimates
QUICK = 2  # number of compilations in a quick look (smoke run)
MOST_COMPILATIONS, MOST_MINUTES = 1 << 20, 1 << 20


@dataclass(frozen=True)
class CompilerSettings(RankerSettings):
    """Settings of CompilerRanker."""

    target: str = "tpu:v3"
    # at most this many different sets of layout requests are compiled for a graph
    compilations: int = 32
    # No compilation of a graph begins after this much processor time. If this limit is reached,
    # scores depend on the machine's speed and on the cached compilations.
    minutes: int = 10

    def __post_init__(self) -> None:
        check_choice("target", self.target, TpuTarget.NAMES)
        check_size("compilations", self.compilations, most=MOST_COMPILATIONS)
        check_size("minutes", self.minutes, most=MOST_MINUTES)

    @property
    def learns(self) -> bool:
        return False

    @property
    def needed_hops(self) -> int | None:
        """None: keep the whole graph, because a program is restored from all of its nodes."""
        return None

    def quick(self) -> "CompilerSettings":
        """Return settings for a smoke run: few compilations, to test that the compiler works."""
        return replace(self, compilations=min(QUICK, self.compilations))

    def build(self, seed: int) -> "CompilerRanker":
        """Return the ranker; the seed has no effect."""
        return CompilerRanker(self)


class CompilerRanker(Ranker):
    """A ranker that asks the compiler to estimate a graph's configurations. A score depends on the
    configurations scored together, because these share a budget of compilations."""

    reads_program_order = True

    def __init__(self, settings: CompilerSettings) -> None:
        self.settings = settings

    def fit(
        self, graphs: Sequence[Graph], validation: Sequence[Graph], report: Report = silent
    ) -> Self:
        """Learn nothing; raise InputError if the compiler is not installed."""
        parse_target(self.settings.target).check()
        return self

    def predict(self, graph: Graph) -> np.ndarray:
        check_no_options(graph)
        target, prior = parse_target(self.settings.target), add_known_costs(graph, BACKEND)
        try:
            module = lift(graph).module
        except NotLiftedError as error:
            warn(f"{error} So the compiler is not asked: the order is that of {COPIES}.")
            return prior.astype(np.float32)
        costs = partial(list_known_costs, backend=BACKEND)
        budget = Budget(self.settings.compilations, 60.0 * self.settings.minutes)
        with Estimator(target) as estimator:
            order = rank_by_compiler(graph, module, prior, costs, estimator, budget, tell=tell)
        if not order.is_followed:
            warn(f"{graph.name}: {order.describe(target.name, COPIES)}")
        return order.scores.astype(np.float32)

    def save(self, folder: Path) -> None:
        pass

    def load(self, folder: Path) -> Self:
        return self


def tell(words: str) -> None:
    """Print on standard error how many compilations are planned and what they may cost."""
    console.print(words, markup=False, highlight=False, soft_wrap=True)


EXPERIMENT = Experiment(name="layout_compiler_001", collections=LAYOUT, ranker=CompilerSettings())
