"""Optimizers from libraries: optuna's TPE, and scikit-learn's Gaussian process.

Sources: Bergstra et al., "Algorithms for Hyper-Parameter Optimization", NeurIPS 2011 (TPE and
expected improvement).
"""

import warnings

import numpy as np
import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, IntDistribution
from optuna.trial import TrialState, create_trial
from scipy.stats import norm
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import Matern, WhiteKernel

from solution.choosing.proposer import Proposer
from solution.collecting.space import Space, find_candidates

FIRST = 4  # number of random configurations that are measured before an optimizer fits its model


class Tpe(Proposer):
    """Optuna's tree-structured Parzen estimator."""

    def __init__(self, space: Space, seed: int = 0) -> None:
        super().__init__(space, seed)
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        sampler = optuna.samplers.TPESampler(seed=seed, n_startup_trials=FIRST)
        self._study = optuna.create_study(sampler=sampler)
        self._free = np.flatnonzero(space.sizes > 1)
        self._distributions: dict[str, BaseDistribution] = {
            str(site): IntDistribution(0, int(space.sizes[site]) - 1)
            if space.ordered[site]
            else CategoricalDistribution(tuple(range(int(space.sizes[site]))))
            for site in self._free
        }

    def tell(self, configs: np.ndarray, times: np.ndarray) -> None:
        super().tell(configs, times)
        for row, time in zip(configs, times, strict=True):
            is_sound = bool(np.isfinite(time))
            trial = create_trial(
                params={str(site): int(row[site]) for site in self._free},
                distributions=self._distributions,
                value=float(np.log(time)) if is_sound else None,
                state=TrialState.COMPLETE if is_sound else TrialState.FAIL,
            )
            self._study.add_trial(trial)

    def _propose(self, count: int) -> np.ndarray:
        proposed = np.tile(self.space.default, (count, 1))
        for row in proposed:
            trial = self._study.ask(self._distributions)
            row[self._free] = [trial.params[str(site)] for site in self._free]
            # close optuna's trial without a time, because our `tell` adds a new one with the time
            self._study.tell(trial, state=TrialState.FAIL)
        return proposed


class Process(Proposer):
    """Scikit-learn's Gaussian process with expected improvement; it ignores the bundle's scores."""

    def __init__(self, space: Space, seed: int = 0) -> None:
        super().__init__(space, seed)
        self._fitted = 1
        self._kernel = Matern(4.0, (0.3, 100.0), nu=1.5) + WhiteKernel(0.01, (1e-5, 1.0))

    def _propose(self, count: int) -> np.ndarray:
        if len(self.sound) < FIRST:
            return self.space.draw(self.generator, count)
        pool = find_candidates(self.space, self.generator, self.known, self.best(FIRST))
        if not len(pool):
            return pool
        times = np.log(self.times[self.sound])
        model = self._fit(self.space.describe(self.configs[self.sound]), times)
        mean, deviation = model.predict(self.space.describe(pool), return_std=True)
        # expected improvement: E[max(smallest log time - log time, 0)]
        gap = (times.min() - mean) / np.maximum(deviation, 1e-12)
        improvement = deviation * (gap * norm.cdf(gap) + norm.pdf(gap))
        return pool[np.argsort(-improvement, kind="stable")]

    def _fit(self, columns: np.ndarray, times: np.ndarray) -> GaussianProcessRegressor:
        # Refit the hyperparameters whenever the number of measurements has doubled.
        is_due = len(times) >= 2 * self._fitted
        model = GaussianProcessRegressor(
            self._kernel, optimizer="fmin_l_bfgs_b" if is_due else None, normalize_y=True
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a hyperparameter at its bound is no error
            model.fit(columns, times)
        if is_due:
            self._fitted, self._kernel = len(times), model.kernel_
        return model
