"""Score new configurations of one program, batch after batch, so that all scores compare.

Most models look at the whole list that a configuration stands in: at how frequent its layouts are,
at how far its sums are from the mean. A session has one fixed list, its reference. Every
configuration is scored as if it came alone to that list, and what a model says of it is put on a
scale that the list gives: deviations from the mean of the list's own scores. Such scores are merged
with the recipe's weights, whatever its method is, for among configurations that are still to come
nobody has a rank.
"""

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from ensembles.votes import to_shares
from solution.domain.codebook import Codebook
from solution.domain.codebook_encoder import encode
from solution.domain.evaluated_configs import choose_configs
from solution.domain.graph import Graph
from solution.domain.vocabulary import NUM_LAYOUT_FEATURES, NUM_TILE_FEATURES
from solution.models.light import Scorer
from solution.serving.bundle import Bundle
from solution.serving.candidates import make_candidates
from solution.system.errors import InputError

REFERENCE = 256  # configurations of the list, at most


@dataclass(frozen=True, eq=False)
class Session:
    """A program, the list that its configurations are scored beside, and the models."""

    bundle: Bundle
    reference: Graph  # the program with the configurations of the list
    _scales: dict[str, tuple[float, float]] = field(default_factory=dict, repr=False)

    def score(self, configs: np.ndarray) -> np.ndarray:
        """Scores (k,) float32, lower is faster, comparable with all that this session gives.

        Args:
            configs: (k, configurable, 18) layouts with -1 where the compiler chooses, or (k, 24)
                tiles.

        Raises:
            InputError: they are no such configurations of the program.
        """
        graph, count = self._join(configs), len(configs)
        votes: dict[str, list[np.ndarray]] = {}
        for member, model, prepared in self.bundle.prepare(graph):
            vote = self._vote(member.folder, model.ranker, prepared, count)
            votes.setdefault(member.experiment, []).append(vote)
        weights = self.bundle.record.recipe.weights(graph.collection.name)
        shares = to_shares(np.array([weights.get(name, 1.0) for name in votes]))
        merged = sum(
            share * np.mean(own, axis=0) for share, own in zip(shares, votes.values(), strict=True)
        )
        return np.asarray(merged, np.float32)

    def _join(self, configs: np.ndarray) -> Graph:
        """The program with the list's configurations and the new ones, of which none is listed."""
        own = self.reference.configs
        is_layout = self.reference.collection.kind == "layout"
        shape = (own.shape[1], NUM_LAYOUT_FEATURES) if is_layout else (NUM_TILE_FEATURES,)
        if np.ndim(configs) != 1 + len(shape) or np.shape(configs)[1:] != shape or not len(configs):
            raise InputError(
                f"{self.reference.name}: expected configurations of shape (k, "
                f"{', '.join(map(str, shape))}), found {np.shape(configs)}."
            )
        if is_layout:
            given = np.asarray(configs)
            if not np.isin(given, np.arange(-1, 6)).all():
                raise InputError(f"{self.reference.name}: expected layouts of -1 to 5.")
            listed = self.reference.layouts.expand()
            joined: Codebook | np.ndarray = encode(np.concatenate([listed, given.astype(np.int8)]))
        else:
            joined = np.concatenate([self.reference.tiles, np.asarray(configs, np.float32)])
        marks = np.arange(self.reference.num_configs + len(configs)) < self.reference.num_configs
        return dataclasses.replace(self.reference, configs=joined, listed=marks)

    def _vote(self, name: str, ranker: Scorer, graph: Graph, count: int) -> np.ndarray:
        """What a model says of the last `count` configurations, in deviations of the list's."""
        if not ranker.scores_beside_a_list:
            return np.array([_deviation(*part) for part in _score_one_by_one(ranker, graph, count)])
        scores = ranker.predict(graph).astype(np.float64)
        # Of the first batch: what a matrix product rounds depends on how much is multiplied.
        listed = scores[:-count]
        mean, spread = self._scales.setdefault(name, (listed.mean(), listed.std()))
        return (scores[-count:] - mean) / (spread or 1.0)


def open_session(bundle: Bundle, graph: Graph, reference: int = REFERENCE) -> Session:
    """Fix the list: some of the graph's own configurations, or made ones where it has just one.

    Raises InputError where the bundle does not rank the graph's collection.
    """
    if graph.options is not None:
        raise InputError(f"{graph.name}: a session scores layouts or tiles, found compile options.")
    if graph.num_configs == 1:
        listed = make_candidates(graph, reference)
    else:
        listed = graph.select(choose_configs(graph.key, graph.num_configs, reference))
    bundle.choose(graph.collection.name)
    return Session(bundle, dataclasses.replace(listed, runtimes=None))


def _score_one_by_one(
    ranker: Scorer, graph: Graph, count: int
) -> Iterator[tuple[float, np.ndarray]]:
    """The score of each of the last `count` configurations, and the list's beside it."""
    size = graph.num_configs - count
    for place in range(size, graph.num_configs):
        one = graph.select(np.append(np.arange(size), place))
        # Anew, for what a layout is called in the codes depends on what else is there.
        own = encode(one.layouts.expand()) if isinstance(one.configs, Codebook) else one.configs
        scores = ranker.predict(dataclasses.replace(one, configs=own, listed=None))
        scores = scores.astype(np.float64)
        yield scores[-1], scores[:-1]


def _deviation(score: float, listed: np.ndarray) -> float:
    return (score - float(listed.mean())) / (float(listed.std()) or 1.0)
