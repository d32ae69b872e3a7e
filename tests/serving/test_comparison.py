"""Bundles beside each other on graphs whose runtimes are known."""

import numpy as np
import pytest
from rich.console import Console
from scipy.stats import kendalltau

from solution import load_bundle, read_graph
from solution.data.folders import SAMPLE
from solution.serving.comparison import FIRST, compare_rankings, show_rankings

FOLDER = SAMPLE / "npz" / "tile" / "xla" / "valid"
PATHS = sorted(FOLDER.glob("*.npz"))[:3]


def test_both_numbers_are_those_of_the_ranking() -> None:
    bundle, graphs = load_bundle(), [read_graph(path) for path in PATHS]
    found = compare_rankings(bundle, graphs)
    for graph, (tau, slower) in zip(graphs, found, strict=True):
        ranking = bundle.rank(graph)
        runtimes = np.asarray(graph.runtimes)
        assert tau == pytest.approx(kendalltau(ranking.scores, runtimes).statistic, abs=1e-6)
        best = runtimes[ranking.order[:FIRST]].min()
        assert slower == pytest.approx(best / runtimes.min() - 1)


def test_the_table_has_a_row_for_each_program_and_their_mean() -> None:
    graphs = [read_graph(path) for path in PATHS]
    console = Console(width=120)
    with console.capture() as capture:
        console.print(show_rankings({"one": load_bundle(), "the same": load_bundle()}, graphs))
    text = capture.get()
    for name in ("one", "the same", "mean", *(path.stem for path in PATHS)):
        assert name in text
    mean = compare_rankings(load_bundle(), graphs).mean(axis=0)
    assert text.count(f"{mean[0]:.3f}") >= 2
