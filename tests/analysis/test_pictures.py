"""What a first look measures, against slow and obvious ways; and that every plot can be read."""

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.figure import Figure

from solution.analysis import data_pictures as pictures
from solution.analysis import measures
from solution.analysis.graph_picture import make_figure
from solution.data.folders import find_files
from solution.data.npz import read_graph
from solution.data.scan import scan
from solution.domain import vocabulary
from solution.domain.graph import Graph
from solution.domain.metrics import kendall_tau, ordered_pair_accuracy
from solution.features.padding import repair_padding
from solution.features.pruning import keep_neighbourhood
from tests.made.graphs import make_layout_graph, make_tile_graph
from tests.readable import assert_apart

SEEDS = st.integers(0, 10_000)


def slow_violation_ratio(graph: Graph) -> list[float]:
    """One configuration and one node after the other."""
    ratios = []
    for layouts in graph.layouts.expand():
        violating = 0
        for node, layout in zip(graph.configurable, layouts, strict=True):
            if layout[0] == -1:
                continue
            sizes = graph.node_features[node, vocabulary.SHAPE_DIMENSIONS]
            violating += sizes[layout[0]] < max(sizes)
        ratios.append(violating / len(graph.configurable))
    return ratios


@settings(max_examples=25, deadline=None)
@given(seed=SEEDS)
def test_the_violation_ratio_is_the_obvious_one(seed: int) -> None:
    graph = make_layout_graph(seed, 9)
    np.testing.assert_allclose(measures.violation_ratio(graph), slow_violation_ratio(graph))


@settings(max_examples=25, deadline=None)
@given(seed=SEEDS)
def test_own_vectors_differ_where_configurations_do(seed: int) -> None:
    """And the distance of two of them counts the slots in which they differ."""
    graph = make_layout_graph(seed, 7)
    vectors = measures.own_vectors(graph)
    slots = graph.layouts.expand().reshape(graph.num_configs, -1)
    for row in range(graph.num_configs):
        differing = (slots != slots[row]).sum(axis=1)
        np.testing.assert_allclose(((vectors - vectors[row]) ** 2).sum(axis=1), 2 * differing)


@settings(max_examples=25, deadline=None)
@given(seed=SEEDS)
def test_shared_vectors_are_shares_of_nodes(seed: int) -> None:
    graph = make_layout_graph(seed, 7)
    shares = measures.shared_vectors(graph).reshape(7, 3, vocabulary.NUM_LAYOUT_TOKENS)
    np.testing.assert_allclose(shares.sum(axis=2), 1, rtol=1e-5)
    minor = graph.layouts.expand()[:, :, 0]  # of the output
    for token in range(-1, vocabulary.MAX_RANK):
        np.testing.assert_allclose(shares[:, 0, token + 1], (minor == token).mean(axis=1), 1e-5)


@settings(max_examples=20, deadline=None)
@given(seed=SEEDS)
def test_principal_components_are_those_of_the_covariance(seed: int) -> None:
    vectors = np.random.default_rng(seed).normal(size=(30, 5)) * [3, 2, 1, 1, 1]
    coordinates, shares = measures.principal_components(vectors)
    strengths = np.sort(np.linalg.eigvalsh(np.cov(vectors.T)))[::-1]
    np.testing.assert_allclose(shares, strengths[:2] / strengths.sum())
    np.testing.assert_allclose(coordinates.var(axis=0, ddof=1), strengths[:2])


def test_equal_vectors_have_no_directions() -> None:
    coordinates, shares = measures.principal_components(np.ones((4, 3)))
    assert not coordinates.any()
    assert not shares.any()


@settings(max_examples=10, deadline=None)
@given(seed=SEEDS)
def test_kept_shares_are_those_of_pruned_graphs(seed: int) -> None:
    graph = make_layout_graph(seed)
    kept = [keep_neighbourhood(graph, hops).num_nodes / graph.num_nodes for hops in range(4)]
    np.testing.assert_allclose(measures.kept_shares(graph, range(4)), kept)
    assert measures.kept_shares(make_tile_graph(seed), range(2)) == [1, 1]


def test_rank_correlation_is_one_where_the_ratio_decides() -> None:
    graph = make_layout_graph(3, 60)
    ratio = measures.violation_ratio(graph)
    decided = dataclasses.replace(graph, runtimes=1e6 * (1 + ratio))
    assert ordered_pair_accuracy(ratio, decided.runtimes) == pytest.approx(1)
    assert ordered_pair_accuracy(-ratio, decided.runtimes) == pytest.approx(0)
    assert kendall_tau(np.ones(60), decided.runtimes) == 0
    assert measures.slowdowns(decided).min() == 1
    assert measures.fastest(decided) == 1e6


@pytest.fixture(scope="module")
def graphs() -> list[Graph]:
    """Two labelled graphs of every collection of the sample, and some made by hand."""
    from solution.data.folders import SAMPLE

    chosen: dict[str, list[Graph]] = {}
    for file in find_files(SAMPLE):
        own = chosen.setdefault(file.collection.name, [])
        if file.split != "test" and len(own) < 2:
            own.append(repair_padding(read_graph(file.path, file.collection)))
    return [graph for own in chosen.values() for graph in own]


def assert_readable(figure: Figure) -> None:
    """Titles, axis labels with what they count, and a legend where colours mean something."""
    assert figure.axes
    for axes in figure.axes:
        if not axes.axison or axes.get_label() == "<colorbar>":
            continue
        assert axes.get_title()
        assert axes.get_xlabel()
        assert axes.has_data() or axes.texts
        labelled = [item for item in axes.collections if not item.get_label().startswith("_")]  # type: ignore[union-attr]
        assert axes.get_legend() is not None or len(labelled) == 0
    assert_apart(figure)


FIGURES: tuple[Callable[[Sequence[Graph]], Figure], ...] = (
    pictures.draw_runtimes,
    pictures.draw_across,
    pictures.draw_violations,
    pictures.draw_opcodes,
    pictures.draw_pruning,
)


@pytest.mark.parametrize("draw", FIGURES)
def test_pictures_can_be_read(
    draw: Callable[[Sequence[Graph]], Figure], graphs: list[Graph], tmp_path: Path
) -> None:
    figure = draw(graphs)
    assert_readable(figure)
    figure.savefig(tmp_path / "picture.png", dpi=30)


def test_pictures_of_one_graph_can_be_read(graphs: list[Graph]) -> None:
    for graph in (graphs[0], graphs[-1]):
        assert_readable(pictures.draw_configurations(graph))
    assert make_figure(graphs[0]).axes


def test_noise_is_drawn_with_and_without_duplicates(sample: Path) -> None:
    summaries, _ = scan([f for f in find_files(sample) if f.collection.name == "layout:xla:random"])
    assert_readable(pictures.draw_noise(summaries))
    assert_readable(pictures.draw_noise(summaries.filter(summaries["noise"].is_null())))
