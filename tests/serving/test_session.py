"""A session scores each configuration as if it came alone, so that separate batches compare."""

from pathlib import Path

import numpy as np
import pytest

from ensembles.merge import alone
from solution import load_bundle
from solution.domain.graph import Graph
from solution.features.candidates import make_candidates
from solution.runs.folder import Run
from solution.serving.bundle import Bundle
from solution.serving.packing import pack
from solution.system.errors import InputError
from tests.made.graphs import make_layout_graph, make_tile_graph
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


def test_without_a_fixed_list_they_would_not(bundle_folder: Path) -> None:
    """That the test above can fail: beside other configurations a layout scores otherwise."""
    graph = PROGRAMS[LAYOUT]
    few, many = (load_bundle(bundle_folder).rank(graph.select(np.arange(n))) for n in (5, 30))
    assert not np.allclose(few.scores, many.scores[:5], **ROUNDED)


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
    with pytest.raises(InputError, match="finite numbers, found others in row 1"):
        session.score(tiles)


@pytest.mark.parametrize("reference", [0, -1])
def test_a_list_of_nothing_is_refused(reference: int, bundle_folder: Path) -> None:
    with pytest.raises(InputError, match="expected a number of configurations from 1"):
        load_bundle(bundle_folder).session(PROGRAMS[TILE], reference)
