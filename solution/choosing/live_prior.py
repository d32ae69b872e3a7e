"""Score a program's configurations before any is compiled: the search's prior.

A bundle, a packed ensemble of trained models, gives the scores if its models learned from labels of
the target (a CPU or a TPU generation). For other TPUs, a layout's score is the cost of its copies
and padding, which the rules of a TPU's layout assignment predict.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
import polars as pl

from solution.choosing.guided import COPIES_DOUBT, DOUBT, FAR_DOUBT, Beliefs
from solution.collecting.program_space import TILES, ProgramSpace, make_collected_space
from solution.collecting.space import Prior
from solution.collecting.target import CPU
from solution.collecting.tpu.ranking import BACKEND
from solution.domain.codebook import encode
from solution.domain.graph import has_estimates_for
from solution.domain.vocabulary import NUM_LAYOUT_FEATURES
from solution.features.propagation.state_table import state_tables
from solution.models.layout.known_costs import weigh_states
from solution.programs.hlo.records import read_tiles
from solution.programs.program import make_graph
from solution.serving.bundle import Bundle
from solution.serving.calibration import Learned, describe_graph
from solution.serving.session import Session

T = TypeVar("T")
LAYOUT, TILE = "layout:xla:random", "tile:xla"
COPIES = (
    "Guided by what copies and padding cost under the rules of a TPU's layout assignment; no model "
    "has learned from this TPU."
)
UNLED = "No model of these configurations: the search learns from its measurements alone."


@dataclass(frozen=True, eq=False)
class LivePrior:
    """Scores of the program's configurations, and how much the search trusts them."""

    score: Prior | None  # None: no model scores such configurations, or the search uses no model
    beliefs: Beliefs
    note: str  # which model or costs guide the search, in words


def open_prior(bundle: Bundle, space: ProgramSpace, target: str = CPU) -> LivePrior:
    """Return a prior for the space's layouts or, if it has no layouts, for its tiles; if it has
    neither, a prior without scores. Layouts for a TPU from which the bundle did not learn are
    scored by their costs of copies and padding, because scores of models that learned from a CPU
    are worse (docs/choosing.md)."""
    kind = "layout" if space.layout_sites else "tile" if space.product is not None else ""
    sources = bundle.record.label_sources
    is_other = target != CPU and not has_estimates_for(sources, target)
    if is_other and kind == "layout":
        costs = CopyCosts(space)
        beliefs = Beliefs("copies", COPIES_DOUBT, costs.name_programs)
        return LivePrior(costs.score, beliefs, COPIES)
    name = {"layout": LAYOUT, "tile": TILE, "": ""}[kind]
    if name not in bundle.collections:
        return LivePrior(None, Beliefs(), UNLED)
    graph = make_graph(space.program, name)
    learned = Learned(bundle.record.programs.get(name, ()))
    distance = learned.distance(describe_graph(graph))
    is_far = distance > learned.gap
    session = bundle.session(graph)
    scorer = _score_layouts if kind == "layout" else _score_tiles
    note = f"Guided by {bundle.describe()}"
    if is_far:
        note += (
            f" The program differs from the training programs: its distance to the nearest one is "
            f"{distance:.2f}, theirs is at most {learned.gap:.2f}. So the scores count little."
        )
    doubt = FAR_DOUBT if is_far else DOUBT
    find = _remember(scorer(session, space))
    return LivePrior(
        lambda configs: np.array(find(configs), np.float64), Beliefs(kind, doubt), note
    )


class CopyCosts:
    """Predicts, by the rules of a TPU's layout assignment, the cost of copies and padding in a
    configuration, and which configurations compile to the same program."""

    def __init__(self, space: ProgramSpace) -> None:
        self._space, self._graph = space, make_graph(space.program, LAYOUT)
        # for each configuration: (cost, hash of its states), both minus the default's. A state is
        # the layouts and the copy that an instruction or operand has in a configuration.
        self._look_up = _remember(self._compute)

    def score(self, configs: np.ndarray) -> np.ndarray:
        """Return the costs (n,) of configurations (n, sites) minus the default's cost, as shares of
        the bytes of all tensors."""
        return np.array([cost for cost, _ in self._look_up(configs)])

    def name_programs(self, configs: np.ndarray) -> list[bytes]:
        """Return for each configuration (n, sites) a name of the program that it is expected to
        compile to; configurations with equal names compile to the same program."""
        options = configs[:, len(self._space.layout_sites) :]
        found = zip(self._look_up(configs), options, strict=True)
        return [b"%d " % state + row.tobytes() for (_, state), row in found]

    def _compute(self, configs: np.ndarray) -> list[tuple[float, int]]:
        # The state table lists only instructions whose state differs between its configurations.
        # Two reference configurations come first: the default, whose sums are subtracted, and one
        # that sets all layouts, because computations in which no layout is set would be inlined.
        everything = np.where(self._space.sizes > 1, 1, self._space.default)
        references = np.stack([self._space.default, everything]).astype(configs.dtype)
        layouts = self._space.layouts(np.concatenate([references, configs]))
        graph = replace(self._graph, configs=encode(layouts))
        table = state_tables(BACKEND)(graph)
        states = np.column_stack([table.node, table.reader, table.tensors, table.layouts])
        hashes = pl.DataFrame(states, orient="row").hash_rows(seed=0).to_numpy()
        costs, names = (
            values[table.numbers].sum(axis=1)[graph.layouts.rows]
            for values in (weigh_states(graph, table).total, hashes)
        )
        # Each configuration's cost and name are sums over its states. A sum of the states' hashes
        # (unsigned integers, which wrap around) is a hash of the set of states.
        left = slice(len(references), None)
        differences = zip((costs - costs[0])[left], (names - names[0])[left], strict=True)
        return [(float(cost), int(name)) for cost, name in differences]


def _score_layouts(session: Session, space: ProgramSpace) -> Prior:
    def score(configs: np.ndarray) -> np.ndarray:
        layouts = space.layouts(configs)
        return session.score(layouts.reshape(*layouts.shape[:2], NUM_LAYOUT_FEATURES))

    return score


def _score_tiles(session: Session, space: ProgramSpace) -> Prior:
    """Return a function that scores configurations of a matrix product by their tiles. Choice 0
    has no tile, because a library computes the matrix product; it gets the mean of all scores."""
    tiles = make_collected_space(space.program, TILES)
    assert tiles.members is not None
    runs = [tiles.make_run(config, 1) for config in tiles.members]
    of_tiles = session.score(read_tiles(runs)).astype(np.float64)
    scores = np.append(of_tiles.mean(), of_tiles)

    def score(configs: np.ndarray) -> np.ndarray:
        return np.asarray(scores[configs[:, -1]])

    return score


def _remember(
    compute: Callable[[np.ndarray], Iterable[T]],
) -> Callable[[np.ndarray], list[T]]:
    """Return a version of `compute` that caches its result for each configuration."""
    known: dict[bytes, T] = {}

    def ask(configs: np.ndarray) -> list[T]:
        keys = [row.tobytes() for row in np.ascontiguousarray(configs, np.int32)]
        new = {key: row for row, key in enumerate(keys) if key not in known}
        if new:
            known.update(zip(new, compute(configs[list(new.values())]), strict=True))
        return [known[key] for key in keys]

    return ask
