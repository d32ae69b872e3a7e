"""Small spaces with known runtimes."""

import numpy as np

from solution.choosing.offline import Lookup, Table, make_space
from solution.collecting.space import Space, name_config


def make_table(sites: int = 4, choices: int = 4, members: int = 60, *, ordered: bool = False,
               seed: int = 0) -> Table:  # fmt: skip
    """Return a table whose runtimes grow smoothly with its numbers."""
    generator = np.random.default_rng(seed)
    drawn = np.unique(generator.integers(choices, size=(4 * members, sites)), axis=0)
    columns = generator.permutation(drawn)[:members].astype(float)
    links = np.array([(site, site + 1) for site in range(sites - 1)])
    space = make_space(columns, links, ordered=ordered)
    runtimes = 1000 * np.exp(0.1 * columns.sum(axis=1))
    return Table("made", "tile:xla", space, runtimes, np.arange(members))


def make_free(sites: int = 5, choices: int = 4) -> Space:
    """Return a space that is no table; the first two sites may not both be set."""
    return Space(
        sizes=np.full(sites, choices),
        default=np.zeros(sites, np.int32),
        links=np.array([(site, site + 1) for site in range(sites - 1)]),
        coordinates=tuple([None] * sites),
        are_legal=lambda configs: ~((configs[:, 0] > 0) & (configs[:, 1] > 0)),
    )


def tell_all(table: Table, asked: np.ndarray) -> np.ndarray:
    """Return the runtimes (k,) of members."""
    return np.array([trial.time for trial in Lookup(table).measure(asked)])


def names(configs: np.ndarray) -> list[str]:
    return [name_config(row) for row in configs]
