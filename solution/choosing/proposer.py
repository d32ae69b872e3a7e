"""The common interface of all optimizers: ask for configurations, tell their times."""

from abc import ABC, abstractmethod

import numpy as np

from solution.collecting.space import Space, draw_new, name_config


class Proposer(ABC):
    """An optimizer; its proposals depend only on the space, the seed and the times it was told."""

    def __init__(self, space: Space, seed: int = 0) -> None:
        self.space = space
        self.generator = np.random.default_rng(seed)
        # names of all configurations that were returned by `ask` or passed to `tell`
        self.known: set[str] = set()
        # (measured, sites) configurations that were passed to `tell`
        self.configs = np.zeros((0, space.sites), np.int32)
        # (measured,) times of `configs`; NaN for a configuration that failed
        self.times = np.zeros(0)

    def ask(self, count: int) -> np.ndarray:
        """Return `count` or fewer legal, distinct, new configurations (k, sites) to measure."""
        wanted = self._filter(self._propose(count), count)
        if len(wanted) < count:
            more = draw_new(self.space, self.generator, count - len(wanted), self.known)
            wanted = np.concatenate([wanted, self._filter(more, count - len(wanted))])
        return wanted

    def tell(self, configs: np.ndarray, times: np.ndarray) -> None:
        """Add the times (k,) of measured configurations (k, sites); NaN marks a failed one."""
        self.known.update(map(name_config, configs))
        self.configs = np.concatenate([self.configs, configs.astype(np.int32)])
        self.times = np.append(self.times, times)

    @abstractmethod
    def _propose(self, count: int) -> np.ndarray:
        """Return configurations (n, sites), best first, from which the caller takes the first
        `count` that are legal and not known. n may differ from `count`."""

    @property
    def sound(self) -> np.ndarray:
        """Return the indices in `configs` of configurations that have a time, fastest first."""
        order = np.argsort(self.times, kind="stable")
        return order[: int(np.isfinite(self.times).sum())]

    def best(self, count: int) -> np.ndarray:
        """Return the fastest configurations (k, sites), at most `count` of those that have a time;
        the default if there are none."""
        fastest = self.configs[self.sound[:count]]
        return fastest if len(fastest) else self.space.default[None]

    def _filter(self, configs: np.ndarray, count: int) -> np.ndarray:
        """Return the first `count` legal and unknown configurations, and mark them as known."""
        kept: list[np.ndarray] = []
        for row in self.space.keep_legal(configs) if len(configs) else ():
            name = name_config(row)
            if len(kept) < count and name not in self.known:
                self.known.add(name)
                kept.append(row)
        return np.array(kept, np.int32).reshape(-1, self.space.sites)


class RandomSearch(Proposer):
    """An optimizer that proposes random configurations: a baseline."""

    def _propose(self, count: int) -> np.ndarray:
        return draw_new(self.space, self.generator, count, self.known)
