"""A session scores each configuration as if it came alone, so that separate batches compare."""

import dataclasses
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from ensembles.merge import describe_caveats
from ensembles.recipe import Recipe
from solution import load_bundle
from solution.data.folders import find_files
from solution.data.npz import read_graph
from solution.domain.codebook import encode
from solution.domain.graph import TIMED, Graph, InvalidGraphError, is_source, name_estimate
from solution.experiments.base import Experiment
from solution.features.candidates import make_candidates
from solution.features.preparation import Preparation
from solution.models.linear import RidgeSettings
from solution.runs.folder import Run
from solution.serving.bundle import Bundle
from solution.serving.packing import pack
from solution.serving.possible import check_layouts, describe_impossible
from solution.store.graph_file import read_prepared
from solution.store.preparing import prepare_store
from solution.system.errors import InputError
from tests.conftest import FastSlow
from tests.made.graphs import make_layout_graph, make_tile_graph, write_graph
from tests.serving.conftest import KINDS, LAYOUT, TILE, train

PROGRAMS = {
    LAYOUT: make_layout_graph(20, configs=30, name="new"),
    TILE: make_tile_graph(20, configs=30, name="new_kernel"),
}
ROUNDED = {"rtol": 0, "atol": 2e-4}  # in deviations; a matrix product rounds by how much it has


def new_configs(graph: Graph) -> np.ndarray:
    made = make_candidates(graph, 9, seed=7)
    return made.tiles if graph.collection.kind == "tile" else made.layouts.expand()


@pytest.mark.parametrize("name", KINDS)
def test_scores_of_separate_batches_compare(name: str, kinds: Callable[[str], Bundle]) -> None:
    for collection in KINDS[name].collections:
        graph = PROGRAMS[collection]
        configs = new_configs(graph)
        session = kinds(name).session(graph, 20)
        together = session.score(configs)
        apart = [session.score(part) for part in np.array_split(configs, [1, 4])]
        backwards = kinds(name).session(graph, 20).score(configs[::-1])[::-1]
        np.testing.assert_allclose(np.concatenate(apart), together, **ROUNDED)
        np.testing.assert_allclose(backwards, together, **ROUNDED)
        assert np.isfinite(together).all()
        assert name == "nothing" or together.std() > 0


@pytest.mark.parametrize("collection", PROGRAMS)
def test_the_list_itself_has_the_order_of_rank(collection: str, bundle_folder: Path) -> None:
    """The recipe merges standardised scores, so scores are a stretched and shifted copy."""
    bundle, graph = load_bundle(bundle_folder), PROGRAMS[collection]
    configs = graph.tiles if collection == TILE else graph.layouts.expand()
    scores, ranked = bundle.session(graph).score(configs), bundle.rank(graph).scores
    fit = np.polynomial.Polynomial.fit(ranked, scores, 1)
    np.testing.assert_allclose(fit(ranked), scores, **ROUNDED)
    assert fit.convert().coef[1] > 0


def test_a_program_with_one_configuration_gets_a_list(bundle_folder: Path) -> None:
    bundle = load_bundle(bundle_folder)
    graph = PROGRAMS[LAYOUT].select(np.array([0]))
    session = bundle.session(graph)
    assert session.reference.num_configs > 10
    assert len(session.score(new_configs(graph))) == len(new_configs(graph))


def test_other_configurations_and_a_list_of_nothing_are_refused(bundle_folder: Path) -> None:
    bundle = load_bundle(bundle_folder)
    session = bundle.session(PROGRAMS[LAYOUT])
    for shape in ((2, 3, 18, 1), (0, 3, 18), (2, 2, 18), (3,)):
        with pytest.raises(InputError, match="expected configurations of shape"):
            session.score(np.zeros(shape))
    with pytest.raises(InputError, match="expected layouts"):
        session.score(np.full((1, 3, 18), 6))
    tiles = PROGRAMS[TILE].tiles[:3].copy()
    tiles[1, 0] = np.nan
    with pytest.raises(InputError, match="numbers.*1"):  # of its own row
        bundle.session(PROGRAMS[TILE]).score(tiles)
    for reference in (0, -1):
        with pytest.raises(InputError, match="configurations.*1"):
            bundle.session(PROGRAMS[TILE], reference)


