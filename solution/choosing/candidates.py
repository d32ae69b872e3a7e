"""The configurations that a model of runtimes looks at before one is measured."""

import numpy as np

from solution.choosing.proposer import Prior
from solution.choosing.space import Space, draw_new, name_choices

MOST = 1500  # of a large table, by chance; and as many of the prior's own order, where one leads
NEAR, FAR = 192, 128  # neighbours of the fastest, and random ones, where the space is no table


def find_candidates(
    space: Space,
    generator: np.random.Generator,
    known: set[str],
    fastest: np.ndarray,
    prior: Prior | None = None,
) -> np.ndarray:
    """Configurations (n, sites) that are not known: all of a small table.

    Of a large table MOST at random, and the MOST best by the prior; elsewhere neighbours of the
    fastest (k, sites), these with each of the settings, and random ones.
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
