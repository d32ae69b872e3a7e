"""How the graphs of published nets are prepared, and the numbers of documents that we print."""

import dataclasses
import itertools
import re
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from benchmarks.ablations import MEASURES
from benchmarks.claims import CLAIMS
from benchmarks.paper_systems import LAYOUT_SYSTEMS, TILE_SYSTEMS
from solution.data.folders import SAMPLE, find_files
from solution.data.npz import read_graph
from solution.domain import vocabulary
from solution.domain.graph import Graph
from solution.experiments.base import find_experiment
from solution.features.preparation import Preparation
from solution.models.layout.layout_gnn import LayoutGnnSettings
from solution.models.linear import RidgeSettings
from solution.models.nets.training_settings import TrainingSettings
from solution.papers.prepared import PreparedSettings
from solution.papers.published_numbers import Number, read_published, tell_numbers
from solution.store.store import Store, check_preparation
from solution.system.errors import InputError
from solution.training.plan import make_plan
from tests.conftest import REPOSITORY, SHARED
from tests.made.graphs import make_layout_graph

TRAINING = TrainingSettings(epochs=2, patience=None, graphs_per_step=2, configs_per_graph=8)
NET = LayoutGnnSettings(width=16, rounds=(16,), training=TRAINING)
GRAPHS = [make_layout_graph(seed, configs=12, name=f"program_{seed}") for seed in range(4)]
COLLECTION = "layout:xla:random"


def numbers(graph: Graph) -> np.ndarray:
    """All columns (nodes, columns) that number dimensions."""
    parts = [graph.node_features[:, columns] for columns in vocabulary.DIMENSION_NUMBERS]
    return np.concatenate(parts, axis=1)


@pytest.mark.parametrize("padding", [-1, 0])
def test_a_store_serves_either_padding(sample_store: Store, padding: int) -> None:
    settings = PreparedSettings(NET, padding=padding)
    plan = make_plan(sample_store, "architecture", 2)
    row = plan.rows(COLLECTION)[:1]
    (graph,) = plan.load(row, settings)
    key = (COLLECTION, row["graph"].item())
    (file,) = [f for f in find_files(SAMPLE) if (f.collection.name, f.name) == key]
    fresh = settings.preparation(read_graph(file.path, file.collection))
    np.testing.assert_array_equal(graph.node_features, fresh.node_features)
    assert numbers(graph).min() == padding
    usual = Preparation(1)(read_graph(file.path, file.collection))
    np.testing.assert_array_equal(numbers(graph), np.maximum(numbers(usual), padding))


def test_every_switch_changes_what_is_learned() -> None:
    usual = [Preparation(1)(graph) for graph in GRAPHS]
    scores = [NET.build(0).fit(usual[:3], []).predict(usual[3])]
    for switch in ({"padding": 0}, {"contractions": True}, {"encoding": "plain"}):
        settings = PreparedSettings(NET, **switch)  # type: ignore[arg-type]
        prepared = [settings.preparation(graph) for graph in GRAPHS]
        scores.append(settings.build(0).fit(prepared[:3], []).predict(prepared[3]))
        assert np.isfinite(scores[-1]).all()
    for one, other in itertools.combinations(scores, 2):
        assert not np.array_equal(one, other)


def test_what_no_ranker_could_do_is_refused() -> None:
    for net, given, words in (
        (NET, {"encoding": "logs"}, "of logarithms"),
        (NET, {"padding": 3}, "3.*expected.*1.*0"),
        (RidgeSettings(), {"encoding": "plain"}, "LinearRanker is"),
    ):
        with pytest.raises(InputError, match=words):
            PreparedSettings(net, **given).build(0)  # type: ignore[arg-type]


def test_a_store_whose_padding_was_erased_is_refused() -> None:
    described = Preparation(1, padding=0).describe()
    with pytest.raises(InputError, match="'padding': 0"):
        check_preparation(described, 1, Path("stores/mine"))
    check_preparation(Preparation(1).describe(), 1, Path("stores/mine"))


def test_graphs_that_are_read_otherwise_are_kept_apart(sample_store: Store) -> None:
    plan = make_plan(sample_store, "architecture", 2)
    rows = plan.graphs.filter(pl.col("collection") == COLLECTION)[:1]
    usual = plan.load(rows, NET)[0]
    erased = plan.load(rows, PreparedSettings(NET, padding=0))[0]
    assert plan.load(rows, NET)[0] is usual
    assert dataclasses.asdict(Preparation(1)) != dataclasses.asdict(Preparation(1, padding=0))
    assert not np.array_equal(usual.node_features, erased.node_features)


SEEDS = SHARED.parent / "seeds"
PUBLISHED = read_published()
NUMBER = re.compile(r"-?\d[\d,]*\.?\d*")
LOG = REPOSITORY / "solution" / "experiments" / "LOG.md"


def test_a_number_stands_in_the_words_that_are_quoted_and_they_in_the_document() -> None:
    """Where the document's text is here."""
    for name, number in PUBLISHED.numbers.items():
        beginning = PUBLISHED.documents[number.document].file
        if number.quote:
            values = [float(found.replace(",", "")) for found in NUMBER.findall(number.quote)]
            assert number.value in values, name
        else:
            assert not beginning, f"{name}: quote the document"
        for path in SEEDS.glob(f"{beginning}*.txt") if beginning else ():
            words = path.read_text(encoding="utf-8").split()
            assert " ".join(number.quote.split()) in " ".join(words), name


def test_a_number_is_told_with_what_it_is_of() -> None:
    assert tell_numbers("study_tile_ridge") == "top-5 slowdown of ridge on tiles: 52.5%"
    assert str(Number("study", "", "", 66_000)) == "66,000"


@pytest.mark.parametrize("kind", ["layout", "tile"])
def test_the_log_prints_what_the_documents_report(kind: str) -> None:
    """The last column of the table of costs."""
    systems = LAYOUT_SYSTEMS if kind == "layout" else TILE_SYSTEMS
    found = 0
    for line in LOG.read_text(encoding="utf-8").splitlines():
        cells = [cell.strip().strip("*") for cell in line.strip().strip("|").split("|")]
        if len(cells) == 6 and cells[1] == kind and cells[4].endswith(" MB"):
            assert cells[5] == systems[cells[0]].published
            found += 1
    assert found > 5


def test_every_claim_is_of_experiments_and_of_numbers_that_there_are() -> None:
    for claim in CLAIMS:
        for name in (claim.better, claim.worse):
            assert set(claim.collections) <= set(find_experiment(name).collections)
        assert set(claim.reported) <= set(PUBLISHED.numbers) and claim.measure in MEASURES
