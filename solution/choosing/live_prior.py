"""Order a program's configurations before any is compiled: the search's prior.

A bundle, which is a packed ensemble of trained models, orders them for the target that its models
have learned from. The layouts for a TPU are ordered by what copies and padding cost, which the
rules of a TPU's layout assignment predict, unless the bundle has learned from that TPU.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from solution.choosing.guided import COPIES_DOUBT, DOUBT, FAR_DOUBT, Beliefs
from solution.collecting.program_space import TILES, ProgramSpace, make_collected_space
from solution.collecting.space import Prior
from solution.collecting.target import CPU
from solution.domain.codebook import encode
from solution.domain.vocabulary import NUM_LAYOUT_FEATURES
from solution.experiments.layout_compiler_001 import add_known_costs
from solution.programs.hlo.records import read_tiles
from solution.programs.program import make_graph
from solution.serving.bundle import Bundle
from solution.serving.calibration import Learned, describe_graph
from solution.serving.session import Session

LAYOUT, TILE = "layout:xla:random", "tile:xla"
COPIES = (
    "Guided by what copies and padding cost under the rules of a TPU's layout assignment; no model "
    "has learned from this TPU."
)
UNLED = "No model of these configurations: the search learns from its measurements alone."


@dataclass(frozen=True, eq=False)
class LivePrior:
    """A bundle's scores of the program's configurations, and how much the search trusts them."""

    score: Prior | None  # None: the bundle has no model for this kind of configuration
    beliefs: Beliefs
    note: str  # what guides the search, in words


def open_prior(bundle: Bundle, space: ProgramSpace, target: str = CPU) -> LivePrior:
    """Return a prior of layouts if the space has any, otherwise of tiles; compile options are
    searched without one. Layouts for a TPU that the bundle has not learned from are scored by the
    costs of copies and padding: the scores of models that learned from a CPU are worse there
    (docs/choosing.md)."""
    kind = "layout" if space.layout_sites else "tile" if space.product is not None else ""
    is_other = target != CPU and not any(f" {target}, " in s for s in bundle.record.label_sources)
    if is_other and kind == "layout":
        return LivePrior(_remember(_score_copies(space)), Beliefs("copies", COPIES_DOUBT), COPIES)
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
    return LivePrior(_remember(scorer(session, space)), Beliefs(kind, doubt), note)


def _score_copies(space: ProgramSpace) -> Prior:
    graph = make_graph(space.program, LAYOUT)

    def score(configs: np.ndarray) -> np.ndarray:
        return add_known_costs(replace(graph, configs=encode(space.layouts(configs))))

    return score


def _score_layouts(session: Session, space: ProgramSpace) -> Prior:
    def score(configs: np.ndarray) -> np.ndarray:
        layouts = space.layouts(configs)
        return session.score(layouts.reshape(*layouts.shape[:2], NUM_LAYOUT_FEATURES))

    return score


def _score_tiles(session: Session, space: ProgramSpace) -> Prior:
    """Return a function that scores tiles, and the library's product by their mean."""
    tiles = make_collected_space(space.program, TILES)
    assert tiles.members is not None
    runs = [tiles.make_run(config, 1) for config in tiles.members]
    of_tiles = session.score(read_tiles(runs)).astype(np.float64)
    scores = np.append(of_tiles.mean(), of_tiles)

    def score(configs: np.ndarray) -> np.ndarray:
        return np.asarray(scores[configs[:, -1]])

    return score


def _remember(score: Prior) -> Callable[[np.ndarray], np.ndarray]:
    """Return a cached `score`, which is called for new configurations only."""
    known: dict[bytes, float] = {}

    def ask(configs: np.ndarray) -> np.ndarray:
        keys = [row.tobytes() for row in np.ascontiguousarray(configs, np.int32)]
        new = {key: row for row, key in enumerate(keys) if key not in known}
        if new:
            known.update(zip(new, score(configs[list(new.values())]).tolist(), strict=True))
        return np.array([known[key] for key in keys])

    return ask
