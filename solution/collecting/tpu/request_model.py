"""Predict the compiler's estimates for sets of layout requests that were not compiled.

    log estimate = level + expected + sum of effects + remainder

The expected value follows from prior costs, see ranking.py; the effects correct it. An effect
belongs to a state (the layouts of an instruction or operand), or to a point: an instruction or
operand in all its states. Its standard deviation grows with the state's prior cost. All terms are
normally distributed, so this is a Gaussian process: the covariance of two sets is the level's
variance, plus the variances of the effects that both sets have. The model is a mixture. Its members
differ in the kind of effects (of states or of points), and in the variance of the remainder. A
member's weight is the marginal likelihood of the estimates, with the scale integrated out.

Sources: Rasmussen and Williams, "Gaussian Processes for Machine Learning", 2006, chapters 2 and 5;
Krause, Singh and Guestrin, "Near-optimal sensor placements in Gaussian processes", JMLR 2008.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from scipy.sparse import csr_matrix

# variances of the level and of the remainder, relative to the variance of the summed effects
LEVEL = 1e4
REMAINDERS = (1e-3, 0.1)
# maximum number of sets that `choose` considers: the sets with the most configurations
MOST_POOL = 2000
# Maximum number of entries (sets x points) of one-hot rows; beyond it, only the points with the
# largest effects are kept. The time to compute a covariance grows with entries x sets.
MOST_ENTRIES = 4_000_000
SMALLEST = 1e-12  # smaller variances and deviations count as 0


def make_effects(numbers: np.ndarray, sizes: np.ndarray) -> csr_matrix:
    """Return scaled one-hot rows (sets, effects); two rows' scalar product is the sets' covariance.

    The scale gives the sets' summed effects the variance 1. All entries are 0 if the sums do not
    vary between sets.

    Args:
        numbers: (sets, points) number of each set's effect at each point: one number per state, or
            one per point.
        sizes: (sets, points) standard deviations of these effects.
    """
    sets, points = numbers.shape
    if not points:
        return csr_matrix((sets, 1))
    if sets * points > MOST_ENTRIES:
        points = max(1, MOST_ENTRIES // sets)
        kept = np.argsort(-sizes.mean(axis=0), kind="stable")[:points]
        numbers, sizes = numbers[:, kept], sizes[:, kept]
    bounds = np.arange(0, sets * points + 1, points)
    data = np.ascontiguousarray(sizes, np.float64).ravel()
    columns = csr_matrix((data, numbers.ravel(), bounds))
    # variance between sets = mean of squared norms - squared norm of the mean row
    norms = (sizes.astype(np.float64) ** 2).sum(axis=1)
    variance = norms.mean() - (np.asarray(columns.mean(axis=0)) ** 2).sum()
    return columns * (1 / np.sqrt(variance) if variance > SMALLEST * norms.mean() else 0.0)


@dataclass(frozen=True)
class _Member:
    """One member of the mixture: its effects, and the variance of the remainder."""

    kind: int  # index of the member's effects among the matrices that RequestModel is given
    remainder: float


class RequestModel:
    """The mixture of Gaussian processes over the sets of requests of one graph."""

    def __init__(
        self, effects: Sequence[csr_matrix], expected: np.ndarray, counts: np.ndarray
    ) -> None:
        """Give all members of the mixture equal weights.

        Args:
            effects: results (sets, effects) of make_effects, one matrix per kind of effect.
            expected: (sets,) prior means of the log estimates, up to an additive constant.
            counts: (sets,) number of configurations of each set.
        """
        self._expected = expected
        self._counts = counts.astype(np.float64)
        self._effects = effects
        kinds = range(len(effects))
        self._members = [_Member(*each) for each in product(kinds, REMAINDERS)]
        self._weights = np.full(len(self._members), 1 / len(self._members))
        self._pool = np.sort(np.argsort(-counts, kind="stable")[:MOST_POOL])
        # (kinds, pool, pool): for two sets of the pool, the summed variances of the effects that
        # both have
        self._shared = [self._share(kind, self._pool, self._pool) for kind in kinds]

    def predict(self, asked: np.ndarray, values: np.ndarray) -> np.ndarray:
        """Return predicted log estimates (sets,); for the sets in `asked`, return their `values`.

        The members' weights are updated for `choose`.

        Args:
            asked: (n,) numbers of sets that have an estimate, n >= 2.
            values: (n,) their log estimates.
        """
        wrong = values - self._expected[asked]
        center = wrong.mean()
        means, evidence = [], []
        for member in self._members:
            known = LEVEL + self._share(member.kind, asked, asked)
            factor = cho_factor(known + member.remainder * np.eye(len(asked)), lower=True)
            solved = cho_solve(factor, wrong - center)
            # log marginal likelihood with the scale integrated out, up to an additive constant:
            # -log|K| / 2 - (n - 1) / 2 log(y' K^-1 y)
            misfit = float((wrong - center) @ solved) + SMALLEST
            logarithm = np.log(np.diagonal(factor[0])).sum()
            evidence.append(-logarithm - (len(asked) - 1) / 2 * np.log(misfit))
            shared = self._share(member.kind, slice(None), asked)
            means.append(center + (LEVEL + shared) @ solved)
        weights = np.exp(np.array(evidence) - max(evidence))
        self._weights = weights / weights.sum()
        predicted = self._expected + self._weights @ np.array(means)
        predicted[asked] = values
        return np.asarray(predicted)

    def choose(self, known: np.ndarray, number: int) -> list[int]:
        """Choose, greedily, `number` sets whose answers reduce the predictions' variance most.

        The variance is summed over configurations. Before any answer, the chosen sets are typical
        and unlike each other.

        Args:
            known: (n,) numbers of sets with an estimate or a refusal; they are not chosen again.
        """
        pool = self._pool
        remainder = float(self._weights @ [member.remainder for member in self._members])
        # (pool, pool) covariance of the mixture: the weighted mean of the members' covariances
        doubt = np.zeros((len(pool), len(pool)))
        for weight, member in zip(self._weights, self._members, strict=True):
            doubt += weight * (LEVEL + self._shared[member.kind])
        left = ~np.isin(pool, known)
        counts = self._counts[pool]

        def learn(row: int) -> None:
            """Condition the covariances D on the answer for set i (`row`) of the pool:
            D - D_i D_i' / (D_ii + r), where r is the remainder's variance."""
            column = doubt[row].copy()
            doubt[:] -= np.outer(column, column) / (column[row] + remainder)

        for row in np.flatnonzero(~left).tolist():
            learn(row)
        chosen: list[int] = []
        for _ in range(min(number, int(left.sum()))):
            # gain of set i = sum over sets j of counts_j D_ij^2 / (D_ii + r): the reduction of the
            # summed variance by the answer for i. D: `doubt` (covariances), r: `remainder`.
            gains = (doubt**2 @ counts) / (np.diagonal(doubt).clip(0) + remainder)
            gains = np.where(left, gains, -1.0)
            # Round, so that equal gains stay equal whatever the order of the summation.
            row = int(np.argmax(np.round(gains / max(gains.max(), SMALLEST), 9)))
            learn(row)
            left[row] = False
            chosen.append(int(pool[row]))
        return chosen

    def _share(self, kind: int, rows: np.ndarray | slice, columns: np.ndarray) -> np.ndarray:
        """Return the summed variances (rows, columns) of the effects of one kind that two sets
        share."""
        effects = self._effects[kind]
        return np.asarray((effects[rows] @ effects[columns].T).toarray())
