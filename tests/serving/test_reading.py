"""Programs are ranked from whatever they are in, and alike."""

import copy
import gc
import json
import pickle
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import solution
from ensembles.merge import find_members, merge_files
from solution import load_bundle, read_graph
from solution.data.folders import find_files
from solution.domain.predictions import RANKING_SCHEMA
from solution.features.preparation import Preparation
from solution.programs.hlo.records import read_module_file, write_record
from solution.runs.folder import Run
from solution.serving.bundle import Bundle
from solution.serving.predicting import predict_test_split
from solution.serving.reading import read_questions
from solution.store.graph_file import write_prepared
from solution.store.preparing import prepare_store
from solution.store.store import Store
from solution.system.errors import InputError
from submissions.writer import write_submission
from tests.conftest import FastSlow, assert_refused
from tests.made import modules
from tests.made.graphs import make_layout_graph, make_tile_graph, write_graph
from tests.serving.conftest import RECIPE

TEXT = """HloModule product

ENTRY main {
  x = f32[8,16]{1,0} parameter(0)
  w = f32[16,4]{1,0} parameter(1)
  product = f32[8,4]{1,0} dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT flat = f32[32]{0} reshape(product)
}
"""


@pytest.fixture
def bundle(bundle_folder: Path) -> Bundle:
    return load_bundle(bundle_folder)


@pytest.mark.parametrize("timed", [True, False])
def test_a_module_has_the_order_of_its_npz(timed: bool, bundle: Bundle, tmp_path: Path) -> None:
    path = modules.write(modules.make_layout_record(timed=timed), tmp_path / "mine.pb")
    npz = write_record(read_module_file(path)[0], tmp_path)
    one, two = bundle.rank(read_graph(path)), bundle.rank(read_graph(npz))
    assert one.scores.tobytes() == two.scores.tobytes()
    np.testing.assert_array_equal(one.order, two.order)


def test_a_dump_without_candidates_gets_those_of_its_npz(bundle: Bundle, tmp_path: Path) -> None:
    path = modules.write(modules.make_module(), tmp_path / "mine.pb")
    npz = write_record(read_module_file(path)[0], tmp_path)
    one, two = bundle.rank(path), bundle.rank(str(npz))
    assert len(one.scores) > 5 and one.scores.tobytes() == two.scores.tobytes()
    assert one.to_frame()["configuration"].to_list() == two.to_frame()["configuration"].to_list()
    assert read_graph(path, configs=3).num_configs == 3
    tiles = bundle.rank(read_graph(path, "tile:xla"))
    assert tiles.graph.collection.kind == "tile"
    assert tiles.to_frame(1)["configuration"][0].startswith("output ")


def test_text_has_the_graph_of_its_module(bundle: Bundle, tmp_path: Path) -> None:
    pytest.importorskip("jax")
    (tmp_path / "product.hlo").write_text(TEXT)
    graph = read_graph(tmp_path / "product.hlo")
    assert (graph.name, graph.num_nodes, graph.configurable.tolist()) == ("product", 4, [2, 3])
    assert bundle.rank(graph).graph.num_configs > 3
    (tmp_path / "wrong.hlo").write_text("HloModule wrong\nENTRY main { nonsense }")
    with pytest.raises(InputError, match="expected HLO"):
        read_graph(tmp_path / "wrong.hlo")


def test_a_store_ranks_as_its_files(bundle: Bundle, data: Path, store: Store) -> None:
    of_files = {q.graph.key: q for q in read_questions(data)}
    of_store = {q.graph.key: q for q in read_questions(store.folder)}
    assert of_files.keys() == of_store.keys()
    for key, question in of_files.items():
        other = of_store[key]
        assert question.facts == other.facts
        ranked = [bundle.rank(q.graph, q.facts).scores for q in (question, other)]
        assert np.array_equal(*ranked)


def test_a_pruned_graph_has_the_same_promise(bundle: Bundle, data: Path, tmp_path: Path) -> None:
    pruned = prepare_store(find_files(data), tmp_path / "pruned", Preparation(1))
    paths = dict(zip(pruned.graphs["graph"], pruned.paths(), strict=True))
    for question in read_questions(data):
        if question.graph.collection.kind == "layout":
            ours, theirs = (bundle.rank(p) for p in (paths[question.graph.name], question.file))
            assert (ours.measure, ours.known) == (theirs.measure, theirs.known)
            assert ours.reason == theirs.reason


