"""Score new configurations of one program, batch after batch, with comparable scores.

The score that most models give a configuration depends on the other configurations in the batch: on
how frequent the configuration's layouts are in the batch, and on how far its sums over nodes are
from the batch's mean. So a session has one fixed *reference list* of configurations. Every
configuration is scored as if it were alone in a batch with that list. Each model's score becomes
(score - mean) / standard deviation, both over the model's scores of the list. The session merges
these by the recipe's weights, even if the recipe merges ranks: a rank is unknown while further
configurations may come.

The list is prepared once. If a new configuration is similar to one that was computed before, a
layout net recomputes only the nodes whose values differ.
"""

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol, runtime_checkable

import numpy as np

from ensembles.votes import to_shares
from solution.domain.codebook import Codebook, encode
from solution.domain.dividing import choose_configs
from solution.domain.graph import Graph
from solution.domain.vocabulary import NUM_LAYOUT_FEATURES, NUM_TILE_FEATURES
from solution.features.candidates import make_candidates
from solution.features.preparation import Preparation
from solution.models.catalogue import Model
from solution.models.layout.layout_forward import LayoutForward
from solution.models.layout.listed_net import ListedNet
from solution.models.light import LightModel, Scorer
from solution.serving.possible import check_layouts
from solution.serving.record import Member
from solution.system.errors import InputError

REFERENCE = 256  # maximum number of configurations in the reference list
Models = Callable[[], Iterable[tuple[Member, Model | LightModel]]]
# returns a model's scores (k,) float64 of configurations (k, ...), each scored together with a
# fixed reference list, standardised by the mean and standard deviation of the list's scores
Vote = Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True, eq=False, repr=False)
class Session:
    """A scorer of configurations of one program, each together with the same reference list."""

    reference: Graph  # the program with the configurations of the reference list
    models: Models  # yields the bundle's models that rank the program
    weights: Mapping[str, float]  # {experiment: its weight in the merged score}
    _prepared: dict[Preparation, Graph] = field(default_factory=dict)
    _votes: dict[str, Vote] = field(default_factory=dict)  # {a model's folder in the bundle: Vote}

    def __repr__(self) -> str:
        return f"<Session of {self.reference.name}, {self.reference.num_configs} configurations>"

    def score(self, configs: np.ndarray) -> np.ndarray:
        """Return scores (k,) float32, which are comparable in this session. `configs`: layouts
        (k, configurable, 18), with -1 where the compiler chooses, or tiles (k, 24). Raises
        InputError if the configurations do not fit the program."""
        checked = self._check(configs)
        votes: dict[str, list[np.ndarray]] = {}
        for member, model in self.models():
            if member.folder not in self._votes:
                graph = self._prepare(model.preparation)
                self._votes[member.folder] = put_beside(model.ranker, graph)
            votes.setdefault(member.experiment, []).append(self._votes[member.folder](checked))
        shares = to_shares(np.array([self.weights[name] for name in votes]))
        merged = sum(
            share * np.mean(voted, axis=0)
            for share, voted in zip(shares, votes.values(), strict=True)
        )
        return np.asarray(merged, np.float32)

    def _prepare(self, preparation: Preparation) -> Graph:
        """Return the prepared program with the reference list, from a cache if possible."""
        if preparation not in self._prepared:
            self._prepared[preparation] = preparation(self.reference)
        return self._prepared[preparation]

    def _check(self, configs: np.ndarray) -> np.ndarray:
        """Return the configurations as int8 layouts or float32 tiles. Raises InputError if their
        shape or a value is invalid."""
        is_layout = self.reference.collection.kind == "layout"
        configurable = self.reference.configs.shape[1]
        shape = (configurable, NUM_LAYOUT_FEATURES) if is_layout else (NUM_TILE_FEATURES,)
        if np.ndim(configs) != 1 + len(shape) or np.shape(configs)[1:] != shape or not len(configs):
            raise InputError(
                f"{self.reference.name}: expected configurations of shape (k, "
                f"{', '.join(map(str, shape))}), found {np.shape(configs)}."
            )
        if not is_layout:
            tiles = np.asarray(configs, np.float32)
            wrong = np.flatnonzero(~np.isfinite(tiles).all(axis=1))
            if len(wrong):
                raise InputError(
                    f"{self.reference.name}: expected tiles of finite numbers, found others in "
                    f"row {wrong[0]}."
                )
            return tiles
        given = np.asarray(configs)
        if not np.isin(given, np.arange(-1, 6)).all():
            raise InputError(f"{self.reference.name}: expected layouts of -1 to 5.")
        layouts = given.astype(np.int8)
        check_layouts(self.reference, layouts)
        return layouts


