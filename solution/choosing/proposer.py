"""The one interface of everything that searches: it is asked for configurations, and told times."""

from abc import ABC, abstractmethod
from collections.abc import Callable

import numpy as np

from solution.choosing.space import Space, draw_new, name_choices

# Scores (n,) of choices (n, sites); lower is faster, comparable among all that it ever gives.
Prior = Callable[[np.ndarray], np.ndarray]


class Proposer(ABC):
    """A search. What it asks for depends on space, seed and what it was told, and nothing else."""

    def __init__(self, space: Space, seed: int = 0) -> None:
        self.space = space
        self.generator = np.random.default_rng(seed)
        self.known: set[str] = set()  # names of all that was asked for or told
        self.choices = np.zeros((0, space.sites), np.int32)  # (told, sites)
        self.times = np.zeros(0)  # (told,) NaN of those that failed

    def ask(self, count: int) -> np.ndarray:
        """At most `count` configurations (k, sites): legal, none twice, none asked before.

        Fewer where the space has no more.
        """
        wanted = self._filter(self._propose(count), count)
        if len(wanted) < count:
            more = draw_new(self.space, self.generator, count - len(wanted), self.known)
            wanted = np.concatenate([wanted, self._filter(more, count - len(wanted))])
        return wanted

    def tell(self, choices: np.ndarray, times: np.ndarray) -> None:
        """What configurations (k, sites) took (k,); NaN: it crashed, or its results are wrong."""
        self.known.update(map(name_choices, choices))
        self.choices = np.concatenate([self.choices, choices.astype(np.int32)])
        self.times = np.append(self.times, times)

    @abstractmethod
    def _propose(self, count: int) -> np.ndarray:
        """Configurations (n, sites) in the order of worth; known ones among them are skipped."""

    @property
    def sound(self) -> np.ndarray:
        """Positions of those told that have a time, fastest first."""
        order = np.argsort(self.times, kind="stable")
        return order[: int(np.isfinite(self.times).sum())]

    def best(self, count: int) -> np.ndarray:
        """The `count` fastest (k, sites) that were told; the default where there is none."""
        places = self.sound[:count]
        return self.choices[places] if len(places) else self.space.default[None]

    def _filter(self, choices: np.ndarray, count: int) -> np.ndarray:
        """The first `count` that are legal and not known; they become known."""
        kept: list[np.ndarray] = []
        for row in self.space.keep_legal(choices) if len(choices) else ():
            name = name_choices(row)
            if len(kept) < count and name not in self.known:
                self.known.add(name)
                kept.append(row)
        return np.array(kept, np.int32).reshape(-1, self.space.sites)


class RandomSearch(Proposer):
    """Configurations by chance."""

    def _propose(self, count: int) -> np.ndarray:
        return draw_new(self.space, self.generator, count, self.known)
