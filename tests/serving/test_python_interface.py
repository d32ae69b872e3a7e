"""What those who write Python meet: copies of bundles, wrong types, warnings as errors."""

import copy
import gc
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import solution
from solution import load_bundle, read_graph
from solution.system import errors
from tests.made.graphs import make_layout_graph, make_tile_graph, write_graph
from tests.serving.test_reading import TEXT

GRAPH = make_layout_graph(20, configs=30, name="new")


def copy_by_pickle(value: Any) -> Any:
    return pickle.loads(pickle.dumps(value))


@pytest.mark.parametrize("clone", [copy_by_pickle, copy.deepcopy])
def test_a_copy_of_a_bundle_and_a_session_gives_the_same(clone: Callable[[Any], Any]) -> None:
    bundle = load_bundle()
    scores, configs = bundle.rank(GRAPH).scores, GRAPH.layouts.expand()
    session = bundle.session(GRAPH, 20)
    expected = session.score(configs)
    copied, copied_session, folder = clone(bundle), clone(session), bundle.folder
    del bundle, session
    gc.collect()
    assert not folder.exists()  # so it needs nothing of the one that it was copied from
    np.testing.assert_allclose(copied.rank(GRAPH).scores, scores, atol=1e-5)
    np.testing.assert_allclose(copied_session.score(configs), expected, atol=1e-5)
    tiles = make_tile_graph(3, configs=10)
    assert len(copied.rank(tiles).scores) == 10  # of the models that were not asked before


@pytest.mark.parametrize("given", [[GRAPH], None, 3, pl.DataFrame(), b"new.npz"])
def test_what_is_no_graph_is_named_by_its_type(given: object) -> None:
    words = f"expected a graph or the path of its file, found {type(given).__name__}"
    for ask in (load_bundle().rank, read_graph):
        with pytest.raises(TypeError, match=words):
            ask(given)  # type: ignore[operator]


def test_a_promise_in_words_and_an_empty_path_are_refused() -> None:
    with pytest.raises(TypeError, match="regret is '2%', expected a number: 0.02 for 2%"):
        load_bundle().rank(GRAPH, regret="2%")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="confidence is None"):
        load_bundle().rank(GRAPH, confidence=None)  # type: ignore[arg-type]
    with pytest.raises(solution.InputError, match="path of the graph is empty"):
        load_bundle().rank("")
    load_bundle().rank(GRAPH, regret=np.float32(0.02))


def test_the_package_gives_the_error_that_is_to_be_caught() -> None:
    assert solution.InputError is errors.InputError
    assert "InputError" in solution.__all__


def test_the_end_of_a_process_warns_of_nothing(tmp_path: Path) -> None:
    """And leaves nothing where bundles are unpacked."""
    file = write_graph(GRAPH, tmp_path)
    words = "import sys; from solution import load_bundle; b = load_bundle(); b.rank(sys.argv[1])"
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    for ending in ("", "; del b; import gc; gc.collect()"):
        done = subprocess.run(
            [sys.executable, "-W", "error::ResourceWarning", "-c", words + ending, str(file)],
            env={"TMPDIR": str(temporary), "PYTHONPATH": str(Path(solution.__file__).parents[1])},
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        assert "ResourceWarning" not in done.stderr
        assert not list(temporary.glob("fastslow-*"))


def test_text_is_read_under_its_own_name(tmp_path: Path) -> None:
    pytest.importorskip("jax")
    (tmp_path / "product.hlo").write_text(TEXT)
    graph = read_graph(tmp_path / "product.hlo")
    assert graph.name == "product" and graph.num_configs > 1