def open_session(
    graph: Graph, reference: int, models: Models, weights: Mapping[str, float]
) -> Session:
    """Return a scorer whose reference list has at most `reference` of the graph's configurations,
    or of generated ones if it has only one. Raises InputError if `reference` is less than 1 or no
    configurations can be generated."""
    if reference < 1:
        raise InputError(f"reference is {reference}, expected a number of configurations from 1.")
    if graph.num_configs == 1:
        listed = make_candidates(graph, reference)
    else:
        listed = graph.select(choose_configs(graph.key, graph.num_configs, reference))
    return Session(dataclasses.replace(listed, runtimes=None), models, weights)


@runtime_checkable
class HasLayoutNet(Protocol):
    """A layout net, or a ranker that can export its weights to a net without torch."""

    def in_numpy(self) -> LayoutForward:
        """Return the net that predicts with numpy alone."""
        ...


def put_beside(ranker: Scorer, listed: Graph) -> Vote:
    """Return a function that scores new configurations by the model `ranker`. Its fixed reference
    list is the configurations of the prepared graph `listed`."""
    if isinstance(ranker, HasLayoutNet):
        return partial(_vote_by_net, ListedNet(ranker.in_numpy(), listed))
    if ranker.scores_beside_a_list:
        return TogetherWith(ranker, listed).vote
    return partial(_vote_one_by_one, ranker, listed)


def _vote_by_net(net: ListedNet, configs: np.ndarray) -> np.ndarray:
    """Score by a layout net; its work is proportional to the nodes that configurations change."""
    return _deviation(net.score(configs).astype(np.float64), net.listed.astype(np.float64))


class TogetherWith:
    """A model that reads from Graph.listed which configurations are the reference list, so that one
    call scores all new configurations."""

    def __init__(self, ranker: Scorer, listed: Graph) -> None:
        self._ranker, self._graph = ranker, listed
        self._reference: np.ndarray | None = None  # scores of the reference list

    def vote(self, configs: np.ndarray) -> np.ndarray:
        scores = self._ranker.predict(_join(self._graph, configs)).astype(np.float64)
        if self._reference is None:
            # kept from the first call: later scores differ by rounding, which depends on batch size
            self._reference = scores[: -len(configs)]
        return _deviation(scores[-len(configs) :], self._reference)


def _vote_one_by_one(ranker: Scorer, listed: Graph, configs: np.ndarray) -> np.ndarray:
    """Score by a model whose scores depend on the whole batch: each new configuration is scored in
    its own batch with the reference list."""
    found = []
    for config in configs:
        joined = dataclasses.replace(_join(listed, config[None]), listed=None)
        scores = ranker.predict(joined).astype(np.float64)
        found.append(_deviation(scores[-1:], scores[:-1])[0])
    return np.array(found)


def _join(listed: Graph, configs: np.ndarray) -> Graph:
    """Return the program with the reference list's configurations, which Graph.listed marks,
    followed by `configs`."""
    if listed.collection.kind == "layout":
        together = np.concatenate([listed.layouts.expand(), configs])
        joined: Codebook | np.ndarray = encode(together)
    else:
        joined = np.concatenate([listed.tiles, configs])
    marks = np.arange(listed.num_configs + len(configs)) < listed.num_configs
    return dataclasses.replace(listed, configs=joined, runtimes=None, listed=marks)


def _deviation(scores: np.ndarray, listed: np.ndarray) -> np.ndarray:
    """Return (scores - mean(listed)) / std(listed); a standard deviation of 0 counts as 1."""
    return np.asarray((scores - listed.mean()) / (listed.std() or 1.0))
