"""Compute how many configurations to measure: k, calibrated on programs unseen by the models.

For a program that was predicted out of fold, the needed k is known: the smallest k with which the
best of the first k ranked configurations is at most `regret` (a share) slower than the best of all.
The returned k is the quantile `confidence` of the needed k over these programs and one more program
that needs infinitely many (split conformal prediction). Graphs of one architecture, a program at
several sizes, share the weight of one program, because only programs are exchangeable (if the run
kept no programs together, each graph counts). If the run kept families together, the models that
predicted a program have seen no other program of its family.

So calibrated programs lay some distance, by size, from all that their models had learned from: at
least the distance to the nearest program of another group (graphs that always share a fold). No k
is given for a program that lies further from the training programs than the calibrated program for
which this distance is largest.

If a collection's own programs give no k, its calibration also counts the programs of collections
whose configurations were drawn alike and that are ranked by the same experiments, such as
layout:nlp:random for layout:xla:random. Each program's distance is to its own collection's.

Sources: Vovk, Gammerman and Shafer, "Algorithmic Learning in a Random World", 2005, chapter 2; Lee,
Barber and Willett, "Distribution-free inference with hierarchical data", 2023 (groups).
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
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

    # the same with programs of other collections (see `learn`), if there are any
    wider: "Learned | None" = None

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
        if self.wider is not None:
            self.wider.get_ready()

    def distance(self, facts: Facts) -> float:
        """Return the Euclidean distance of a program to the nearest learned program, with
        coordinates log(1 + size); 0 for a learned architecture."""
        if facts.architecture in self._architectures:
            return 0.0
        return float(_distances(np.array(_sizes(facts)), self._sizes).min(initial=np.inf))

    @cached_property
    def gap(self) -> float:
        """Return the largest distance of a calibrated program to the nearest program of another
        group. The models that predicted it out of fold have not learned from its group, so they
        have ranked a program at this distance from what they know."""
        _, numbers = np.unique([program.group for program in self.programs], return_inverse=True)
        if len(numbers) > FEW:
            nearest = _find_nearest(self._sizes, numbers)
        else:
            distances = _distances(self._sizes[:, None], self._sizes)
            distances[numbers[:, None] == numbers] = np.inf
            nearest = distances.min(axis=1, initial=np.inf)
        counts = np.array([bool(program.steps) for program in self.programs], bool)
        return float(nearest.max(initial=0.0, where=counts & (nearest < np.inf)))

    @cached_property
    def _architectures(self) -> frozenset[str]:
        return frozenset(program.architecture for program in self.programs)

    @cached_property
    def _sizes(self) -> np.ndarray:
        return np.array([_sizes(program) for program in self.programs]).reshape(-1, 3)


class _Wider(Learned):
    """Programs of several collections to calibrate k. Distances are to those of the first, the
    only ones that its models learned from."""

    def __init__(self, own: Learned, others: Sequence[Learned], *, by_family: bool) -> None:
        everything = own, *others
        programs = list(chain.from_iterable(learned.programs for learned in everything))
        super().__init__(programs, by_family=by_family)
        self._own, self._everything = own, everything

    def distance(self, facts: Facts) -> float:
        return self._own.distance(facts)

    @cached_property
    def gap(self) -> float:
        return max(learned.gap for learned in self._everything)


def learn(
    programs: Mapping[str, Sequence[Program]],
    weights: Mapping[str, Mapping[str, float]],
    *,
    by_family: bool = False,
) -> dict[str, Learned]:
    """Return what calibrates each collection. Collections whose names end in the same search,
    with equal `weights`, {experiment: its weight in the merge}, count for each other: they are in
    `Learned.wider`."""
    found = {name: Learned(own, by_family=by_family) for name, own in programs.items()}
    searches = {name: name.split(":")[-1] for name in found}  # default, random; xla for tile
    for name, own in found.items():
        others = [
            other
            for key, other in found.items()
            if key != name and searches[key] == searches[name] and weights[key] == weights[name]
        ]
        if others:
            own.wider = _Wider(own, others, by_family=by_family)
    return found


def measure(
    facts: Facts,
    configs: int,
    learned: Learned,
    regret: float = REGRET,
    confidence: float = CONFIDENCE,
) -> Measure:
    """Return how many of `configs` configurations to measure, or why no number can be given. The
    number is calibrated on the programs of `learned` that were predicted out of fold or, if they
    give none, also on those of `learned.wider`; then it is at least the k of those of `learned`."""
    if configs == 1:
        return Measure(1, "there is only one configuration")
    found = _measure(facts, configs, learned, regret, confidence)
    if found.k is not None or learned.wider is None or not learned.programs:
        return found
    least = learned.quantile(regret, confidence) or 0
    wider = _measure(facts, configs, learned.wider, regret, confidence, least)
    if wider.k is None:
        return wider
    reason = f"{wider.reason}; of more than one collection, because for its own {found.reason}"
    return Measure(wider.k, reason)


def _measure(
    facts: Facts, configs: int, learned: Learned, regret: float, confidence: float, least: int = 0
) -> Measure:
    k = learned.quantile(regret, confidence)
    if k is None:
        wanted = math.ceil(confidence / (1 - confidence) - 1e-9)
        return Measure(
            None, f"{learned.number} programs predicted out of fold are too few for "
            f"{_show_share(confidence)}: expected at least {wanted}"
        )  # fmt: skip
    k = max(k, least)
    distance = learned.distance(facts)
    if distance > learned.gap:
        return Measure(
            None, f"the program is unlike those learned from in its collection: by size it lies "
            f"{distance:.2f} from the nearest of them, and those of the calibration at most "
            f"{learned.gap:.2f}"
        )  # fmt: skip
    if configs > learned.most * MOST_TIMES:
        return Measure(
            None, f"it has {configs:,} configurations, and the programs of the calibration had up "
            f"to {learned.most:,}"
        )  # fmt: skip
    reason = (
        f"within {regret:.1%} of the best for {_show_share(confidence)} of programs, calibrated on "
        f"{learned.number} programs{learned.unseen}"
    )
    # more configurations than any calibrated program had: measure the share k / learned.most
    if configs > learned.most:
        k = math.ceil(k * configs / learned.most)
        reason += f"; widened, because it has {configs:,} configurations, and they had up to "
        reason += f"{learned.most:,}"
    return Measure(min(k, configs), reason)


def _show_share(share: float) -> str:
    """Return a share in percent with all its digits: 90%, 99.99%."""
    return f"{100 * share:.12g}%"


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