OUTPUT, INPUT, KERNEL = (slice(first, first + 6) for first in (0, 6, 12))
DOT, RESHAPE = 0, 1  # positions of configurable nodes: ranks 2 and 3
IMPOSSIBLE = {
    "an axis twice": (DOT, OUTPUT, [0, 0, -1, -1, -1, -1], "dot 2 the output {0,0}"),
    "axes that it lacks": (DOT, OUTPUT, [5, 4, 3, 2, 1, 0], "dot 2 the output {5,4,3,2,1,0}"),
    "one axis too many": (DOT, OUTPUT, [2, -1, -1, -1, -1, -1], "dot 2 the output {2}"),
    "nothing before an axis": (DOT, OUTPUT, [-1, 0, 1, -1, -1, -1], "dot 2 the output {-1,0,1}"),
    "a gap": (RESHAPE, OUTPUT, [2, -1, 0, -1, -1, -1], "reshape 5 the output {2,-1,0}"),
    "of what is read": (RESHAPE, INPUT, [0, 2, -1, -1, -1, -1], "reshape 5 the input {0,2}"),
    "of a kernel": (DOT, KERNEL, [1, 0, 1, -1, -1, -1], "dot 2 the kernel {1,0,1}"),
}
POSSIBLE = (
    (RESHAPE, OUTPUT, [2, 0, 1, -1, -1, -1]),
    (RESHAPE, OUTPUT, [2, 0, -1, -1, -1, -1]),  # shorter than the rank
    (RESHAPE, OUTPUT, [-1] * 6),
    (DOT, KERNEL, [0, 1, -1, -1, -1, -1]),  # of what is read
)


def put(graph: Graph, node: int, tensor: slice, slots: list[int]) -> np.ndarray:
    """The graph's configurations, of which number 3 gives the tensor such a layout."""
    configs = graph.layouts.expand().copy()
    configs[3, node, tensor] = slots
    return configs


@pytest.mark.parametrize("node, tensor, slots, words", IMPOSSIBLE.values(), ids=IMPOSSIBLE)
def test_what_no_tensor_can_have(node: int, tensor: slice, slots: list[int], words: str) -> None:
    graph = make_layout_graph()
    configs = put(graph, node, tensor, slots)
    expected = f"configuration 3 gives {words}, which no tensor can have"
    with pytest.raises(InputError) as refused:
        check_layouts(graph, configs)
    assert str(refused.value).startswith(f"program: {expected}")
    odd = dataclasses.replace(graph, configs=encode(configs))
    assert describe_impossible(odd).startswith(expected)
    assert not describe_impossible(odd.select(np.array([0, 1, 2, 4])))  # it is not there any more


def test_other_layouts_pass() -> None:
    """And where nothing says the rank, any axis."""
    graph = make_layout_graph()
    for node, tensor, slots in POSSIBLE:
        configs = put(graph, node, tensor, slots)
        check_layouts(graph, configs)
        assert not describe_impossible(dataclasses.replace(graph, configs=encode(configs)))
    scalars = dataclasses.replace(graph, node_features=np.zeros_like(graph.node_features))
    check_layouts(scalars, put(graph, DOT, OUTPUT, [5, 4, 3, 2, 1, 0]))


def test_a_session_refuses_them() -> None:
    graph = make_layout_graph(20, configs=30, name="new")
    session = load_bundle().session(graph)
    with pytest.raises(InputError, match="3.*2.*0,0"):
        session.score(put(graph, DOT, OUTPUT, [0, 0, -1, -1, -1, -1]))


