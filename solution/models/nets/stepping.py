"""What a step of training depends on beside its graphs: how fast it learns, what it samples."""

import math

import numpy as np

WARM_UP = 0.1
MANY = 10  # times as many configurations as are sampled


def learning_rate_factor(step: int, total: int) -> float:
    """Linear warm-up over a tenth of the steps, then half a cosine down to 0."""
    warm_up = max(1, round(WARM_UP * total))
    if step < warm_up:
        return (step + 1) / warm_up
    return 0.5 * (1 + math.cos(math.pi * (step - warm_up) / max(1, total - warm_up)))


def sample(count: int, size: int, generator: np.random.Generator) -> np.ndarray:
    """Positions (size,) of configurations; a graph with fewer than `size` repeats some."""
    if count > MANY * size:  # a permutation of 100,040 takes longer than the rest of the step
        return generator.choice(count, size, replace=False)
    return np.resize(generator.permutation(count), size)
