"""Whole groups of graphs are divided, each collection about evenly: into folds, into parts."""

import hashlib
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from functools import partial


def divide_groups(
    members: Mapping[str, Sequence[str]], num_parts: int, seed: int
) -> dict[str, int]:
    """The part of each group, 0 ... num_parts - 1.

    Every group goes, largest first, to the part that holds the fewest graphs of the group's own
    collections, but not where one of them would stay in a single part. A collection with fewer
    groups than parts leaves some parts empty.

    Args:
        members: of each group the collection of each of its graphs.
        seed: of equally large groups, decides the order.
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
    """What a group of these collections costs in `part`: first, collections left in one part."""
    undivided = sum(set(counts) == {part} for counts in own)
    return undivided, sum(counts[part] for counts in own), part


def draw_place(name: str, seed: int) -> bytes:
    """Return where a name stands in a random order, whatever other names there are."""
    return hashlib.sha256(f"{seed}/{name}".encode()).digest()
