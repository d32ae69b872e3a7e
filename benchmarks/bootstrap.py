"""Bootstrap intervals of a benchmark's mean."""

import warnings

import numpy as np
from scipy import stats

from solution.domain.metrics import Mean


def bootstrap_mean(values: np.ndarray, resamples: int = 9999) -> Mean:
    """Return the mean of scores (graphs,) with a percentile bootstrap interval over graphs.

    The interval is NaN if there are fewer than two graphs. It is too narrow if many graphs are
    sizes of one program, as for tiles: ensembles.statistics draws these together.
    Source: Efron, "Bootstrap methods: another look at the jackknife", 1979.
    """
    value = float(np.mean(values)) if len(values) else float("nan")
    if len(values) < 2:
        return Mean(value, float("nan"), float("nan"), len(values))
    with warnings.catch_warnings():  # constant scores are valid: the interval is a point
        warnings.simplefilter("ignore")
        result = stats.bootstrap(
            (values,), np.mean, n_resamples=resamples, method="percentile", rng=0, batch=1000
        )
    interval = result.confidence_interval
    return Mean(value, float(interval.low), float(interval.high), len(values))
