"""Bayesian optimization with an ensemble's scores as prior mean of the surrogate.

Settings that act on the whole program (compile options) are tried first, each applied to the
fastest configuration so far: one setting may halve the time, and random configurations rarely
contain it. For a TPU's layouts, whose scores are good, only every second measurement tries a
setting. A setting that did not change the estimate at all is not tried again with other layouts.
Then the optimizer measures the candidate with the largest acquisition value: the expected
improvement times the probability that the candidate works. Some measurements are of random
candidates. The configurations of a batch are picked one by one, as if the earlier ones had taken
their expected times; so the batch is diverse. A site is a parameter, a choice the index of a value.
"""

from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass

import numpy as np

from solution.choosing.proposer import Proposer
from solution.choosing.surrogate import Belief, Forecast, Surrogate
from solution.collecting.space import Prior, Space, find_candidates, name_config, squared_distances

# kernel lengths of the surrogate's members, in median distances between configurations
LENGTHS = (1.0, 4.0)
# variances of a measurement's error, in units of the variance around the line (see LINES)
NOISES = (0.02, 0.3)
# {kind of configuration: (slope of log runtimes over the scores, standard deviation around that
# line)}: medians over programs that the models had not seen. "copies" are layouts scored by the
# costs of copies and padding, which a TPU's layout rules predict without learning: medians over
# estimates of 18 programs for a TPU v3.
LINES = {"tile": (0.42, 0.15), "layout": (0.05, 0.03), "copies": (0.18, 0.10)}
# standard deviation of log runtimes for kinds of configurations not in LINES
UNSURE = 0.1
# prior weight of the hypothesis that the scores are useless: for programs like the training
# programs, then for other programs
DOUBT, FAR_DOUBT = 0.65, 0.9
# DOUBT for the kind "copies": small, because Kendall's tau of its costs and the estimates is 0.8
COPIES_DOUBT = 0.3
# every EXPLORED-th measurement is of a random candidate; the first has the index FIRST_EXPLORED
EXPLORED = 16
FIRST_EXPLORED = 11
# EXPLORED for the kind "copies". It is smaller, because the costs mislead in some programs, such as
# loops with small dots; there random candidates find faster configurations.
EXPLORED_BY_COPIES = 4
ENOUGH_NEUTRAL = 3  # skip an option if this many of its values were tried and none had an effect
FIRST_BY_CHANCE = 4  # number of random measurements at the start if there are no scores
PARENTS = 4  # number of configurations whose neighbours are candidates
SAMPLE = 256  # random configurations from which the scales of scores and of distances are computed
STRICTNESS = 10.0  # C (inverse regularisation) of the logistic regression that predicts failures


@dataclass(frozen=True)
class Beliefs:
    """Prior weights of the surrogate's members, which say how much a search trusts the scores."""

    kind: str = ""  # "layout", "tile" or "copies"; the scores of other kinds are ignored
    doubt: float = DOUBT  # prior weight of the surrogate's members that ignore the scores
    # returns a name of the program to which each configuration (n, sites) is expected to compile;
    # None: it is not known which configurations compile to the same program
    name_programs: Callable[[np.ndarray], Sequence[bytes]] | None = None

    def count_settings(self, done: int, count: int) -> int:
        """Return how many of the next `count` measurements, after `done` earlier ones, may try
        untried whole-program settings (compile options): half for "copies", otherwise all."""
        return (done + count) // 2 - done // 2 if self.kind == "copies" else count

    def explores(self, number: int) -> bool:
        """Return True if measurement `number`, counted from 0, is of a random candidate."""
        often = EXPLORED_BY_COPIES if self.kind == "copies" else EXPLORED
        return number % often == FIRST_EXPLORED % often

    def mixture(self, *, has_prior: bool) -> tuple[Belief, ...]:
        """Return the surrogate's members: one for each kernel length, noise and slope."""
        slope, deviation = LINES.get(self.kind, (0.0, UNSURE))
        alone = float(np.hypot(slope, deviation))
        members = []
        for length in LENGTHS:
            for noise in NOISES:
                doubt = self.doubt if has_prior and slope else 1.0
                members.append(Belief(0.0, alone, length, noise, doubt))
                if doubt < 1:
                    members.append(Belief(slope, deviation, length, noise, 1 - doubt))
        return tuple(members)


