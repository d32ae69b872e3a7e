"""Boosted trees that say which of two configurations is faster, from the difference of their rows.

A configuration's score is the sum over its opponents: all others of the graph, or above `all_below`
configurations a sample of them. What is the same for the whole graph cancels in a difference, so
the trees see only what tells its configurations apart.

Source: pairwise classification with round robin aggregation (Fürnkranz and Hüllermeier, "Pairwise
preference learning and ranking", ECML 2003).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from solution.models.trees.boosted_trees import BoostedTrees, GraphRows, TrainingTable, TreeSettings

BLOCK_VALUES = 1 << 25  # of differences that are in memory at once: 128 MB


@dataclass(frozen=True)
class PairwiseSettings(TreeSettings):
    """Settings of PairwiseRanker."""

    pairs_per_config: int = 4  # opponents that each configuration meets in training, at most
    all_below: int = 1000  # up to so many configurations everyone meets everyone
    opponents: int = 100  # that each meets in larger graphs

    def build(self, seed: int) -> "PairwiseRanker":
        """Make a ranker that is not fitted yet."""
        return PairwiseRanker(self, seed)

    def parameters(self, seed: int, values: int) -> dict[str, Any]:
        """Logistic loss."""
        return super().parameters(seed, values) | {"objective": "binary"}


class PairwiseRanker(BoostedTrees):
    """Trees on differences of rows.

    Scores depend on the list: they are means over opponents in it.
    """

    questions_per_row = 16  # opponents that are enough to stop early by

    def make_table(self, graphs: Sequence[GraphRows]) -> TrainingTable:
        generator = np.random.default_rng(self.seed)
        fair = self.settings.max_rows // max(1, sum(len(graph.runtimes) for graph in graphs))
        times = max(1, min(self.settings.pairs_per_config, fair))
        features, labels, sizes = [], [], []
        for graph in graphs:
            left, right = _draw_pairs(graph.runtimes, times, generator)
            features.append(graph.features[left] - graph.features[right])
            labels.append(graph.runtimes[left] > graph.runtimes[right])
            sizes.append(len(left))
        return TrainingTable(np.concatenate(features), np.concatenate(labels), sizes)

    def questions(self, features: np.ndarray) -> np.ndarray:
        """Each row less each of a few opponents: (rows x opponents, columns)."""
        opponents = choose_opponents(features, self.questions_per_row)
        return _differences(features, features[opponents])

    def score(self, output: np.ndarray, rows: int) -> np.ndarray:
        return output.reshape(rows, -1).mean(axis=1)

    def score_rows(self, features: np.ndarray) -> np.ndarray:
        """How often (rows,) each row of `features` is thought slower than its opponents."""
        count = len(features)
        settings = self.settings
        number = count if count <= settings.all_below else settings.opponents
        opponents = features[choose_opponents(features, number)]
        step = max(1, BLOCK_VALUES // opponents.size)
        scores = np.empty(count)
        for first in range(0, count, step):
            block = features[first : first + step]
            # Trees are not odd functions: either way round counts, less the other.
            slower = self.predict_rows(_differences(block, opponents))
            faster = self.predict_rows(-_differences(block, opponents))
            scores[first : first + step] = self.score(slower - faster, len(block))
        return scores


def _draw_pairs(
    runtimes: np.ndarray, times: int, generator: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Positions of pairs that differ in runtime, `times` drawn for each configuration.

    A graph that has none gives one pair.
    """
    count = len(runtimes)
    left = np.tile(np.arange(count), times)
    right = generator.integers(0, count, count * times)
    differs = runtimes[left] != runtimes[right]
    if not differs.any():
        differs[:1] = True
    return left[differs], right[differs]


def choose_opponents(features: np.ndarray, number: int) -> np.ndarray:
    """Positions of at most `number` rows of `features`, spread over them.

    By what is in the rows, so the order in which they come changes nothing.
    """
    if number >= len(features):
        return np.arange(len(features))
    rows = np.ascontiguousarray(features)
    keys = rows.view(np.dtype((np.void, rows.dtype.itemsize * rows.shape[1]))).ravel()
    order = np.argsort(keys, kind="stable")
    return order[np.linspace(0, len(order) - 1, number).astype(np.int64)]


def _differences(rows: np.ndarray, opponents: np.ndarray) -> np.ndarray:
    return (rows[:, None, :] - opponents[None, :, :]).reshape(-1, rows.shape[1])
