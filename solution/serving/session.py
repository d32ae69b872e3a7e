"""Score new configurations of one program, batch after batch, with comparable scores.

Most models look at the whole list in which a configuration stands: how frequent its layouts are,
how far its sums are from the mean. A session has one fixed reference list. Every configuration is
scored as if it came alone to that list. Each model's score is then expressed in deviations from the
mean of its scores of the list. The recipe's weights merge these scores, whatever the recipe's
method is: ranks do not exist as long as configurations are still to come.

The list is prepared once. Layout nets compute only what a configuration changes, if it is similar
to one that they have computed.
"""

import dataclasses
from dataclasses import dataclass, field

import numpy as np

from ensembles.votes import to_shares
from solution.domain.dividing import choose_configs
from solution.domain.graph import Graph
from solution.domain.vocabulary import NUM_LAYOUT_FEATURES, NUM_TILE_FEATURES
from solution.features.candidates import make_candidates
from solution.features.preparation import Preparation
from solution.serving.bundle import Bundle
from solution.serving.checks import check_configured
from solution.serving.listed import Listed, put_beside
from solution.serving.possible import check_layouts
from solution.system.errors import InputError

REFERENCE = 256  # largest length of the reference list


@dataclass(frozen=True, eq=False, repr=False)
class Session:
    """A scorer of one program's configurations, with a fixed reference list."""

    bundle: Bundle
    reference: Graph  # the program with the configurations of the reference list
    _prepared: dict[Preparation, Graph] = field(default_factory=dict, repr=False)
    _listed: dict[str, Listed] = field(default_factory=dict, repr=False)

    def __repr__(self) -> str:
        return f"<Session of {self.reference.name}, {self.reference.num_configs} configurations>"

    def score(self, configs: np.ndarray) -> np.ndarray:
        """Return scores (k,) float32, lower is faster, comparable with all others of this session.

        Args:
            configs: (k, configurable, 18) layouts with -1 where the compiler chooses, or (k, 24)
                tiles.

        Raises:
            InputError: they are no configurations of the program.
        """
        checked, collection = self._check(configs), self.reference.collection.name
        votes: dict[str, list[np.ndarray]] = {}
        for member, model in self.bundle.models(collection):
            if member.folder not in self._listed:
                graph = self._prepare(model.preparation)
                self._listed[member.folder] = put_beside(model.ranker, graph)
            vote = self._listed[member.folder].vote(checked)
            votes.setdefault(member.experiment, []).append(vote)
        weights = self.bundle.record.recipe.weights(collection)
        shares = to_shares(np.array([weights.get(name, 1.0) for name in votes]))
        merged = sum(
            share * np.mean(own, axis=0) for share, own in zip(shares, votes.values(), strict=True)
        )
        return np.asarray(merged, np.float32)

    def _prepare(self, preparation: Preparation) -> Graph:
        """Return the reference list as a model with this preparation needs it."""
        if preparation not in self._prepared:
            self._prepared[preparation] = preparation(self.reference)
        return self._prepared[preparation]

    def _check(self, configs: np.ndarray) -> np.ndarray:
        """Return the configurations as int8 layouts or float32 tiles; raise InputError if wrong."""
        is_layout = self.reference.collection.kind == "layout"
        own = self.reference.configs.shape[1]
        shape = (own, NUM_LAYOUT_FEATURES) if is_layout else (NUM_TILE_FEATURES,)
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


def open_session(bundle: Bundle, graph: Graph, reference: int = REFERENCE) -> Session:
    """Open a scorer; its list is some of the graph's configurations, or generated if it has one.

    Raises InputError if the bundle does not rank the graph's collection, or the list would be
    empty.
    """
    if reference < 1:
        raise InputError(f"reference is {reference}, expected a number of configurations from 1.")
    check_configured(graph)
    if graph.num_configs == 1:
        listed = make_candidates(graph, reference)
    else:
        listed = graph.select(choose_configs(graph.key, graph.num_configs, reference))
    bundle.choose(graph.collection.name)
    return Session(bundle, dataclasses.replace(listed, runtimes=None))