class Guided(Proposer):
    """Bayesian optimization with a Surrogate; its prior means follow the scores, if any."""

    def __init__(
        self,
        space: Space,
        seed: int = 0,
        prior: Prior | None = None,
        beliefs: Beliefs | None = None,
    ) -> None:
        super().__init__(space, seed)
        self._prior = prior
        self._beliefs = beliefs or Beliefs()
        self._mixture = self._beliefs.mixture(has_prior=prior is not None)
        # A separate generator, so that the scales do not depend on the search's random draws.
        sample = space.draw(np.random.default_rng(0), SAMPLE)
        self._unit = _median_distance(space.describe(sample))
        scores = self._raw(sample)
        self._center, self._scale = float(scores.mean()), float(scores.std()) or 1.0

    def _propose(self, count: int) -> np.ndarray:
        idle = self._find_idle()
        untried = [s for s in self.space.find_untried(self.configs) if not idle.issuperset(s)]
        first = self.space.apply(untried, self.best(1))
        first = first[[name_config(row) not in self.known for row in first]]
        first = first[: self._beliefs.count_settings(len(self.times), count)]
        left = count - len(first)
        return np.concatenate([self._choose(left, idle), first]) if left else first

    def _find_idle(self) -> set[tuple[int, int]]:
        """Return the whole-program settings (site, choice) without effect: wherever a configuration
        was tried with and without the setting, both times are equal. If an option has
        ENOUGH_NEUTRAL such choices and no choice with an effect, return all its choices. This
        happens only with a TPU's estimates, because measured times are never exactly equal."""
        measured = [*zip(self.configs, self.times, strict=True)]
        time_of = {name_config(row): time for row, time in measured}
        changes: dict[tuple[int, int], bool] = {}
        for row, time in measured:
            for site in self.space.broad:
                without = row.copy()
                without[site] = self.space.default[site]
                other = time_of.get(name_config(without))
                if row[site] != without[site] and other is not None:
                    key = site, int(row[site])
                    changes[key] = changes.get(key, False) or other != time
        for site in self.space.broad:
            known = [changed for (one, _), changed in changes.items() if one == site]
            if len(known) >= ENOUGH_NEUTRAL and not any(known):
                changes |= dict.fromkeys([(site, n) for n in range(self.space.sizes[site])], False)
        return {setting for setting, changed in changes.items() if not changed}

    def _choose(self, count: int, idle: Set[tuple[int, int]]) -> np.ndarray:
        """Return the `count` candidates with the largest acquisition values, chosen one by one.
        `idle`: settings without effect, see _find_idle."""
        pool = find_candidates(
            self.space, self.generator, self.known, self.best(PARENTS), self._prior
        )
        pool = self._drop_equals(pool, idle)
        if not len(pool):
            return pool
        columns, scores = self.space.describe(pool), self.score(pool)
        works = self._works(columns)
        alone = self._forecast(columns, scores, [], np.empty(0)) if len(self.sound) else None
        chosen: list[int] = []
        for number in range(len(self.times), len(self.times) + min(count, len(pool))):
            left = np.setdiff1d(np.arange(len(pool)), chosen)
            if self._beliefs.explores(number):
                chosen.append(int(self.generator.choice(left)))
            else:
                worth = self._worth(columns, scores, alone, works, chosen)
                chosen.append(int(left[np.argmax(worth[left])]))
        return pool[chosen]

    def _drop_equals(self, pool: np.ndarray, idle: Set[tuple[int, int]]) -> np.ndarray:
        """Return one candidate per expected program (see Beliefs.name_programs), without programs
        that were measured, and with `idle` settings reset to their defaults. If no candidate is
        left, return the pool unchanged."""
        name_programs = self._beliefs.name_programs
        if not len(pool) or (name_programs is None and not idle):
            return pool
        plain, measured = pool.copy(), self.configs.copy()
        for configs in (plain, measured):
            for site, choice in idle:
                configs[configs[:, site] == choice, site] = self.space.default[site]
        name = name_programs or (lambda configs: [row.tobytes() for row in configs])
        known = set(name(measured)) if len(measured) else set()
        first = {key: row for row, key in reversed(list(enumerate(name(plain))))}
        rows = sorted(row for key, row in first.items() if key not in known)
        return plain[rows] if rows else pool

    def _worth(
        self,
        columns: np.ndarray,
        scores: np.ndarray,
        alone: Forecast | None,
        works: np.ndarray,
        chosen: list[int],
    ) -> np.ndarray:
        """Return acquisition values (n,) of candidates with features `columns` (n, columns) and
        standardised scores (n,). `alone`: the forecast from measured times only; None if there are
        none. `works`: probabilities (n,), see _works. `chosen`: candidates already in the batch."""
        if self._prior is None and len(self.sound) + len(chosen) < FIRST_BY_CHANCE:
            return self.generator.random(len(columns))
        # no times yet: rank by the scores, and prefer candidates far from the batch's other ones
        if alone is None:
            apart = _nearest(columns, columns[chosen], self._unit)
            return np.asarray(-scores + np.log(np.minimum(apart, 1.0) + 1e-3))
        found = self._forecast(columns, scores, chosen, alone.mean[chosen]) if chosen else alone
        return found.improvement(float(np.log(self.times[self.sound]).min())) * works

    def _forecast(
        self, columns: np.ndarray, scores: np.ndarray, chosen: list[int], believed: np.ndarray
    ) -> Forecast:
        """Return the surrogate's forecast for all candidates, as if those with the indices `chosen`
        had been measured with the log times `believed`. `columns`, `scores`: see _worth."""
        known, times = self.configs[self.sound], np.log(self.times[self.sound])
        model = Surrogate(
            self._mixture,
            np.concatenate([self.space.describe(known), columns[chosen]]),
            np.append(self.score(known), scores[chosen]),
            np.append(times, believed),
            self._unit,
        )
        return model.forecast(columns, scores)

    def score(self, configs: np.ndarray) -> np.ndarray:
        """Return the ensemble's scores (n,), standardised by the mean and standard deviation of
        random configurations' scores."""
        return (self._raw(configs) - self._center) / self._scale

    def _raw(self, configs: np.ndarray) -> np.ndarray:
        if self._prior is None:
            return np.zeros(len(configs))
        return np.asarray(self._prior(configs), np.float64)

    def _works(self, columns: np.ndarray) -> np.ndarray:
        """Return the probability (n,) that configurations with the features `columns` compile, run
        and are correct, by a regularised logistic regression on earlier failures."""
        failed = ~np.isfinite(self.times)
        if not failed.any() or failed.all():
            return np.ones(len(columns))
        from sklearn.linear_model import LogisticRegression

        model = LogisticRegression(C=STRICTNESS, max_iter=200)
        model.fit(self.space.describe(self.configs), failed)
        return np.asarray(1 - model.predict_proba(columns)[:, 1])


