"""Runtimes as labels that mean the same in every graph: ranks, relevance, shares of the spread."""

import numpy as np


def normalised_rank(runtimes: np.ndarray) -> np.ndarray:
    """Ranks (configs,) between 0, fastest, and 1; ties share their mean."""
    from scipy.stats import rankdata  # takes half a second to import, and who predicts needs none

    return (rankdata(runtimes) - 0.5) / len(runtimes)


def scaled_runtime(runtimes: np.ndarray) -> np.ndarray:
    """Runtimes (configs,) between 0, the fastest, and 1, the slowest; 0 where all are equal."""
    spread = runtimes.max() - runtimes.min()
    return (runtimes - runtimes.min()) / (spread if spread > 0 else 1.0)


def relevance(runtimes: np.ndarray, levels: int) -> np.ndarray:
    """Relevance (configs,) int32 from runtimes: levels - 1 for the fastest, 0 for the slowest."""
    return (levels - 1 - np.floor(normalised_rank(runtimes) * levels)).astype(np.int32)
