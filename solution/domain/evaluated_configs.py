"""Choose which configurations of a labelled graph are predicted out of fold.

The choice is fixed and seeded by graph, and the same for every experiment, so that predictions
align. A ranker is given these configurations only, because a score may depend on the list. 1,000 is
the official evaluation protocol of TpuGraphs, and about the number in layout graphs of the test
split.
"""

import hashlib

import numpy as np

MAX_CONFIGS = 1000


def choose_configs(key: tuple[str, str], num_configs: int, limit: int = MAX_CONFIGS) -> np.ndarray:
    """Positions (min(num_configs, limit),) of the configurations to predict, ascending.

    Args:
        key: collection and graph name; the choice depends on nothing else.
    """
    if num_configs <= limit:
        return np.arange(num_configs)
    seed = int.from_bytes(hashlib.sha256("/".join(key).encode()).digest()[:8], "big")
    return np.sort(np.random.default_rng(seed).choice(num_configs, limit, replace=False))
