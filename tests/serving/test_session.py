"""A session scores each configuration as if it came alone, so that separate batches compare."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from ensembles.merge import alone, describe_caveats
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
from solution.training.jobs import find_backlog
from solution.training.opening import open_experiments
from solution.training.out_of_fold import run_experiments
from tests.conftest import FastSlow
from tests.made.graphs import make_layout_graph, make_tile_graph, write_graph
from tests.serving.conftest import KINDS, LAYOUT, TILE

PROGRAMS = {
    LAYOUT: make_layout_graph(20, configs=30, name="new"),
    TILE: make_tile_graph(20, configs=30, name="new_kernel"),
}
ROUNDED = {"rtol": 0, "atol": 2e-4}  # in deviations; a matrix product rounds by how much it has


def new_configs(graph: Graph) -> np.ndarray:
    made = make_candidates(graph, 9, seed=7)
    return made.tiles if graph.collection.kind == "tile" else made.layouts.expand()


@pytest.mark.parametrize("name", KINDS)
def test_scores_of_separate_batches_compare(name: str, run: Run, tmp_path: Path) -> None:
    bundle = load_bundle(pack(run, alone(name), tmp_path / "bundle"))
    for collection in KINDS[name].collections:
        graph = PROGRAMS[collection]
        configs = new_configs(graph)
        session = bundle.session(graph, 20)
        together = session.score(configs)
        apart = [session.score(part) for part in np.array_split(configs, [1, 4])]
        backwards = bundle.session(graph, 20).score(configs[::-1])[::-1]
        np.testing.assert_allclose(np.concatenate(apart), together, **ROUNDED)
        np.testing.assert_allclose(backwards, together, **ROUNDED)
        assert np.isfinite(together).all()
        assert name == "nothing" or together.std() > 0


@pytest.mark.parametrize("collection", PROGRAMS)
def test_the_list_itself_has_the_order_that_rank_gives(
    collection: str, bundle_folder: Path
) -> None:
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


@pytest.mark.parametrize(
    "configs", [np.zeros((2, 3, 18, 1)), np.zeros((0, 3, 18)), np.zeros((2, 2, 18)), np.zeros(3),
                np.full((1, 3, 18), 6)],
)  # fmt: skip
def test_other_configurations_are_refused(configs: np.ndarray, bundle_folder: Path) -> None:
    bundle: Bundle = load_bundle(bundle_folder)
    with pytest.raises(InputError, match="expected configurations of shape|expected layouts"):
        bundle.session(PROGRAMS[LAYOUT]).score(configs)


def test_tiles_that_are_no_numbers_are_refused_by_their_own_row(bundle_folder: Path) -> None:
    session = load_bundle(bundle_folder).session(PROGRAMS[TILE])
    tiles = PROGRAMS[TILE].tiles[:3].copy()
    tiles[1, 0] = np.nan
    with pytest.raises(InputError, match="numbers.*1"):
        session.score(tiles)


@pytest.mark.parametrize("reference", [0, -1])
def test_a_list_of_nothing_is_refused(reference: int, bundle_folder: Path) -> None:
    with pytest.raises(InputError, match="configurations.*1"):
        load_bundle(bundle_folder).session(PROGRAMS[TILE], reference)


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
POSSIBLE = {
    "whole": (RESHAPE, OUTPUT, [2, 0, 1, -1, -1, -1]),
    "shorter than the rank": (RESHAPE, OUTPUT, [2, 0, -1, -1, -1, -1]),
    "unset": (RESHAPE, OUTPUT, [-1] * 6),
    "of what is read": (DOT, KERNEL, [0, 1, -1, -1, -1, -1]),
}


def put(graph: Graph, node: int, tensor: slice, slots: list[int]) -> np.ndarray:
    """The graph's configurations, of which number 3 gives the tensor such a layout."""
    configs = graph.layouts.expand().copy()
    configs[3, node, tensor] = slots
    return configs


@pytest.mark.parametrize("node, tensor, slots, words", IMPOSSIBLE.values(), ids=IMPOSSIBLE)
def test_an_impossible_layout_is_named(
    node: int, tensor: slice, slots: list[int], words: str
) -> None:
    graph = make_layout_graph()
    configs = put(graph, node, tensor, slots)
    expected = f"configuration 3 gives {words}, which no tensor can have"
    with pytest.raises(InputError) as refused:
        check_layouts(graph, configs)
    assert str(refused.value).startswith(f"program: {expected}")
    odd = dataclasses.replace(graph, configs=encode(configs))
    assert describe_impossible(odd).startswith(expected)
    assert not describe_impossible(odd.select(np.array([0, 1, 2, 4])))  # it is not there any more


@pytest.mark.parametrize("node, tensor, slots", POSSIBLE.values(), ids=POSSIBLE)
def test_other_layouts_pass(node: int, tensor: slice, slots: list[int]) -> None:
    graph = make_layout_graph()
    configs = put(graph, node, tensor, slots)
    check_layouts(graph, configs)
    assert not describe_impossible(dataclasses.replace(graph, configs=encode(configs)))


def test_a_rank_that_nothing_says_refuses_no_axis() -> None:
    graph = make_layout_graph()
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
    assert fastslow("prepare", "data", "--whole", "--out", "store").returncode == 0
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


def train(data: Path, folder: Path, *, mixes: bool = False) -> Run:
    store = prepare_store(find_files(data), folder / "store", Preparation())
    opened = open_experiments([RIDGE], store, folder / "run", scheme="graph", folds=3, mixes=mixes)
    with opened as (plan, run):
        run_experiments(find_backlog([RIDGE], plan, run), plan, run)
    return run


def test_a_source_goes_from_the_file_through_the_store_to_the_ranking(tmp_path: Path) -> None:
    run = train(write_data(tmp_path / "data", [SOURCE] * 6), tmp_path)
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
        train(data, tmp_path)
    assert "3 timed" in str(refused.value) and f"3 {SOURCE}" in str(refused.value)
    assert train(data, tmp_path, mixes=True).label_sources() == [TIMED, SOURCE]


def test_the_commands_say_it(fastslow: FastSlow, tmp_path: Path) -> None:
    data = write_data(tmp_path / "data", [SOURCE, TIMED] * 3)
    checked = fastslow("check", data)
    assert checked.returncode == 0
    assert "Some labels" in " ".join(checked.stdout.split())
    refused = fastslow("run", data, "--run", tmp_path / "run", "--limit")
    assert refused.returncode == 2
    assert "--mix-labels" in refused.stderr and "tpu:v3" in refused.stderr


@pytest.mark.parametrize(
    "source", ["measured", "estimated: ", "estimated: a\nb", "estimated: \x1b[1m"]
)
def test_a_source_that_is_none_is_no_graph(source: str) -> None:
    assert not is_source(source)
    with pytest.raises(InvalidGraphError, match="its labels"):
        dataclasses.replace(make_layout_graph(), label_source=source)
