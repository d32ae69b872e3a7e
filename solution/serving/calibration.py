"""Compute how many configurations to measure: k, calibrated on programs unseen by the models.

For a program that was predicted out of fold, the needed k is known: the smallest k with which the
best of the first k ranked configurations is at most `regret` (a share) slower than the best of all.
The returned k is the quantile `confidence` of the needed k over these programs and one more program
that needs infinitely many (split conformal prediction). Graphs of one architecture, a program at
several sizes, share the weight of one program, because only programs are exchangeable (if the run
kept no programs together, each graph counts). If the run kept families together, the models that
predicted a program have seen no other program of its family.

Sources: Vovk, Gammerman and Shafer, "Algorithmic Learning in a Random World", 2005, chapter 2; Lee,
Barber and Willett, "Distribution-free inference with hierarchical data", 2023 (groups).
"""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from numbers import Real

import numpy as np

from solution.domain.graph import Graph
from solution.serving.record import Program
from solution.system.errors import InputError

REGRET, CONFIDENCE = 0.02, 0.9
ROUNDING = 1e-12  # tolerance for rounding in sums of weights
FEW = 512  # up to this many programs, all distances are computed, because scipy is slow to import
# No k is given for a program with more than MOST_TIMES times as many configurations as the program
# with the most configurations among those that calibrate k.
MOST_TIMES = 16


@dataclass(frozen=True)
class Facts:
    """A whole program's sizes, to compare it with training programs; pruned graphs lack them."""

    architecture: str
    nodes: int
    edges: int
    configurable: int


@dataclass(frozen=True)
class Measure:
    """The number of configurations to measure, and the reason for it."""

    k: int | None  # None: no number can be given
    reason: str


def check_promise(regret: float, confidence: float) -> None:
    """Raise InputError if regret or confidence is out of range, TypeError if it is no number."""
    for name, given in (("regret", regret), ("confidence", confidence)):
        if not isinstance(given, Real):
            raise TypeError(f"{name} is {given!r}, expected a number: 0.02 for 2%, for example")
    if not 0 <= regret <= 1:
        raise InputError(f"regret is {regret:g}, expected from 0 to 1: 2% or 0.02, for example.")
    if not 0 < confidence < 1:
        raise InputError(
            f"confidence is {confidence:g}, expected between 0 and 1: 90% or 0.9, for example."
        )


def describe_graph(graph: Graph) -> Facts:
    """Return the sizes of an unpruned graph."""
    return Facts(graph.architecture, graph.num_nodes, len(graph.edges), len(graph.configurable))


def find_steps(order: np.ndarray, runtimes: np.ndarray) -> tuple[tuple[int, float], ...]:
    """Return (k, slowdown) for each k whose k-th configuration in `order` (configs,) is faster than
    all before it. The slowdown is the best of the first k runtimes / the best of all - 1."""
    best = np.minimum.accumulate(runtimes[order])
    improved = np.flatnonzero(np.diff(best, prepend=np.inf))
    return tuple((int(k) + 1, float(best[k] / best[-1] - 1)) for k in improved)


def needed(steps: Sequence[tuple[int, float]], regret: float) -> int:
    """Return the smallest k whose slowdown is at most `regret`; see `find_steps`."""
    return next(k for k, slowdown in steps if slowdown <= regret)


def quantile(programs: Sequence[Program], regret: float, confidence: float) -> int | None:
    """Return the k that brings a share `confidence` of programs within `regret` of their best; None
    if there are too few programs."""
    sizes = Counter(map(_name_program, programs))
    weights: dict[int, float] = {}
    # A program has the weight 1 / (programs + 1), which its graphs share in equal parts.
    for program in programs:
        k = needed(program.steps, regret)
        share = 1 / sizes[_name_program(program)] / (len(sizes) + 1)
        weights[k] = weights.get(k, 0.0) + share
    reached = 0.0
    for k in sorted(weights):
        reached += weights[k]
        if reached >= confidence - ROUNDING:
            return k
    return None


def count_programs(graphs: Sequence[Program]) -> int:
    """Return the number of programs; graphs of one program at several sizes count once."""
    return len(set(map(_name_program, graphs)))


def _name_program(graph: Program) -> str:
    return f"{graph.group}:{graph.architecture}"


