"""Make an optimizer by its name: this project's optimizer, or a baseline to compare it with.

Four baselines are implemented here: genetic, annealing, beam, cross-entropy.
"""

from collections.abc import Callable

import numpy as np

from solution.choosing.guided import Beliefs, ByOrder, Guided
from solution.choosing.proposer import Proposer, RandomSearch
from solution.collecting.space import Prior, Space
from solution.system.errors import InputError
from solution.system.names import suggest

PARENTS = 8  # number of fastest configurations that Genetic crosses
MUTATED = 0.7  # share of children that are mutated after crossing
# first and last temperature: Annealing accepts a slowdown by this share with probability 1/e
WARM, COLD = 0.1, 0.005
COOLING = 48  # number of measurements until the temperature has fallen from WARM to COLD
BEAM = 4  # number of fastest configurations whose neighbours Beam proposes
# CrossEntropy learns from the fastest configurations: this share of all, at least LEAST_ELITE
ELITE, LEAST_ELITE = 0.25, 4
# CrossEntropy adds SMOOTHING / (number of the parameter's values) to the count of each value
SMOOTHING = 1.0
# CrossEntropy adds DEFAULT / (number of parameters) to the count of each parameter's default value,
# unless the space is a table of configurations
DEFAULT = 4.0


OURS, ORDER, PROCESS = "ours", "order", "gaussian-process"
LED = (OURS, ORDER)  # names of the optimizers that use a model's scores
_Build = Callable[[Space, Prior | None, Beliefs, int], Proposer]


class Genetic(Proposer):
    """Genetic search: copy a connected region from one fast parent into another, then mutate."""

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
        return self.space.cross(self.generator, parents[first], parents[second])


class Annealing(Proposer):
    """Simulated annealing: accept a slower neighbour with a probability that falls over time."""

    def __init__(self, space: Space, seed: int = 0) -> None:
        super().__init__(space, seed)
        self._state: tuple[np.ndarray, float] | None = None

    def tell(self, configs: np.ndarray, times: np.ndarray) -> None:
        super().tell(configs, times)
        for row, time in zip(configs, times, strict=True):
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
    """Beam search: propose neighbours of each of the BEAM fastest configurations."""

    def _propose(self, count: int) -> np.ndarray:
        if not len(self.sound):
            return self.space.draw(self.generator, count)
        parents = self.best(BEAM)
        return self.space.mutate(self.generator, np.tile(parents, (2 * count, 1)), most=1)


class CrossEntropy(Proposer):
    """Cross-entropy method: sample each parameter's value by its frequency in the fastest
    configurations, independently of the other parameters."""

    def _propose(self, count: int) -> np.ndarray:
        sound = self.sound
        if len(sound) < LEAST_ELITE:
            return self.space.draw(self.generator, count)
        elite = self.configs[sound[: max(LEAST_ELITE, int(ELITE * len(sound)))]]
        drawn = np.empty((4 * count, self.space.sites), np.int32)
        for site, size in enumerate(self.space.sizes):
            seen = np.bincount(elite[:, site], minlength=size) + SMOOTHING / size
            if self.space.members is None:
                seen[self.space.default[site]] += DEFAULT / self.space.sites
            drawn[:, site] = self.generator.choice(size, len(drawn), p=seen / seen.sum())
        return drawn


def check_method(name: str) -> str:
    """Return `name`; raise InputError if no optimizer has this name."""
    if name not in METHODS:
        raise InputError(
            f"--search {name}: no search method has this name.{suggest(name, METHODS)} "
            f"Give one of {', '.join(METHODS)}."
        )
    return name


def is_led(name: str) -> bool:
    """Return True if the optimizer `name` uses a model's scores."""
    return name in LED


def describe_unled(name: str) -> str:
    """Return the sentence that reports show for the optimizer `name`, which no model guides."""
    return f"Searched by {name}, without a model."


def make_proposer(
    name: str, space: Space, prior: Prior | None, beliefs: Beliefs, seed: int
) -> Proposer:
    """Return a new optimizer, `name` in METHODS. `prior`: the model's scores, if any. `beliefs`:
    prior weights for OURS. Raises InputError if the optimizer needs scores and `prior` is None."""
    return METHODS[name](space, prior, beliefs, seed)


def _build_order(space: Space, prior: Prior | None, beliefs: Beliefs, seed: int) -> Proposer:
    if prior is None:
        raise InputError(
            f"--search {ORDER} follows a model's ranking, and no model ranks these "
            f"configurations. Leave --search out, or give another: {', '.join(METHODS)}."
        )
    return ByOrder(space, seed, prior)


def _build_tpe(space: Space, prior: Prior | None, beliefs: Beliefs, seed: int) -> Proposer:
    from solution.choosing.libraries import Tpe  # optuna is slow to import

    return Tpe(space, seed)


def _build_process(space: Space, prior: Prior | None, beliefs: Beliefs, seed: int) -> Proposer:
    from solution.choosing.libraries import Process

    return Process(space, seed)


METHODS: dict[str, _Build] = {
    OURS: lambda space, prior, beliefs, seed: Guided(space, seed, prior, beliefs),
    ORDER: _build_order,
    "random": lambda space, prior, beliefs, seed: RandomSearch(space, seed),
    "genetic": lambda space, prior, beliefs, seed: Genetic(space, seed),
    "annealing": lambda space, prior, beliefs, seed: Annealing(space, seed),
    "beam": lambda space, prior, beliefs, seed: Beam(space, seed),
    "cross-entropy": lambda space, prior, beliefs, seed: CrossEntropy(space, seed),
    "tpe": _build_tpe,
    PROCESS: _build_process,
}
