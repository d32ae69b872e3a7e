"""Turn runtimes into labels that mean the same in every graph: ranks, relevance, share of the
range."""

import numpy as np


def normalised_rank(runtimes: np.ndarray) -> np.ndarray:
    """Return ranks (configs,) from 0, fastest, to 1; ties share their mean rank."""
    from scipy.stats import rankdata  # slow to import, and prediction does not need it

    return (rankdata(runtimes) - 0.5) / len(runtimes)


def scaled_runtime(runtimes: np.ndarray) -> np.ndarray:
    """Return runtimes (configs,) scaled to 0, fastest, and 1, slowest; 0 if all are equal."""
    spread = runtimes.max() - runtimes.min()
    return (runtimes - runtimes.min()) / (spread if spread > 0 else 1.0)


def relevance(runtimes: np.ndarray, levels: int) -> np.ndarray:
    """Return relevance (configs,) int32: levels - 1 for the fastest, 0 for the slowest."""
    return (levels - 1 - np.floor(normalised_rank(runtimes) * levels)).astype(np.int32)