class Learned:
    """Training programs of a collection's models; quantiles of k and distances are cached."""

    def __init__(self, programs: Sequence[Program], *, by_family: bool = False) -> None:
        """`by_family`: models that predicted a program have seen no program of its family."""
        self.programs = programs
        self.calibrated = [program for program in programs if program.steps]
        self.number = count_programs(self.calibrated)
        groups = len({program.group for program in self.calibrated})
        self.unseen = ""
        if by_family:
            self.unseen = f" of {groups} families, each ranked by models that had not seen it"
        self.most = max((program.ranked for program in self.calibrated), default=0)
        self._quantiles: dict[tuple[float, float], int | None] = {}

    def quantile(self, regret: float, confidence: float) -> int | None:
        """Return the k that brings a share `confidence` of the calibrated programs within `regret`
        of their best; None if there are too few programs. Results are cached."""
        key = regret, confidence
        if key not in self._quantiles:
            self._quantiles[key] = quantile(self.calibrated, regret, confidence)
        return self._quantiles[key]

    def get_ready(self) -> None:
        """Fill the caches for the default regret and confidence, before the first request."""
        self.quantile(REGRET, CONFIDENCE)
        if self.programs:
            _ = self.gap, self._architectures

    def distance(self, facts: Facts) -> float:
        """Return the Euclidean distance of a program to the nearest learned program, with
        coordinates log(1 + size) / their standard deviation; 0 for a learned architecture."""
        if facts.architecture in self._architectures:
            return 0.0
        return float(_distances(np.array(_sizes(facts)) / self._scale, self._sizes).min())

    @cached_property
    def gap(self) -> float:
        """Return the largest distance of a learned program to the nearest other program. The same
        program at another size does not count as another program."""
        names = [_name_program(program) for program in self.programs]
        _, numbers = np.unique(names, return_inverse=True)
        if len(numbers) > FEW:
            nearest = _find_nearest(self._sizes, numbers)
        else:
            distances = _distances(self._sizes[:, None], self._sizes)
            distances[numbers[:, None] == numbers] = np.inf
            nearest = distances.min(axis=1)
        return float(nearest.max(initial=0.0, where=nearest < np.inf))

    @cached_property
    def _architectures(self) -> frozenset[str]:
        return frozenset(program.architecture for program in self.programs)

    @cached_property
    def _sizes(self) -> np.ndarray:
        return np.array([_sizes(program) for program in self.programs]) / self._scale

    @cached_property
    def _scale(self) -> np.ndarray:
        scale: np.ndarray = np.std([_sizes(program) for program in self.programs], axis=0)
        scale[scale == 0] = 1  # all programs have the same size: do not scale differences
        return scale


def measure(
    facts: Facts,
    configs: int,
    learned: Learned,
    regret: float = REGRET,
    confidence: float = CONFIDENCE,
) -> Measure:
    """Return how many of `configs` configurations to measure, or why no number can be given. The
    number is calibrated on the programs of `learned` that were predicted out of fold."""
    if configs == 1:
        return Measure(1, "there is only one configuration")
    k = learned.quantile(regret, confidence)
    if k is None:
        wanted = math.ceil(confidence / (1 - confidence) - 1e-9)
        return Measure(
            None, f"{learned.number} programs predicted out of fold are too few for "
            f"{confidence:.0%}: expected at least {wanted}"
        )  # fmt: skip
    distance = learned.distance(facts)
    if distance > learned.gap:
        return Measure(
            None, f"the program is unlike those learned from: by size it lies {distance:.2f} from "
            f"the nearest of them, and each of them at most {learned.gap:.2f} from the next"
        )  # fmt: skip
    if configs > learned.most * MOST_TIMES:
        return Measure(
            None, f"it has {configs:,} configurations, and the programs of the calibration had up "
            f"to {learned.most:,}"
        )  # fmt: skip
    reason = (
        f"within {regret:.1%} of the best for {confidence:.0%} of programs, calibrated on "
        f"{learned.number} programs{learned.unseen}"
    )
    # more configurations than any calibrated program had: measure the share k / learned.most
    if configs > learned.most:
        k = math.ceil(k * configs / learned.most)
        reason += f"; widened, because it has {configs:,} configurations, and they had up to "
        reason += f"{learned.most:,}"
    return Measure(min(k, configs), reason)


def _sizes(program: Facts | Program) -> list[float]:
    return [math.log1p(n) for n in (program.nodes, program.edges, program.configurable)]


def _find_nearest(points: np.ndarray, groups: np.ndarray) -> np.ndarray:
    """Return each point's distance (points,) to the nearest point of another group, or infinity.
    Two group numbers differ in some bit. So, for each bit, points of groups with the bit are looked
    up in a tree of the points of groups without it, and vice versa."""
    from scipy.spatial import cKDTree  # slow to import

    nearest = np.full(len(points), np.inf)
    for bit in range(int(groups.max()).bit_length()):
        has_bit = (groups >> bit & 1).astype(bool)
        for asking in (has_bit, ~has_bit):
            others = points[~asking]
            if asking.any() and len(others):
                _, found = cKDTree(others).query(points[asking])
                distances = _distances(points[asking], others[found])
                nearest[asking] = np.minimum(nearest[asking], distances)
    return nearest


def _distances(one: np.ndarray, others: np.ndarray) -> np.ndarray:
    return np.asarray(np.sqrt(((others - one) ** 2).sum(axis=-1)))
