"""Students as ONNX files: what onnxruntime says of a program is what the bundle says."""

import dataclasses
import re
from pathlib import Path

import numpy as np
import pytest

from solution import load_bundle, read_graph
from solution.data.folders import SAMPLE
from solution.domain.graph import Graph
from solution.serving.bundle import Bundle
from solution.system.errors import InputError
from tests.conftest import REPOSITORY, FastSlow
from tests.made.graphs import make_layout_graph, make_tile_graph

pytest.importorskip("onnx")  # the extra `onnx`; make test installs it
onnxruntime = pytest.importorskip("onnxruntime")

from solution.serving.onnx_export import export, find_inputs  # noqa: E402 - it needs the extra

GRAPHS = [
    read_graph(SAMPLE / "npz/tile/xla/test/bmm_007.npz"),
    read_graph(SAMPLE / "npz/layout/xla/default/train/vgg_s3_b4.npz"),
    read_graph(SAMPLE / "npz/layout/nlp/random/valid/gpt_L-2_H-80_A-5_b2_s40.npz"),
    *(make_layout_graph(seed, configs=30) for seed in range(3)),
    *(make_tile_graph(seed, configs=30) for seed in range(3)),
]


@pytest.fixture(scope="module")
def students(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("students")
    assert len(export(load_bundle(), folder)) == 3
    return folder


def infer(bundle: Bundle, graph: Graph, students: Path) -> np.ndarray:
    name, arrays = find_inputs(bundle, graph)
    session = onnxruntime.InferenceSession(students / f"{name}.onnx")
    (scores,) = session.run(None, arrays)
    return np.asarray(scores[graph.distinct.inverse])


@pytest.mark.parametrize("graph", GRAPHS, ids=lambda graph: graph.name)
def test_the_order_is_the_bundles(graph: Graph, students: Path) -> None:
    bundle = load_bundle()
    ((_, model, prepared),) = bundle.prepare(graph)
    expected = model.ranker.predict(prepared)
    found = infer(bundle, graph, students)
    assert found.dtype == np.float32
    rounded = {"rtol": 1e-4, "atol": 1e-5 * np.abs(expected).max()}
    np.testing.assert_allclose(found, expected, **rounded)
    order = np.argsort(found, kind="stable")
    # Scores that are equal but for rounding may change places.
    np.testing.assert_allclose(expected[order], np.sort(expected), **rounded)
    assert np.array_equal(order[:5], bundle.rank(graph).order[:5])


def test_a_list_may_stand_beside_others(students: Path) -> None:
    """What a session scores: configurations that are not listed change nothing for the list."""
    graph, bundle = make_layout_graph(5, configs=30), load_bundle()
    listed = dataclasses.replace(graph, listed=np.arange(30) < 20)
    beside = infer(bundle, listed, students)
    alone = infer(bundle, graph.select(np.arange(20)), students)
    np.testing.assert_allclose(beside[:20], alone, rtol=1e-3, atol=1e-4)


def test_models_that_are_no_students_are_refused(bundle_folder: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no students"):
        export(load_bundle(bundle_folder), tmp_path)


def test_the_example_of_the_documents(fastslow: FastSlow, tmp_path: Path) -> None:
    text = (REPOSITORY / "docs" / "serving.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    (example,) = (block for block in blocks if "onnx" in block)
    done = fastslow("onnx", tmp_path / "students")
    assert done.returncode == 0, done.stderr
    assert len(list((tmp_path / "students").glob("*.onnx"))) == 3
    file = SAMPLE / "npz/tile/xla/test/bmm_007.npz"
    named = example.replace("my_program.pb", str(file)).replace("students", f"{tmp_path}/students")
    found: dict[str, np.ndarray] = {}
    exec(compile(named, "serving.md", "exec"), found)
    order = load_bundle().rank(file).order
    assert np.argsort(found["scores"], kind="stable")[:5].tolist() == order[:5].tolist()
