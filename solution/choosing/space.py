"""Represent a search space by integers: a configuration is a vector of one choice per site.

A site is a parameter: the layout of a tensor, a compile option, or the size of a tile. A choice is
the position of its value in the list of the site's values. All optimizers work on such vectors
only, so they are independent of the kind of configuration.
"""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from solution.features.candidates import SHARES

COLUMNS = 4096  # largest number of one-hot columns of a configuration's description
# bounds of the share of sites at which a random configuration differs from the default
FEW, MANY = SHARES
MEAN = (MANY - FEW) / np.log(MANY / FEW)  # mean share, if its logarithm is uniform
TRIES = 20  # rounds of drawing until enough unknown configurations are found

Setting = tuple[tuple[int, int], ...]


def name_choices(choices: np.ndarray) -> str:
    """Return the name (a hash) of one configuration: (sites,) choices."""
    data = np.ascontiguousarray(choices, np.int32).tobytes()
    return hashlib.blake2b(data, digest_size=8).hexdigest()


@dataclass(frozen=True, eq=False)
class Space:
    """The configurations of one program.

    Arrays named (n, sites) hold choices; 0 <= choice < sizes.
    """

    sizes: np.ndarray  # (sites,) number of values of each parameter
    default: np.ndarray  # (sites,) the compiler's default
    links: np.ndarray  # (links, 2) pairs of sites that are neighbours in the program
    # By site, the values as numbers if they are sizes; None: the values are only names.
    coordinates: tuple[np.ndarray | None, ...]
    # Maps (n, sites) to (n,) bool: which configurations satisfy the known constraints.
    are_legal: Callable[[np.ndarray], np.ndarray] | None = None
    # (configs, sites) the only configurations, if the space is a table
    members: np.ndarray | None = None
    # Settings that act on the whole program, as compile options do, in the order in which to try
    # them. Each is a list of (site, choice); several if one has no effect without the other.
    settings: tuple[Setting, ...] = ()

    @property
    def sites(self) -> int:
        return len(self.sizes)

    @cached_property
    def names(self) -> list[str]:
        """Return the names of the table's members; [] without a table."""
        return [] if self.members is None else [name_choices(row) for row in self.members]

    @cached_property
    def ordered(self) -> np.ndarray:
        """Return (sites,) bool: whether a site's values are sizes, in ascending order."""
        return np.array([own is not None for own in self.coordinates], bool)

    @cached_property
    def both_ways(self) -> np.ndarray:
        """Return the links in both directions (2 x links, 2)."""
        return np.concatenate([self.links, self.links[:, ::-1]]).reshape(-1, 2)

    @cached_property
    def next_to(self) -> list[np.ndarray]:
        """Return by site the sites linked with it."""
        both = self.both_ways
        return [both[both[:, 0] == site, 1] for site in range(self.sites)]

    def draw(self, generator: np.random.Generator, count: int) -> np.ndarray:
        """Return random configurations (at most `count`, sites), possibly with duplicates.

        All members of a table are equally probable. Otherwise a random share of the sites is
        changed: the logarithm of the share is uniform, and at least one site changes.
        """
        if self.members is not None:
            return self.members[generator.integers(len(self.members), size=count)]
        free = np.flatnonzero(self.sizes > 1)
        drawn = np.tile(self.default, (count, 1))
        shares = np.exp(generator.uniform(np.log(FEW), np.log(MANY), count))
        changed = generator.random((count, len(free))) < shares[:, None]
        changed[np.arange(count), generator.integers(len(free), size=count)] = True
        values = generator.integers(self.sizes[free], size=(count, len(free)))
        drawn[:, free] = np.where(changed, values, drawn[:, free])
        return self.keep_legal(drawn)

    def mutate(
        self, generator: np.random.Generator, choices: np.ndarray, most: int = 2
    ) -> np.ndarray:
        """Return neighbours (n, sites): 1 to `most` sites get a new value; sizes move 1 or 2
        steps."""
        changed = choices.copy()
        free = np.flatnonzero(self.sizes > 1)
        for row in changed:
            count = min(len(free), int(generator.integers(1, most + 1)))
            for site in generator.choice(free, count, replace=False):
                row[site] = self._step(generator, site, int(row[site]))
        return changed

    def _step(self, generator: np.random.Generator, site: int, choice: int) -> int:
        size = int(self.sizes[site])
        if self.ordered[site] and size > 2:
            step = int(generator.integers(1, 3)) * (1 if generator.random() < 0.5 else -1)
            return next((c for c in (choice + step, choice - step) if 0 <= c < size), 0)
        other = int(generator.integers(size - 1))
        return other + (other >= choice)

    @cached_property
    def broad(self) -> list[int]:
        """Return the sites that act on the whole program."""
        return sorted({site for setting in self.settings for site, _ in setting})

    def find_untried(self, choices: np.ndarray) -> list[Setting]:
        """Return the settings that no configuration in `choices` (n, sites) has."""
        return [
            setting
            for setting in self.settings
            if not np.all([choices[:, site] == choice for site, choice in setting], axis=0).any()
        ]

    def apply(self, settings: Sequence[Setting], choices: np.ndarray) -> np.ndarray:
        """Apply each setting to each of `choices` (n, sites); return the legal, changed ones (k,
        sites)."""
        if not settings:  # skip the search for a table's nearest members
            return choices[:0]
        changed = []
        for setting in settings:
            rows = choices.copy()
            for site, choice in setting:
                rows[:, site] = choice
            changed.append(rows[(rows != choices).any(axis=1)])
        return self.keep_legal(np.concatenate(changed))

    def keep_legal(self, choices: np.ndarray) -> np.ndarray:
        """Return the legal configurations; in a table, the nearest member to each."""
        if self.members is not None:
            return self.members[self.nearest(choices, np.ones(len(self.members), bool))]
        return choices if self.are_legal is None else choices[self.are_legal(choices)]

    def nearest(self, choices: np.ndarray, allowed: np.ndarray) -> np.ndarray:
        """Return positions (n,) of the allowed members nearest to each of `choices` (n, sites)."""
        places = np.flatnonzero(allowed)
        assert self.members is not None and self._described is not None
        own, others = self.describe(choices), self._described[places]
        distances = (others**2).sum(axis=1) - 2 * own @ others.T
        return places[np.argmin(distances, axis=1)]

    @cached_property
    def _weights(self) -> np.ndarray:
        """Return the factor (sites,) of each site's columns in `describe`."""
        weights = np.ones(self.sites, np.float32)
        others = int((self.sizes > 1).sum()) - len(self.broad)
        if self.broad:
            weights[self.broad] = np.sqrt(max(1.0, MEAN * others / len(self.broad)))
        return weights

    @cached_property
    def _described(self) -> np.ndarray | None:
        return None if self.members is None else self.describe(self.members)

    def describe(self, choices: np.ndarray) -> np.ndarray:
        """Return features (n, columns) float32 whose squared distances measure dissimilarity.

        A site whose values differ adds 2 to the squared distance. A site whose values are sizes
        adds the square of their difference, in standard deviations over the site's values. All
        broad sites together are weighted like the other sites that a random configuration changes.
        In very large spaces, sites share columns.
        """
        parts = [
            ((own - own.mean()) / (own.std() or 1.0))[choices[:, site]]
            for site, own in enumerate(self.coordinates)
            if own is not None
        ]
        named = np.flatnonzero(~self.ordered & (self.sizes > 1))
        width = int(self.sizes[named].sum())
        hot = np.zeros((len(choices), min(width, COLUMNS)), np.float32)
        starts = np.cumsum(self.sizes[named]) - self.sizes[named]
        columns = (choices[:, named] + starts) % COLUMNS
        np.add.at(hot, (np.arange(len(choices))[:, None], columns), self._weights[named])
        return np.column_stack([*parts, hot]).astype(np.float32)


def squared_distances(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Return squared distances (n, m) of `first` (n, columns) from `second` (m, columns)."""
    square = (first**2).sum(1)[:, None] + (second**2).sum(1) - 2 * first @ second.T
    return np.asarray(np.maximum(square, 0))


def draw_new(
    space: Space, generator: np.random.Generator, count: int, known: set[str]
) -> np.ndarray:
    """Return distinct random configurations (at most `count`, sites) that are not in `known`."""
    if space.members is not None:
        left = [place for place, name in enumerate(space.names) if name not in known]
        chosen = generator.permutation(left)[:count].astype(int)
        return space.members[chosen]
    found: dict[str, np.ndarray] = {}
    for _ in range(TRIES):
        for row in space.draw(generator, 2 * count):
            name = name_choices(row)
            if name not in known:
                found.setdefault(name, row)
        if len(found) >= count:
            break
    return np.array(list(found.values())[:count], np.int32).reshape(-1, space.sites)
