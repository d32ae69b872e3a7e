"""Model one program's runtimes during the search: a mixture of Gaussian processes.

Each member is a Gaussian process on log runtimes: an unknown level, a known slope times the prior's
score, and deviations from that line that are similar for similar configurations. Members differ in
whether they use the prior's scores, in the kernel's length and in the noise. A member's weight is
its prior weight times the marginal likelihood of the measurements. So a prior that is wrong for
this program loses its weight, and a plain Gaussian process remains.

Sources: Rasmussen and Williams, "Gaussian Processes for Machine Learning", 2006, chapters 2 and 5;
section 2.3 of Shah, Wilson and Ghahramani, "Student-t Processes as Alternatives to Gaussian
Processes", 2014 (the unknown scale is integrated out).
"""

from dataclasses import dataclass

import numpy as np
from scipy.linalg import solve_triangular
from scipy.special import gammaln, stdtr

from solution.collecting.space import squared_distances

# prior variance of the level (the mean log runtime), in units of the variance around the line
LEVEL = 1e4
# the prior variance counts as much as 2 * PRIOR_MEASUREMENTS measured runtimes
PRIOR_MEASUREMENTS = 1.0
SMALLEST = 1e-9  # smallest variance; also added to the kernel's diagonal, so that it is invertible


@dataclass(frozen=True)
class Belief:
    """Parameters and prior weight of one Gaussian process of the mixture (see Surrogate)."""

    slope: float  # slope of log runtimes over the prior's standardised score
    deviation: float  # standard deviation of log runtimes from the line with this slope
    length: float  # length scale of the kernel, in median distances between configurations
    noise: float  # variance of a measurement's error, in units of the variance around the line
    share: float  # prior weight


@dataclass(frozen=True, eq=False)
class Forecast:
    """The prediction of a mixture of Gaussian processes (its members) for n configurations: a
    Student t distribution for each member."""

    weights: np.ndarray  # (members,) posterior weights, which sum to 1
    means: np.ndarray  # (members, n) means of log runtimes
    deviations: np.ndarray  # (members, n) scales of the t distributions of log runtimes
    freedom: float  # degrees of freedom of the t distributions

    @property
    def mean(self) -> np.ndarray:
        return np.asarray(self.weights @ self.means)

    def improvement(self, best: float) -> np.ndarray:
        """Return the expected improvement (n,) over the log runtime `best`:
        E[max(best - log runtime, 0)]."""
        gap = (best - self.means) / self.deviations
        density = np.exp(_log_density(gap, self.freedom))
        factor = (self.freedom + gap**2) / max(self.freedom - 1, 0.5)
        # E[max(best - log runtime, 0)] of each member's t distribution, then their weighted mean
        expected = self.deviations * (gap * stdtr(self.freedom, gap) + factor * density)
        return np.asarray(self.weights @ expected)


class Surrogate:
    """A mixture of Gaussian processes of log runtimes, conditioned on the measurements."""

    def __init__(
        self,
        beliefs: tuple[Belief, ...],
        columns: np.ndarray,
        scores: np.ndarray,
        times: np.ndarray,
        unit: float,
    ) -> None:
        """Condition the mixture of `beliefs` on features `columns` (measured, columns), the prior's
        standardised scores (measured,), and log runtimes `times` (measured,). `unit`: the squared
        distance of a kernel length of 1."""
        self._beliefs, self._unit = beliefs, unit
        self._columns = columns
        self._slopes = np.array([belief.slope for belief in beliefs])[:, None]
        noise = np.array([belief.noise for belief in beliefs])[:, None, None]
        kernel = self._kernel(columns) + (noise + SMALLEST) * np.eye(len(times))
        # (members, measured, measured) Cholesky factors
        self._factor = np.linalg.cholesky(kernel)
        # (members, measured): log runtimes minus slope times score
        residual = times - self._slopes * scores
        self._center = residual.mean(axis=1, keepdims=True)
        # (members, measured, 1): centred residuals, whitened by the Cholesky factor
        self._white = self._solve((residual - self._center)[:, :, None])
        self._scale, self._weights = self._weigh(len(times))

    def forecast(self, columns: np.ndarray, scores: np.ndarray) -> Forecast:
        """Predict log runtimes from features (n, columns) and standardised prior scores (n,)."""
        # posterior mean m(x) + k(x)' K^-1 r and variance k(x, x) - k(x)' K^-1 k(x)
        cross = self._solve(self._kernel(columns))
        means = (cross * self._white).sum(axis=1) + self._center + self._slopes * scores
        variance = np.maximum(1 + LEVEL - (cross**2).sum(axis=1), SMALLEST) * self._scale[:, None]
        return Forecast(self._weights, means, np.sqrt(variance), self._freedom)

    def _weigh(self, count: int) -> tuple[np.ndarray, np.ndarray]:
        """Return, from `count` measurements, each member's estimated variance of log runtimes
        around its line (members,), and its posterior weight (members,)."""
        expected = np.array([belief.deviation**2 for belief in self._beliefs])
        misfit = (self._white[:, :, 0] ** 2).sum(axis=1) / expected
        self._freedom = 2 * PRIOR_MEASUREMENTS + count
        scale = expected * (2 * PRIOR_MEASUREMENTS + misfit) / self._freedom
        # log marginal likelihood of a Student t process, without a constant; a: PRIOR_MEASUREMENTS
        # -log(det(factor)) - count/2 log(expected) - (2a + count)/2 log(1 + misfit / 2a)
        logarithm = np.log(np.diagonal(self._factor, axis1=1, axis2=2)).sum(axis=1)
        evidence = -logarithm - count / 2 * np.log(expected) - self._freedom / 2 * np.log1p(
            misfit / (2 * PRIOR_MEASUREMENTS)
        )  # fmt: skip
        posterior = np.log([belief.share for belief in self._beliefs]) + evidence
        weights = np.exp(posterior - posterior.max())
        return scale, weights / weights.sum()

    def _solve(self, right: np.ndarray) -> np.ndarray:
        """Return inverse(Cholesky factor) @ right (members, measured, n) for each member."""
        pairs = zip(self._factor, right, strict=True)
        return np.stack([solve_triangular(*pair, lower=True, check_finite=False) for pair in pairs])

    def _kernel(self, columns: np.ndarray) -> np.ndarray:
        """Return each member's covariances (members, measured, n) of measured configurations with
        those of features `columns`, in units of the variance around its regression line."""
        distance = np.sqrt(squared_distances(self._columns, columns) / self._unit)
        return np.stack([LEVEL + np.exp(-distance / belief.length) for belief in self._beliefs])


def _log_density(values: np.ndarray, freedom: float) -> np.ndarray:
    """Return the log density of Student's t distribution."""
    constant = gammaln((freedom + 1) / 2) - gammaln(freedom / 2) - 0.5 * np.log(freedom * np.pi)
    return np.asarray(constant - (freedom + 1) / 2 * np.log1p(values**2 / freedom))
