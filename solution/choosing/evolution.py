"""Optimizers that vary the fastest configurations: genetic, annealing, beam, cross-entropy."""

import numpy as np

from solution.choosing.proposer import Proposer
from solution.choosing.space import Space

PARENTS = 8
MUTATED = 0.7  # share of children that are also mutated
WARM, COLD = 0.1, 0.005  # temperatures, as relative slowdowns that are accepted with chance 1/e
COOLING = 48  # measurements from warm to cold
BEAM = 4
ELITE, LEAST_ELITE = 0.25, 4  # the fastest share of all measured, and the least number
SMOOTHING = 1.0  # pseudocount of each parameter, spread over its values
OWN = 4.0  # pseudocount of the default, spread over the parameters; unused in a table


class Genetic(Proposer):
    """Copy a connected region from one fast parent into another, then mutate the child."""

    def _propose(self, count: int) -> np.ndarray:
        parents = self.best(PARENTS)
        if len(parents) < 2:
            return self.space.draw(self.generator, count)
        children = np.stack([self._cross(parents) for _ in range(2 * count)])
        mutated = self.generator.random(len(children)) < MUTATED
        children[mutated] = self.space.mutate(self.generator, children[mutated])
        return children

    def _cross(self, parents: np.ndarray) -> np.ndarray:
        first, second = self.generator.choice(len(parents), 2, replace=False)
        child = parents[first].copy()
        region = grow_region(self.space, self.generator)
        child[region] = parents[second][region]
        return child


def grow_region(space: Space, generator: np.random.Generator) -> np.ndarray:
    """Return a connected set of sites: breadth-first along links from a random site, random size.

    If the links end before the size is reached (or the space has none), continue from another
    random site.
    """
    wanted = int(generator.integers(1, max(2, space.sites)))
    order = generator.permutation(space.sites).tolist()
    region: list[int] = []
    seen: set[int] = set()
    edge: list[int] = []
    while len(region) < wanted:
        site = edge.pop(0) if edge else order.pop()
        if site in seen:
            continue
        seen.add(site)
        region.append(site)
        edge += [int(other) for other in space.next_to[site] if int(other) not in seen]
    return np.array(region)


class Annealing(Proposer):
    """Simulated annealing: accept a slower neighbour with a probability that falls over time."""

    def __init__(self, space: Space, seed: int = 0) -> None:
        super().__init__(space, seed)
        self._state: tuple[np.ndarray, float] | None = None

    def tell(self, choices: np.ndarray, times: np.ndarray) -> None:
        super().tell(choices, times)
        for row, time in zip(choices, times, strict=True):
            if np.isfinite(time) and self._accepts(float(np.log(time))):
                self._state = row.copy(), float(np.log(time))

    def _accepts(self, time: float) -> bool:
        if self._state is None:
            return True
        share = min(1.0, len(self.times) / COOLING)
        temperature = WARM ** (1 - share) * COLD**share
        gain = min(0.0, self._state[1] - time)
        return bool(self.generator.random() < np.exp(gain / temperature))

    def _propose(self, count: int) -> np.ndarray:
        if self._state is None:
            return self.space.draw(self.generator, count)
        return self.space.mutate(self.generator, np.tile(self._state[0], (4 * count, 1)))


class Beam(Proposer):
    """Propose neighbours of the fastest few configurations, taking turns."""

    def _propose(self, count: int) -> np.ndarray:
        if not len(self.sound):
            return self.space.draw(self.generator, count)
        parents = self.best(BEAM)
        return self.space.mutate(self.generator, np.tile(parents, (2 * count, 1)), most=1)


class CrossEntropy(Proposer):
    """Sample each parameter independently, from the frequencies among the fastest
    configurations."""

    def _propose(self, count: int) -> np.ndarray:
        places = self.sound
        if len(places) < LEAST_ELITE:
            return self.space.draw(self.generator, count)
        elite = self.choices[places[: max(LEAST_ELITE, int(ELITE * len(places)))]]
        drawn = np.empty((4 * count, self.space.sites), np.int32)
        for site, size in enumerate(self.space.sizes):
            seen = np.bincount(elite[:, site], minlength=size) + SMOOTHING / size
            if self.space.members is None:
                seen[self.space.default[site]] += OWN / self.space.sites
            drawn[:, site] = self.generator.choice(size, len(drawn), p=seen / seen.sum())
        return drawn
