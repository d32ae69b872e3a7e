"""What may be chosen, as numbers: a configuration is one choice at each of a number of sites.

A site is a tensor whose layout may be set, a compile option, or a size of a tile. Every proposer
works on such vectors of choices alone, so that what is searched is no matter to how it is searched.
"""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from solution.features.candidates import SHARES

COLUMNS = 4096  # of the description of a configuration, at most
FEW, MANY = SHARES  # a random configuration leaves the default at such a share of its sites
MEAN = (MANY - FEW) / np.log(MANY / FEW)  # evenly on a logarithmic scale
TRIES = 20  # to draw configurations that are not known yet

Setting = tuple[tuple[int, int], ...]


def name_choices(choices: np.ndarray) -> str:
    """The name (a hash) of one configuration: (sites,) choices."""
    data = np.ascontiguousarray(choices, np.int32).tobytes()
    return hashlib.blake2b(data, digest_size=8).hexdigest()


@dataclass(frozen=True, eq=False)
class Space:
    """The configurations of one program.

    Arrays named (n, sites) hold choices; 0 <= choice < sizes.
    """

    sizes: np.ndarray  # (sites,) how many choices there are
    default: np.ndarray  # (sites,) the compiler's own
    links: np.ndarray  # (links, 2) sites that stand next to each other in the program
    # What a choice of a site is in numbers, where its choices are sizes; None: names only.
    coordinates: tuple[np.ndarray | None, ...]
    # Of (n, sites) whether each may be tried (n,): constraints that are known beforehand.
    are_legal: Callable[[np.ndarray], np.ndarray] | None = None
    members: np.ndarray | None = None  # (configs, sites): there are no others, as in a table
    # What acts on all of the program, as compile options do, in the order in which to try it: sites
    # and their choices, several where one does nothing without the other.
    settings: tuple[Setting, ...] = ()

    @property
    def sites(self) -> int:
        return len(self.sizes)

    @cached_property
    def names(self) -> list[str]:
        """Of the members."""
        return [] if self.members is None else [name_choices(row) for row in self.members]

    @cached_property
    def ordered(self) -> np.ndarray:
        """(sites,) whether a site's choices are sizes, ascending."""
        return np.array([own is not None for own in self.coordinates], bool)

    @cached_property
    def both_ways(self) -> np.ndarray:
        """The links (2 x links, 2), each from either of its sites."""
        return np.concatenate([self.links, self.links[:, ::-1]]).reshape(-1, 2)

    @cached_property
    def next_to(self) -> list[np.ndarray]:
        """By site, the sites that are linked with it."""
        both = self.both_ways
        return [both[both[:, 0] == site, 1] for site in range(self.sites)]

    def draw(self, generator: np.random.Generator, count: int) -> np.ndarray:
        """Random configurations (at most `count`, sites), some of them perhaps equal.

        Members of a table are equally probable; elsewhere a random share of the sites is changed,
        evenly on a logarithmic scale, and at least one.
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
        """Neighbours (n, sites): each with 1 to `most` sites set anew, sizes by a step or two."""
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
        """The sites that act on all of the program."""
        return sorted({site for setting in self.settings for site, _ in setting})

    def find_untried(self, choices: np.ndarray) -> list[Setting]:
        """The settings that none of `choices` (n, sites) has."""
        return [
            setting
            for setting in self.settings
            if not np.all([choices[:, site] == choice for site, choice in setting], axis=0).any()
        ]

    def apply(self, settings: Sequence[Setting], choices: np.ndarray) -> np.ndarray:
        """Legal ones of `choices` (n, sites) with one of the settings: (k, sites), setting by
        setting."""
        if not settings:  # as of a table, whose nearest members need not be looked for
            return choices[:0]
        changed = []
        for setting in settings:
            rows = choices.copy()
            for site, choice in setting:
                rows[:, site] = choice
            changed.append(rows[(rows != choices).any(axis=1)])
        return self.keep_legal(np.concatenate(changed))

    def keep_legal(self, choices: np.ndarray) -> np.ndarray:
        """Those that no known constraint forbids; of a table, the members nearest to each."""
        if self.members is not None:
            return self.members[self.nearest(choices, np.ones(len(self.members), bool))]
        return choices if self.are_legal is None else choices[self.are_legal(choices)]

    def nearest(self, choices: np.ndarray, allowed: np.ndarray) -> np.ndarray:
        """Positions (n,) of the allowed members that are nearest to each of (n, sites)."""
        places = np.flatnonzero(allowed)
        assert self.members is not None and self._described is not None
        own, others = self.describe(choices), self._described[places]
        distances = (others**2).sum(axis=1) - 2 * own @ others.T
        return places[np.argmin(distances, axis=1)]

    @cached_property
    def _weights(self) -> np.ndarray:
        """(sites,) by which a column is multiplied."""
        weights = np.ones(self.sites, np.float32)
        others = int((self.sizes > 1).sum()) - len(self.broad)
        if self.broad:
            weights[self.broad] = np.sqrt(max(1.0, MEAN * others / len(self.broad)))
        return weights

    @cached_property
    def _described(self) -> np.ndarray | None:
        return None if self.members is None else self.describe(self.members)

    def describe(self, choices: np.ndarray) -> np.ndarray:
        """Columns (n, columns) float32 whose squared distances say how unlike configurations are.

        A site that differs counts 2; one of sizes counts the square of how far they are apart, in
        units of the deviation over its choices. All broad sites together count as much as what
        else a random configuration changes. In very large spaces sites share columns.
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
    """Of each of `first` (n, columns) from each of `second` (m, columns): (n, m)."""
    square = (first**2).sum(1)[:, None] + (second**2).sum(1) - 2 * first @ second.T
    return np.asarray(np.maximum(square, 0))


def draw_new(
    space: Space, generator: np.random.Generator, count: int, known: set[str]
) -> np.ndarray:
    """Random configurations (at most `count`, sites), none known and none twice."""
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
