"""Our search: an ensemble's scores as prior of a surrogate that learns while it is measured.

What acts on all of the program, a compile option, is tried first, each choice with the fastest so
far: one may halve the time, and random configurations set it seldom. Then what is measured next is
what the surrogate expects the greatest improvement of, times the chance that it works at all; now
and then something random. A batch is chosen one by one, each as if those before it had taken what
is expected of them, so that its members differ.
"""

from dataclasses import dataclass

import numpy as np

from solution.choosing.candidates import find_candidates
from solution.choosing.proposer import Prior, Proposer
from solution.choosing.space import Space, name_choices, squared_distances
from solution.choosing.surrogate import Belief, Forecast, Surrogate

LENGTHS = (1.0, 4.0)  # in median distances between configurations
NOISES = (0.02, 0.3)
# How logarithms of runtimes go with the ensemble's standardised scores, and their deviation from
# that line: medians over programs that were predicted out of fold.
LINES = {"tile": (0.42, 0.15), "layout": (0.05, 0.03)}
UNSURE = 0.1  # deviation of logarithms of runtimes, where nothing is known
DOUBT, FAR_DOUBT = 0.65, 0.9  # that the prior is of no use: of a program like those learned from
EXPLORED = 16  # one of so many measurements is drawn by chance, first the twelfth
FIRST_EXPLORED = 11
FIRST_BY_CHANCE = 4  # measurements, where no prior leads
PARENTS = 4
SAMPLE = 256  # configurations that give scores and distances their scale
STRICTNESS = 10.0  # inverse regularisation of the model of what fails


@dataclass(frozen=True)
class Beliefs:
    """What is believed of a program before it is measured."""

    kind: str = ""  # layout or tile; of others nothing is known
    doubt: float = DOUBT  # that the prior is of no use

    def mixture(self, *, has_prior: bool) -> tuple[Belief, ...]:
        """The members of the surrogate."""
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
    """The surrogate's search; without a prior it is a plain Bayesian one."""

    def __init__(
        self,
        space: Space,
        seed: int = 0,
        prior: Prior | None = None,
        beliefs: Beliefs | None = None,
        explored: int = EXPLORED,
    ) -> None:
        super().__init__(space, seed)
        self._prior, self._explored = prior, explored
        self._mixture = (beliefs or Beliefs()).mixture(has_prior=prior is not None)
        # Of its own: what is drawn here must not depend on how often the search was asked.
        sample = space.draw(np.random.default_rng(0), SAMPLE)
        self._unit = _median_distance(space.describe(sample))
        scores = self._raw(sample)
        self._center, self._scale = float(scores.mean()), float(scores.std()) or 1.0

    def _propose(self, count: int) -> np.ndarray:
        untried = self.space.find_untried(self.choices)
        first = self.space.apply(untried, self.best(1))
        first = first[[name_choices(row) not in self.known for row in first]][:count]
        left = count - len(first)
        return np.concatenate([first, self._choose(left)]) if left else first

    def _choose(self, count: int) -> np.ndarray:
        """The `count` that are worth most, of the candidates."""
        pool = find_candidates(
            self.space, self.generator, self.known, self.best(PARENTS), self._prior
        )
        if not len(pool):
            return pool
        columns, scores = self.space.describe(pool), self.score(pool)
        works = self._works(columns)
        alone = self._forecast(columns, scores, [], np.empty(0)) if len(self.sound) else None
        chosen: list[int] = []
        for place in range(min(count, len(pool))):
            number = len(self.times) + place
            left = np.setdiff1d(np.arange(len(pool)), chosen)
            if self._explored and number % self._explored == FIRST_EXPLORED % self._explored:
                chosen.append(int(self.generator.choice(left)))
            else:
                worth = self._worth(columns, scores, alone, works, chosen)
                chosen.append(int(left[np.argmax(worth[left])]))
        return pool[chosen]

    def _worth(
        self,
        columns: np.ndarray,
        scores: np.ndarray,
        alone: Forecast | None,
        works: np.ndarray,
        chosen: list[int],
    ) -> np.ndarray:
        """What of the pool (n,) to measure first, where `chosen` positions are already chosen.

        Args:
            alone: what is expected where nothing is chosen yet; None: nothing has a time.
            works: the chance (n,) that each works at all.
        """
        if self._prior is None and len(self.sound) + len(chosen) < FIRST_BY_CHANCE:
            return self.generator.random(len(columns))
        if alone is None:  # by the order, but each unlike those chosen with it
            apart = _nearest(columns, columns[chosen], self._unit)
            return np.asarray(-scores + np.log(np.minimum(apart, 1.0) + 1e-3))
        found = self._forecast(columns, scores, chosen, alone.mean[chosen]) if chosen else alone
        return found.improvement(float(np.log(self.times[self.sound]).min())) * works

    def _forecast(
        self, columns: np.ndarray, scores: np.ndarray, chosen: list[int], believed: np.ndarray
    ) -> Forecast:
        """What the surrogate expects, as if `chosen` had taken what is `believed` of them."""
        known, times = self.choices[self.sound], np.log(self.times[self.sound])
        model = Surrogate(
            self._mixture,
            np.concatenate([self.space.describe(known), columns[chosen]]),
            np.append(self.score(known), scores[chosen]),
            np.append(times, believed),
            self._unit,
        )
        return model.forecast(columns, scores)

    def score(self, choices: np.ndarray) -> np.ndarray:
        """The prior's scores (n,), with deviation 1 over random configurations."""
        return (self._raw(choices) - self._center) / self._scale

    def _raw(self, choices: np.ndarray) -> np.ndarray:
        if self._prior is None:
            return np.zeros(len(choices))
        return np.asarray(self._prior(choices), np.float64)

    def _works(self, columns: np.ndarray) -> np.ndarray:
        """The chance (n,) that a configuration compiles, runs and computes what it should.

        Constraints that nobody told, learned from what failed; some doubt of them stays.
        """
        failed = ~np.isfinite(self.times)
        if not failed.any() or failed.all():
            return np.ones(len(columns))
        from sklearn.linear_model import LogisticRegression

        model = LogisticRegression(C=STRICTNESS, max_iter=200)
        model.fit(self.space.describe(self.choices), failed)
        return np.asarray(1 - model.predict_proba(columns)[:, 1])


class ByOrder(Proposer):
    """The prior's own order, whatever the measurements say: ours without the online part."""

    def __init__(self, space: Space, seed: int, prior: Prior) -> None:
        super().__init__(space, seed)
        self._prior = prior

    def _propose(self, count: int) -> np.ndarray:
        pool = find_candidates(self.space, self.generator, self.known, self._first(), self._prior)
        return pool[np.argsort(self._prior(pool), kind="stable")] if len(pool) else pool

    def _first(self) -> np.ndarray:
        """Those with the lowest scores of all that were told."""
        if not len(self.choices):
            return self.space.default[None]
        return self.choices[np.argsort(self._prior(self.choices), kind="stable")[:PARENTS]]


def _nearest(columns: np.ndarray, others: np.ndarray, unit: float) -> np.ndarray:
    if not len(others):
        return np.ones(len(columns))
    return np.asarray(np.sqrt(squared_distances(columns, others)).min(axis=1) / np.sqrt(unit))


def _median_distance(columns: np.ndarray) -> float:
    """The median of squared distances between different configurations."""
    square = squared_distances(columns, columns)
    apart = square[square > 1e-6]
    return float(np.median(apart)) if len(apart) else 1.0