def test_a_folder_that_xla_dumped(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It has programs with nothing to choose, and beside each a file that is no program."""
    one = modules.module(("main", 1, [modules.node(1, "parameter", modules.shape(8))]))
    modules.write(one, tmp_path / "module_0000.jit_key.before_optimizations.hlo.pb")
    report = "module_0000.jit_key.cpu_after_optimizations-memory-usage-report.pb"
    (tmp_path / report).write_bytes(b"\x0b")
    with pytest.raises(InputError, match="which anything"):
        list(read_questions(tmp_path))
    modules.write(modules.make_module(), tmp_path / "module_0001.jit_mine.hlo.pb")
    assert [q.graph.name for q in read_questions(tmp_path)] == ["module_0001.jit_mine.hlo"]
    assert "jit_key.before_optimizations.hlo.pb: left out" in capsys.readouterr().err
    with pytest.raises(InputError, match="expected.*1"):
        list(read_questions(tmp_path, configs=10**6))


def test_a_file_with_nothing_to_choose_does_not_stop_the_others(
    fastslow: FastSlow, tmp_path: Path
) -> None:
    flat = modules.module(("main", 1, [modules.node(1, "parameter", modules.shape(8))]))
    files = [modules.write(flat, tmp_path / "flat.pb")]
    files += [modules.write(modules.make_module(), tmp_path / f"{name}.pb") for name in "ab"]
    words = ("--collection", "layout:xla:random")
    done = fastslow("rank", files[1], files[0], files[2], *words, "--csv", "out.csv")
    assert done.returncode == 0 and "flat.pb" in done.stderr
    assert set(pl.read_csv(tmp_path / "out.csv")["graph"]) == {"a", "b"}
    for alone in ([files[0]], [files[0]] * 2):
        assert "nothing" in assert_refused(fastslow("rank", *alone, *words)).lower()
    assert "flat.pb" in assert_refused(fastslow("rank", files[0], *words))


@pytest.mark.parametrize("kind", ["file", "folder", "store", "prepared"])
def test_a_path_that_tells_another_collection_is_refused(
    kind: str, fastslow: FastSlow, tmp_path: Path
) -> None:
    """Where the path tells the same one, or none, the option is taken."""
    folder = tmp_path / "data"
    file = write_graph(make_layout_graph(0), folder, "train")
    store = prepare_store(find_files(folder), tmp_path / "store", Preparation(None))
    (prepared,) = store.paths()
    path = {"file": file, "folder": folder, "store": store.folder, "prepared": prepared}[kind]
    for other in ("layout:nlp:default", "tile:xla"):
        with pytest.raises(InputError, match=f"layout:xla:random.*--collection.*{other}"):
            list(read_questions(path, other))
    (question,) = read_questions(path, "layout:xla:random")
    assert question.graph.collection.name == "layout:xla:random"
    if kind == "file":
        shown = fastslow("inspect", path, "--collection", "layout:nlp:default")
        assert_refused(shown, "layout:xla:random", "layout:nlp:default")
        shutil.copy(path, tmp_path / "moved.npz")
        moved = read_graph(tmp_path / "moved.npz", "layout:nlp:default")
        assert moved.collection.name == "layout:nlp:default"


@pytest.mark.parametrize("nodes", [-1, 10**400, 1e300, "9", None])
def test_a_prepared_graph_of_impossible_size(tmp_path: Path, nodes: object) -> None:
    summary = {"architecture": "a", "nodes": nodes, "edges": 1, "configurable": 1}
    path = tmp_path / "program.safetensors"
    write_prepared(make_layout_graph(0), {"summary": summary}, path)
    with pytest.raises(InputError, match="its summary"):
        read_graph(path)


def test_what_cannot_be_read_is_said(tmp_path: Path) -> None:
    for name, words in (("a.md", "found .md"), ("a.npz", "no such file"), ("a.pb", "no such file"),
                        ("a.hlo", "no such file"), (".", "expected one")):  # fmt: skip
        with pytest.raises(InputError, match=words):
            read_graph(tmp_path / name)


def test_rank_prints_and_writes_the_order(
    fastslow: FastSlow, bundle_folder: Path, data: Path, tmp_path: Path
) -> None:
    file = data / "npz/tile/xla/test/kernel_6.npz"
    module = modules.write(modules.make_layout_record(), tmp_path / "module" / "mine.pb")
    done = fastslow(
        "rank", file, module, "--with", bundle_folder, "--top", "3", "--confidence", "80%",
        "--csv", "all.csv", "--json", "all.json",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    expected = load_bundle(bundle_folder).rank(read_graph(file), confidence=0.8)
    assert f"Measure the first {expected.measure}: within 2.0% of the best" in done.stdout
    table = pl.read_csv(tmp_path / "all.csv")
    rows = table.filter(pl.col("graph") == "kernel_6")
    assert set(rows["file"]) == {str(file)}
    assert rows["config"].to_list() == expected.order.tolist()
    assert rows.filter("measure")["config"].sort().to_list() == sorted(expected.to_measure)
    first, second = json.loads((tmp_path / "all.json").read_text())
    assert [row["config"] for row in first["configurations"]] == expected.order.tolist()
    assert first["to_measure"] == expected.to_measure.tolist()
    assert len(first["to_measure"]) == expected.measure
    assert (second["file"], second["graph"]) == (str(module), "mine")
    assert len(second["configurations"]) == 3
    graph = read_graph(module)
    given = graph.layouts.expand().reshape(3, -1, 3, 6)
    for row in second["configurations"]:  # nothing that a configuration asks for is left out
        asked = [
            [int(node), tensor, [int(axis) for axis in axes if axis >= 0]]
            for node, tensors in zip(graph.configurable, given[row["config"]], strict=True)
            for tensor, axes in zip(("output", "input", "kernel"), tensors, strict=True)
            if axes[0] >= 0
        ]
        assert row["layouts"] == asked
    words = table.filter(pl.col("graph") == "mine")["configuration"].to_list()
    assert not any("more" in line for line in words)


def test_graphs_that_no_model_ranks_are_counted_and_left_out(
    fastslow: FastSlow, run: Run, store: Store, tmp_path: Path
) -> None:
    """Of a store of two collections the run's recipe ranks one."""
    (tmp_path / "tiles.toml").write_text("[members]\ntile_net = 1\n")
    words = ("--run", run.folder, "--recipe", "tiles.toml")
    done = fastslow("rank", store.folder, *words, "--csv", "out.csv")
    assert done.returncode == 0, done.stderr
    table = pl.read_csv(tmp_path / "out.csv")
    assert set(table["collection"]) == {"tile:xla"} and table["graph"].n_unique() == 8
    assert "8 graphs left out" in done.stderr and "layout:xla:random (8)" in done.stderr
    (layout,) = [path for path in store.paths() if path.stem == "program_1"]
    assert_refused(fastslow("rank", layout, *words), "layout:xla:random", "tile:xla")


def test_a_dumped_program_is_ranked_by_a_run(fastslow: FastSlow, run: Run, tmp_path: Path) -> None:
    modules.write(modules.make_module(), tmp_path / "mine.pb")
    recipe = 'method = "z_score"\n[members]\nlambdarank = 1\n'
    (tmp_path / "mine.toml").write_text(recipe)
    recipe_of_run = ("--run", run.folder, "--recipe", "mine.toml")
    done = fastslow("rank", "mine.pb", *recipe_of_run, "--configs", "20")
    assert done.returncode == 0, done.stderr
    assert "16 configurations" in done.stdout and "programs predicted" in done.stdout
    done = fastslow("pack", run.folder, "--recipe", "mine.toml", "--out", "mine.zip")
    assert done.returncode == 0, done.stderr
    assert load_bundle(tmp_path / "mine.zip").record.name == "mine"
    done = fastslow("pack", run.folder, "--recipe", "mine.toml", "--out", "my bundle")
    assert "fastslow rank FILE --with 'my bundle'" in " ".join(done.stdout.split())
    refused = fastslow("pack", run.folder, "--out", "b.zip", "--data", "nowhere")
    assert refused.returncode == 2
    assert "Give --refit or --distill as well" in " ".join(refused.stderr.split())


def test_bad_input_is_one_message(fastslow: FastSlow, bundle_folder: Path, tmp_path: Path) -> None:
    (tmp_path / "some.npz").touch()
    for arguments, words in (
        (["some.npz", "--with", "nowhere"], "there is no bundle here"),
        (["none.npz"], "there is no such file"),
        (["some.npz", "none"], "there is no such file"),
        (["none.npz", "--with", bundle_folder], "there is no such file"),
        (["some.npz", "--with", bundle_folder, "--run", "x"], "one of them"),
        (["none.npz", "--with", bundle_folder, "--confidence", "2"], "no such file"),
        (["none.npz", "--with", bundle_folder, "--regret", "much"], "is no share"),
        (["some.npz", "--with", bundle_folder, "--recipe", "mine.toml"], "give --run RUN as well"),
        (["none.npz", "--csv", "a", "--json", "a"], "ends with .csv"),
        (["none.npz", "--csv", "mine.zip"], "ends with .csv"),
        (["none.npz", "--configs", "0"], "greater than or equal to 1"),
    ):
        done = fastslow("rank", *arguments)
        assert done.returncode == 2 and words in done.stderr
        assert not done.stdout


@pytest.mark.parametrize("workers", [1, 2])
def test_files_and_stores_give_the_runs_own_ranking(
    workers: int, run: Run, bundle_zip: Path, data: Path, store: Store, tmp_path: Path
) -> None:
    """To the last bit, in one process and in several; and a submission can be written of it."""
    key, path = ("collection", "graph", "config"), tmp_path / "submission.csv"
    expected = pl.concat(merge_files(find_members(run, RECIPE, "test"), RECIPE)).sort(key)
    for source in (data, store.folder):
        found = predict_test_split(bundle_zip, source, workers)
        assert found.ranking.schema == RANKING_SCHEMA
        assert found.ranking.sort(key).equals(expected)
        written = write_submission(found.ranking, found.graphs, found.sample_submission, path)
        assert written.rows == 4
        assert found.graphs["split"].unique().to_list() == ["test"]


def test_a_test_graph_that_is_left_out_is_said(
    bundle_zip: Path, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copied = shutil.copytree(data, tmp_path / "data")
    path = next(file.path for file in find_files(copied) if file.split == "test")
    path.rename(path.with_suffix(".NPZ"))
    predict_test_split(bundle_zip, copied, 1)
    assert str(path.with_suffix(".NPZ")) in capsys.readouterr().err


def test_what_cannot_be_predicted_is_said(bundle_zip: Path, tmp_path: Path) -> None:
    """No test graphs; a collection without a model, before anything is read."""
    folder = tmp_path / "data"
    write_graph(make_layout_graph(0), folder, "train")
    prepared = prepare_store(find_files(folder), tmp_path / "store", Preparation())
    for source in (folder, prepared.folder):
        with pytest.raises(InputError, match="test split"):
            predict_test_split(bundle_zip, source)
    file = folder / "npz" / "layout" / "nlp" / "default" / "test" / "unreadable.npz"
    file.parent.mkdir(parents=True)
    file.write_bytes(b"")
    with pytest.raises(InputError, match="for layout"):
        predict_test_split(bundle_zip, folder)


GRAPH = make_layout_graph(20, configs=30, name="new")


@pytest.mark.parametrize("clone", [lambda it: pickle.loads(pickle.dumps(it)), copy.deepcopy])
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
    bundle = load_bundle()
    for promise, words in (
        ({"regret": "2%"}, r"2.*expected.*0\.02.*2"),
        ({"confidence": None}, "confidence is"),
    ):
        with pytest.raises(TypeError, match=words):
            bundle.rank(GRAPH, **promise)  # type: ignore[arg-type]
    with pytest.raises(solution.InputError, match="the graph"):
        bundle.rank("")
    bundle.rank(GRAPH, regret=np.float32(0.02))


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
