"""Divide whole groups of graphs into parts, such as folds, so that each collection is balanced."""

import hashlib
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from functools import partial


def divide_groups(
    members: Mapping[str, Sequence[str]], num_parts: int, seed: int
) -> dict[str, int]:
    """Return the part of each group, from 0 to num_parts - 1.

    Groups are assigned largest first, each to the part with the fewest graphs of the group's
    collections, unless one of these would then stay in a single part. A collection with fewer
    groups than parts leaves some parts empty.

    Args:
        members: of each group, the collection of each of its graphs.
        seed: decides the order of groups of equal size.
    """
    counts: dict[str, Counter[int]] = defaultdict(Counter)
    parts: dict[str, int] = {}
    for group in sorted(members, key=lambda group: (-len(members[group]), draw_place(group, seed))):
        own = [counts[name] for name in set(members[group])]
        parts[group] = min(range(num_parts), key=partial(_cost_of_part, own))
        for name in members[group]:
            counts[name][parts[group]] += 1
    return parts


def _cost_of_part(own: list[Counter[int]], part: int) -> tuple[int, int, int]:
    """Return the cost of adding a group of these collections to `part`, compared as a tuple."""
    undivided = sum(set(counts) == {part} for counts in own)
    return undivided, sum(counts[part] for counts in own), part


def draw_place(name: str, seed: int) -> bytes:
    """Return a name's position in a random order; it does not depend on other names."""
    return hashlib.sha256(f"{seed}/{name}".encode()).digest()
