"""Runtimes as labels that mean the same in every graph: ranks and relevance."""

import numpy as np
from scipy.stats import rankdata


def normalised_rank(runtimes: np.ndarray) -> np.ndarray:
    """Ranks (configs,) between 0, fastest, and 1; ties share their mean."""
    return (rankdata(runtimes) - 0.5) / len(runtimes)


def relevance(runtimes: np.ndarray, levels: int) -> np.ndarray:
    """Relevance (configs,) int32 from runtimes: levels - 1 for the fastest, 0 for the slowest."""
    return (levels - 1 - np.floor(normalised_rank(runtimes) * levels)).astype(np.int32)
