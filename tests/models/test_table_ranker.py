"""The shortest way to a ranker of one's own."""

from dataclasses import dataclass

import numpy as np
import pytest

from solution.models.table_ranker import TableSettings
from tests.made.graphs import make_tile_graph


@dataclass(frozen=True)
class Counting(TableSettings):
    """Scores rows by their place, in whole numbers from `first` on."""

    first: int = 0

    def fit_rows(self, rows: np.ndarray, ranks: np.ndarray) -> np.ndarray:
        return np.zeros(1)

    def score_rows(self, rows: np.ndarray, weights: np.ndarray) -> np.ndarray:
        return self.first + np.arange(len(rows))


@pytest.mark.parametrize("first", [0, 1 << 40, -(1 << 62)])
def test_whole_numbers_keep_their_order_however_large(first: int) -> None:
    graph = make_tile_graph(0)
    scores = Counting(first=first).build(0).fit([graph], []).predict(graph)
    place = graph.distinct.inverse
    assert scores.dtype == np.float32
    np.testing.assert_array_equal(
        np.argsort(scores, kind="stable"), np.argsort(place, kind="stable")
    )
