"""Make deterministic choices: folds of graphs, configurations to predict.

Every choice is the same on every machine.
"""

import hashlib
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np

# maximum number of configurations of a graph that are predicted out of fold; 1,000 is TpuGraphs'
# protocol
MAX_CONFIGS = 1000


def divide_groups(
    members: Mapping[str, Sequence[str]], num_parts: int, seed: int
) -> dict[str, int]:
    """Divide groups of graphs into parts (folds): return {group: part, 0 to num_parts - 1}.

    Groups are assigned largest first, each to the part with the fewest graphs of the group's
    collections. A part is avoided if all graphs of one of these collections would then be in that
    part. A collection with fewer groups than parts has no graphs in some parts.

    Args:
        members: {group: the collection of each of its graphs}.
        seed: decides the order of groups of equal size.
    """
    counts: dict[str, Counter[int]] = defaultdict(Counter)
    parts: dict[str, int] = {}
    for group in sorted(
        members, key=lambda group: (-len(members[group]), random_position(group, seed))
    ):
        involved = [counts[name] for name in set(members[group])]
        parts[group] = min(range(num_parts), key=partial(_cost_of_part, involved))
        for name in members[group]:
            counts[name][parts[group]] += 1
    return parts


def _cost_of_part(involved: list[Counter[int]], part: int) -> tuple[int, int, int]:
    """Return the cost of adding a group to `part`; costs are compared as tuples.

    Args:
        involved: for each collection of the group, {part: graphs of the collection in the part}.

    Returns:
        number of these collections whose graphs so far are all in this part; number of graphs of
        these collections in this part; the number of the part, to break ties.
    """
    undivided = sum(set(counts) == {part} for counts in involved)
    return undivided, sum(counts[part] for counts in involved), part


def random_position(name: str, seed: int) -> bytes:
    """Return a sort key for a name, for a random order; it does not depend on other names."""
    return hashlib.sha256(f"{seed}/{name}".encode()).digest()


def choose_configs(key: tuple[str, str], num_configs: int, limit: int = MAX_CONFIGS) -> np.ndarray:
    """Return the positions of the configurations to predict out of fold, ascending.

    The choice is the same in every experiment, so that predictions can be compared. A ranker gets
    only these configurations, because a score may depend on the configurations scored together.

    Args:
        key: collection and graph name, which seed the choice.

    Returns:
        (min(num_configs, limit),)
    """
    if num_configs <= limit:
        return np.arange(num_configs)
    seed = int.from_bytes(hashlib.sha256("/".join(key).encode()).digest()[:8], "big")
    return np.sort(np.random.default_rng(seed).choice(num_configs, limit, replace=False))
