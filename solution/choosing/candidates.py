"""Draw the candidate pool, from which the search picks the configurations to measure."""

import numpy as np

from solution.choosing.proposer import Prior
from solution.choosing.space import Space, draw_new, name_choices

MOST = 1500  # of a large table: this many at random, and with a prior as many of the prior's best
NEAR, FAR = 192, 128  # without a table: neighbours of the fastest, and random ones


def find_candidates(
    space: Space,
    generator: np.random.Generator,
    known: set[str],
    fastest: np.ndarray,
    prior: Prior | None = None,
) -> np.ndarray:
    """Return candidates (n, sites) whose names are not in `known`: all rows of a small table.

    Of a large table, return MOST random rows and the MOST best by the prior. Without a table,
    return neighbours of `fastest` (k, sites), `fastest` with each of the settings applied, and
    random ones.
    """
    if space.members is not None:
        left = np.array([p for p, name in enumerate(space.names) if name not in known], int)
        return space.members[left if len(left) <= MOST else _sample(space, generator, left, prior)]
    near = space.keep_legal(
        space.mutate(generator, np.tile(fastest, (-(-NEAR // len(fastest)), 1)))
    )
    near = np.concatenate([near, space.apply(space.settings, fastest)])
    own = {name_choices(row): row for row in near}
    far = draw_new(space, generator, FAR, known | own.keys())
    fresh = [row for name, row in own.items() if name not in known]
    return np.concatenate([np.array(fresh, np.int32).reshape(-1, space.sites), far])


def _sample(
    space: Space, generator: np.random.Generator, left: np.ndarray, prior: Prior | None
) -> np.ndarray:
    assert space.members is not None
    drawn = generator.choice(left, MOST, replace=False)
    if prior is None:
        return np.sort(drawn)
    order = np.argsort(prior(space.members[left]), kind="stable")
    return np.union1d(drawn, left[order[:MOST]])