def test_check_and_rank_warn_of_them(fastslow: FastSlow, tmp_path: Path) -> None:
    """And go on: the competition's data is what it is."""
    graph = make_layout_graph(name="odd")
    configs = put(graph, DOT, OUTPUT, [5, 4, 3, 2, 1, 0])
    odd = dataclasses.replace(graph, configs=encode(configs))
    file = write_graph(odd, tmp_path / "data")
    write_graph(make_layout_graph(1, name="sound"), tmp_path / "data")
    assert fastslow("prepare", "data", "--out", "store").returncode == 0
    warned = "configuration 3 gives dot 2 the output {5,4,3,2,1,0}"
    for arguments in (["check", "data"], ["check", "store"], ["rank", file]):
        done = fastslow(*arguments)
        assert done.returncode == 0, done.stderr
        assert done.stderr.count(warned) == 1
        line = next(line for line in done.stderr.splitlines() if warned in line)
        assert "odd." in line.partition(":")[0]


SOURCE = name_estimate("tpu:v3", "libtpu 0.0.42.1")
RIDGE = Experiment("ridge", (LAYOUT,), RidgeSettings(max_configs=6, grid=(1.0,)))


def write_data(folder: Path, sources: list[str]) -> Path:
    for seed, source in enumerate(sources):
        graph = make_layout_graph(seed, name=f"p{seed}")
        write_graph(dataclasses.replace(graph, label_source=source), folder)
    return folder


def run_on(data: Path, folder: Path, *, mixes: bool = False) -> Run:
    store = prepare_store(find_files(data), folder / "store", Preparation())
    return train([RIDGE], store, folder / "run", folds=3, mixes=mixes)


def test_a_source_goes_from_the_file_through_the_store_to_the_ranking(tmp_path: Path) -> None:
    run = run_on(write_data(tmp_path / "data", [SOURCE] * 6), tmp_path)
    (file, *_) = find_files(tmp_path / "data")
    assert read_graph(file.path, file.collection).label_source == SOURCE
    prepared = next((tmp_path / "store").rglob("p0.safetensors"))
    assert read_prepared(prepared).label_source == SOURCE
    assert run.label_sources() == [SOURCE]
    recipe = Recipe(name="ridge", members={"ridge": 1.0})
    assert any("tpu:v3" in words for words in describe_caveats(run, recipe))
    bundle = load_bundle(pack(run, recipe, tmp_path / "bundle"))
    assert bundle.record.label_sources == (SOURCE,)
    assert "tpu:v3, libtpu 0.0.42.1" in (tmp_path / "bundle/README.md").read_text()
    ranking = bundle.rank(make_layout_graph(9, name="asked"))
    assert "tpu:v3" in ranking.sentence() and "estimate" in bundle.describe()


def test_timed_and_estimated_labels_are_mixed_only_where_that_is_asked_for(tmp_path: Path) -> None:
    data = write_data(tmp_path / "data", [SOURCE, TIMED] * 3)
    with pytest.raises(InputError, match="--mix-labels") as refused:
        run_on(data, tmp_path)
    assert "3 timed" in str(refused.value) and f"3 {SOURCE}" in str(refused.value)
    assert run_on(data, tmp_path, mixes=True).label_sources() == [TIMED, SOURCE]


def test_the_commands_say_it(fastslow: FastSlow, tmp_path: Path) -> None:
    data = write_data(tmp_path / "data", [SOURCE, TIMED] * 3)
    checked = fastslow("check", data)
    assert checked.returncode == 0 and "Some labels" in " ".join(checked.stdout.split())
    refused = fastslow("run", data, "--run", tmp_path / "run", "--limit")
    assert refused.returncode == 2
    assert "--mix-labels" in refused.stderr and "tpu:v3" in refused.stderr


def test_a_source_that_is_none_is_no_graph() -> None:
    for source in ("measured", "estimated: ", "estimated: a\nb", "estimated: \x1b[1m"):
        assert not is_source(source)
        with pytest.raises(InvalidGraphError, match="its labels"):
            dataclasses.replace(make_layout_graph(), label_source=source)