class ByOrder(Proposer):
    """A baseline that proposes configurations by ascending score, and ignores measured times."""

    def __init__(self, space: Space, seed: int, prior: Prior) -> None:
        super().__init__(space, seed)
        self._prior = prior

    def _propose(self, count: int) -> np.ndarray:
        pool = find_candidates(self.space, self.generator, self.known, self._first(), self._prior)
        return pool[np.argsort(self._prior(pool), kind="stable")] if len(pool) else pool

    def _first(self) -> np.ndarray:
        """Return the PARENTS measured configurations with the lowest prior scores."""
        if not len(self.configs):
            return self.space.default[None]
        return self.configs[np.argsort(self._prior(self.configs), kind="stable")[:PARENTS]]


def _nearest(columns: np.ndarray, others: np.ndarray, unit: float) -> np.ndarray:
    """Return distances (n,) of `columns` (n, features) to the nearest of `others`, in units of
    sqrt(unit); 1 if `others` is empty."""
    if not len(others):
        return np.ones(len(columns))
    return np.asarray(np.sqrt(squared_distances(columns, others)).min(axis=1) / np.sqrt(unit))


def _median_distance(columns: np.ndarray) -> float:
    """Return the median squared distance between different rows of `columns` (n, features)."""
    square = squared_distances(columns, columns)
    apart = square[square > 1e-6]
    return float(np.median(apart)) if len(apart) else 1.0
