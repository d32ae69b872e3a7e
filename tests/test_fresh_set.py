"""The fresh set: no training data has its families or structures, and models are scored on it."""

from pathlib import Path
from shutil import copy

import pytest

import solution
from benchmarks.collected_sample import FRESH_COUNTS, draw_drafts, list_avoided
from benchmarks.fresh_scores import NOTHING, score_models, show_promises, show_scores
from solution import load_bundle, read_graph
from solution.analysis.data_check import check_files
from solution.data import npz
from solution.data.folders import find_files
from solution.domain.families import find_families
from solution.domain.metrics import score_ranking
from solution.system.errors import InputError
from tests.conftest import SHARED

DATA = Path(solution.__file__).parent / "data"
FRESH = DATA / "fresh"
TRAINING = [DATA / "sample", DATA / "collected", DATA / "estimated", SHARED / "cpugraphs"]


def test_nothing_learns_from_the_families_or_structures_of_the_fresh_set() -> None:
    """Its files are whole, and its products have sizes that no training data has."""
    files = find_files(FRESH)
    assert {file.collection.name for file in files} == set(FRESH_COUNTS)
    _, defects, odd = check_files(files)
    assert not defects
    assert not odd
    fresh = [npz.read_graph(file.path, file.collection) for file in files]
    known = [
        npz.read_graph(file.path, file.collection)
        for folder in filter(Path.is_dir, TRAINING)
        for file in find_files(folder)
    ]
    layouts = [graph for graph in [*fresh, *known] if graph.collection.kind == "layout"]
    families = find_families(
        [graph.name for graph in layouts],
        [graph.architecture for graph in layouts],
        lambda number: layouts[number].node_opcodes,
    )
    count = sum(graph.collection.kind == "layout" for graph in fresh)
    assert not set(families[:count]) & set(families[count:])
    sizes = {graph.node_features.tobytes() for graph in known if graph.collection.kind == "tile"}
    products = [graph for graph in fresh if graph.collection.kind == "tile"]
    assert not sizes & {graph.node_features.tobytes() for graph in products}


@pytest.mark.parametrize("name", FRESH_COUNTS)
def test_another_release_draws_other_programs(name: str) -> None:
    """And none of the training sample's."""
    first, again, other = (
        [draft.text for draft in draw_drafts(name, release)] for release in ("1.0", "1.0", "1.1")
    )
    assert first == again
    assert len(set(first) - set(other)) >= FRESH_COUNTS[name]
    assert not set(first) & {draft.text for draft in draw_drafts(name)}


def test_models_are_scored_on_the_fresh_set(tmp_path: Path) -> None:
    """Graphs whose structure the models know are refused."""
    file = find_files(FRESH)[0]
    folder = tmp_path / file.path.parent.relative_to(FRESH)
    folder.mkdir(parents=True)
    copy(file.path, folder)
    bundle = load_bundle()
    scores = score_models(tmp_path, {"bundle": bundle})
    graph = read_graph(file.path)
    assert graph.runtimes is not None
    expected = score_ranking(file.collection.name, bundle.rank(graph).scores, graph.runtimes)
    assert scores["member"].to_list() == [NOTHING, "bundle"]
    assert scores["score"].to_list()[1] == expected
    assert show_scores(scores).row_count == 2
    assert show_promises(scores).row_count == 1
    known = next(f for f in find_files(DATA / "sample") if f.collection == file.collection)
    copy(known.path, folder)
    with pytest.raises(InputError, match="learned from"):
        score_models(tmp_path, {"bundle": bundle})


def test_a_fresh_set_is_not_collected_without_the_graphs_to_leave_out(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="nowhere"):
        list_avoided(tmp_path / "nowhere", "1.0")
    assert list_avoided(tmp_path / "nowhere", "") == set()
