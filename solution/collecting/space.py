"""Represent a search space by integers: a configuration is a vector of one choice per site.

A site is a parameter: the layout of a tensor, a compile option, or a tile. A choice is the index of
a value in the list of the site's values. A table is a space with a fixed list of configurations,
its members. Collections and all optimizers draw configurations with this module.
"""

import hashlib
from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from solution.features.candidates import CHANGES, SHARES, draw_sites

# maximum number of one-hot columns in a configuration's features
COLUMNS = 4096
# mean share of the sites that a random configuration changes; the share is log-uniform in SHARES
MEAN = (SHARES[1] - SHARES[0]) / np.log(SHARES[1] / SHARES[0])
# maximum number of draws in `draw_new`; it stops once enough new ones are found
TRIES = 25
# If more than MOST configurations of a table are unmeasured, `find_candidates` returns MOST random
# ones and the MOST that the prior (a model's scores) ranks best.
MOST = 1500
# If the space is no table, `find_candidates` returns about NEAR neighbours of the fastest
# configurations, and at most FAR random configurations.
NEAR, FAR = 192, 128
# maximum number of edges between a node and the configurable node that `link_sites` assigns to it
HOPS = 8

# a setting of the whole program, such as an option's value: pairs (site, choice)
Setting = tuple[tuple[int, int], ...]
# A model's scores (n,) of configurations (n, sites), comparable between calls; lower is faster.
Prior = Callable[[np.ndarray], np.ndarray]


def name_config(config: np.ndarray) -> str:
    """Return the name of a configuration (sites,): a hash of its choices."""
    data = np.ascontiguousarray(config, np.int32).tobytes()
    return hashlib.blake2b(data, digest_size=8).hexdigest()


@dataclass(frozen=True, eq=False, kw_only=True)
class Space:
    """The configurations of one program: arrays (n, sites) of choices, 0 <= choice < sizes."""

    sizes: np.ndarray  # (sites,) number of values that each site can have
    default: np.ndarray  # (sites,) the compiler's default configuration
    # (links, 2) pairs of sites that are neighbours in the program, see `link_sites`
    links: np.ndarray = field(default_factory=lambda: np.zeros((0, 2), int))
    # for each site: its values in ascending order if they are sizes, None if they are names
    coordinates: tuple[np.ndarray | None, ...] = ()
    # returns a mask (n,) of the legal ones among configurations (n, sites); None: all are legal
    are_legal: Callable[[np.ndarray], np.ndarray] | None = None
    # (members, sites) all configurations, if the space is a table; None: any legal combination
    members: np.ndarray | None = None
    # settings of the whole program, in the order in which a search tries them
    settings: tuple[Setting, ...] = ()

    @property
    def sites(self) -> int:
        return len(self.sizes)

    @cached_property
    def names(self) -> list[str]:
        """Return the names of the table's members; an empty list if the space is no table."""
        return [] if self.members is None else [name_config(row) for row in self.members]

    def find_unknown(self, known: Set[str]) -> np.ndarray:
        """Return the positions of the table's members whose names are not in `known`."""
        return np.array([row for row, name in enumerate(self.names) if name not in known], int)

    @cached_property
    def ordered(self) -> np.ndarray:
        """Return (sites,) bool: True if a site's values are sizes, which are in ascending order."""
        is_size = [sizes is not None for sizes in self.coordinates]
        return np.array(is_size or [False] * self.sites, bool)

    @cached_property
    def neighbours(self) -> list[np.ndarray]:
        """Return for each site the sites that are linked with it."""
        both = np.concatenate([self.links, self.links[:, ::-1]]).reshape(-1, 2)
        return [both[both[:, 0] == site, 1] for site in range(self.sites)]

    def draw(self, generator: np.random.Generator, count: int) -> np.ndarray:
        """Return random configurations (at most `count`, sites), possibly with duplicates: members
        of a table, all equally likely, or the default with random choices at a random share of the
        sites."""
        if self.members is not None:
            return self.members[generator.integers(len(self.members), size=count)]
        free = np.flatnonzero(self.sizes > 1)
        drawn = np.tile(self.default, (count, 1))
        for row in drawn:
            changed = free[draw_sites(generator, len(free))]
            row[changed] = generator.integers(self.sizes[changed])
        return self.keep_legal(drawn)

    def mutate(
        self, generator: np.random.Generator, configs: np.ndarray, most: int = 2
    ) -> np.ndarray:
        """Return a neighbour of each configuration (n, sites): 1 to `most` sites get another random
        choice, which is 1 or 2 steps away if the site is `ordered`."""
        changed = configs.copy()
        free = np.flatnonzero(self.sizes > 1)
        for row in changed:
            for site in free[draw_sites(generator, len(free), most)]:
                row[site] = self._step(generator, site, int(row[site]))
        return changed

    def cross(
        self, generator: np.random.Generator, first: np.ndarray, second: np.ndarray
    ) -> np.ndarray:
        """Return `first` (sites,), with the choices of `second` in a region of sites. The region
        has a random size, and grows breadth-first along links from random sites."""
        wanted = int(generator.integers(1, max(2, self.sites)))
        order = generator.permutation(self.sites).tolist()
        region: set[int] = set()
        edge: list[int] = []
        while len(region) < wanted:
            site = edge.pop(0) if edge else order.pop()
            if site not in region:
                region.add(site)
                edge += [one for one in self.neighbours[site].tolist() if one not in region]
        return np.where(np.isin(np.arange(self.sites), list(region)), second, first)

    def breed(self, generator: np.random.Generator, count: int, parents: np.ndarray) -> np.ndarray:
        """Cross random pairs of parents, then mutate: return children (at most `count`, sites)."""
        pairs = generator.integers(len(parents), size=(count, 2))
        mixed = [self.cross(generator, *parents[pair]) for pair in pairs]
        return self.keep_legal(self.mutate(generator, np.stack(mixed), most=CHANGES))

    def _step(self, generator: np.random.Generator, site: int, choice: int) -> int:
        size = int(self.sizes[site])
        if self.ordered[site] and size > 2:
            step = int(generator.integers(1, 3)) * (1 if generator.random() < 0.5 else -1)
            return next((c for c in (choice + step, choice - step) if 0 <= c < size), 0)
        other = int(generator.integers(size - 1))
        return other + (other >= choice)

    @cached_property
    def broad(self) -> list[int]:
        """Return the sites that act on the whole program: the sites that occur in `settings`."""
        return sorted({site for setting in self.settings for site, _ in setting})

    def find_untried(self, configs: np.ndarray) -> list[Setting]:
        """Return the settings that none of the configurations `configs` (n, sites) has."""
        return [
            setting
            for setting in self.settings
            if not np.all([configs[:, site] == choice for site, choice in setting], axis=0).any()
        ]

    def apply(self, settings: Sequence[Setting], configs: np.ndarray) -> np.ndarray:
        """Return `configs` (n, sites) once for each setting, with only that setting applied; leave
        out configurations that are illegal or did not change."""
        if not settings:  # np.concatenate rejects an empty list
            return configs[:0]
        changed = []
        for setting in settings:
            rows = configs.copy()
            for site, choice in setting:
                rows[:, site] = choice
            changed.append(rows[(rows != configs).any(axis=1)])
        return self.keep_legal(np.concatenate(changed))

    def keep_legal(self, configs: np.ndarray) -> np.ndarray:
        """Return the legal configurations in `configs` (n, sites), fewer than n if some are not
        legal; in a table, return the member nearest to each."""
        if self.members is not None:
            return self.members[self.nearest(configs, np.ones(len(self.members), bool))]
        return configs if self.are_legal is None else configs[self.are_legal(configs)]

    def nearest(self, configs: np.ndarray, allowed: np.ndarray) -> np.ndarray:
        """Return the position of the nearest member for each of `configs` (n, sites), among the
        members that the mask `allowed` (members,) selects."""
        rows = np.flatnonzero(allowed)
        assert self.members is not None and self._described is not None
        others = self._described[rows]
        # |y|^2 - 2 x.y = |x - y|^2 - |x|^2: it is smallest for the y nearest to x
        distances = (others**2).sum(axis=1) - 2 * self.describe(configs) @ others.T
        return rows[np.argmin(distances, axis=1)]

    @cached_property
    def _weights(self) -> np.ndarray:
        """Return the factors (sites,) with which `describe` scales each site's one-hot columns."""
        weights = np.ones(self.sites, np.float32)
        others = int((self.sizes > 1).sum()) - len(self.broad)
        if self.broad:
            weights[self.broad] = np.sqrt(max(1.0, MEAN * others / len(self.broad)))
        return weights

    @cached_property
    def _described(self) -> np.ndarray | None:
        return None if self.members is None else self.describe(self.members)

    def describe(self, configs: np.ndarray) -> np.ndarray:
        """Return features (n, columns) float32. The squared distance between two rows sums over the
        sites: 2 for different names, or the squared difference of sizes in standard deviations.

        The distance of the `broad` sites, which act on the whole program, has a larger weight:
        together they count as much as the other sites that a random configuration changes on
        average. If there are more than COLUMNS names, several names share a column.
        """
        parts = [
            ((sizes - sizes.mean()) / (sizes.std() or 1.0))[configs[:, site]]
            for site, sizes in enumerate(self.coordinates)
            if sizes is not None
        ]
        # One-hot columns of the sites whose values are names, each scaled by its site's weight.
        named = np.flatnonzero(~self.ordered & (self.sizes > 1))
        width = int(self.sizes[named].sum())
        hot = np.zeros((len(configs), min(width, COLUMNS)), np.float32)
        starts = np.cumsum(self.sizes[named]) - self.sizes[named]
        columns = (configs[:, named] + starts) % COLUMNS
        np.add.at(hot, (np.arange(len(configs))[:, None], columns), self._weights[named])
        return np.column_stack([*parts, hot]).astype(np.float32)


def squared_distances(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Return squared distances (n, m) of `first` (n, columns) from `second` (m, columns)."""
    square = (first**2).sum(1)[:, None] + (second**2).sum(1) - 2 * first @ second.T
    return np.asarray(np.maximum(square, 0))


def draw_new(
    space: Space,
    generator: np.random.Generator,
    count: int,
    known: Set[str],
    parents: np.ndarray | None = None,
) -> np.ndarray:
    """Return distinct configurations (at most `count`, sites) with names not in `known`. They are
    random in a table or without `parents`, otherwise children of `parents` (k, sites)."""
    if space.members is not None:
        return space.members[generator.permutation(space.find_unknown(known))[:count]]
    found: dict[str, np.ndarray] = {}
    for _ in range(TRIES):
        drawn = (
            space.draw(generator, 2 * count)
            if parents is None
            else space.breed(generator, 2 * count, parents)
        )
        for row in drawn:
            name = name_config(row)
            if name not in known:
                found.setdefault(name, row)
        if len(found) >= count:
            break
    return np.array(list(found.values())[:count], np.int32).reshape(-1, space.sites)


def find_candidates(
    space: Space,
    generator: np.random.Generator,
    known: Set[str],
    fastest: np.ndarray,
    prior: Prior | None = None,
) -> np.ndarray:
    """Return candidates (n, sites) with names not in `known`. From a table, return all of them; if
    their number exceeds MOST, return this many random ones and this many that the prior ranks best.
    If the space is no table, return neighbours of `fastest` (k, sites), `fastest` with each of the
    space's settings, and random configurations."""
    if space.members is not None:
        left = space.find_unknown(known)
        return space.members[left if len(left) <= MOST else _sample(space, generator, left, prior)]
    near = space.keep_legal(
        space.mutate(generator, np.tile(fastest, (-(-NEAR // len(fastest)), 1)))
    )
    near = np.concatenate([near, space.apply(space.settings, fastest)])
    named = {name_config(row): row for row in near}
    far = draw_new(space, generator, FAR, known | named.keys())
    fresh = [row for name, row in named.items() if name not in known]
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


def link_sites(
    edges: np.ndarray, nodes: int, configurable: np.ndarray, node: np.ndarray
) -> np.ndarray:
    """Return pairs (links, 2) of neighbouring sites: consecutive sites of a configurable node, and
    the first sites of neighbouring configurable nodes. Each node belongs to its nearest
    configurable node (edges count in both directions); configurable nodes are neighbours if an edge
    connects nodes that belong to them. `node`: (sites,) each site's configurable node."""
    # owner (nodes,): the configurable node of each node, spread from neighbour to neighbour
    owner = np.full(nodes, -1)
    owner[configurable] = np.arange(len(configurable))
    both = np.concatenate([edges, edges[:, ::-1]])
    for _ in range(HOPS):
        spread = both[(owner[both[:, 0]] >= 0) & (owner[both[:, 1]] < 0)]
        owner[spread[:, 1]] = owner[spread[:, 0]]
    touching = owner[edges]
    pairs = np.unique(touching[(touching[:, 0] != touching[:, 1]) & (touching >= 0).all(1)], axis=0)
    first = {number: site for site, number in reversed(list(enumerate(node.tolist())))}
    chained = [(site, site + 1) for site in range(len(node) - 1) if node[site] == node[site + 1]]
    across = [(first[a], first[b]) for a, b in pairs.tolist() if a in first and b in first]
    return np.array([*chained, *across], int).reshape(-1, 2)
