"""Programs are ranked from whatever they are in, and alike."""

from pathlib import Path

import numpy as np
import pytest

from solution import load_bundle, read_graph
from solution.data.folders import find_files
from solution.features.preparation import Preparation
from solution.programs.hlo.records import read_module_file, write_record
from solution.serving.bundle import Bundle
from solution.serving.reading import read_questions
from solution.store.graph_file import write_prepared
from solution.store.preparing import prepare_store
from solution.store.store import Store
from solution.system.errors import InputError
from tests.made import modules
from tests.made.graphs import make_layout_graph

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
    assert one.order.tolist() == two.order.tolist()


def test_a_dump_without_candidates_gets_some_that_are_those_of_its_npz(
    bundle: Bundle, tmp_path: Path
) -> None:
    path = modules.write(modules.make_module(), tmp_path / "mine.pb")
    npz = write_record(read_module_file(path)[0], tmp_path)
    one, two = bundle.rank(path), bundle.rank(str(npz))
    assert len(one.scores) > 5
    assert one.scores.tobytes() == two.scores.tobytes()
    assert one.to_frame()["configuration"].to_list() == two.to_frame()["configuration"].to_list()
    assert read_graph(path, configs=3).num_configs == 3


def test_text_has_the_graph_of_its_module(bundle: Bundle, tmp_path: Path) -> None:
    pytest.importorskip("jax")
    (tmp_path / "product.hlo").write_text(TEXT)
    graph = read_graph(tmp_path / "product.hlo")
    assert (graph.num_nodes, graph.configurable.tolist()) == (4, [2, 3])
    assert bundle.rank(graph).graph.num_configs > 3
    (tmp_path / "wrong.hlo").write_text("HloModule wrong\nENTRY main { nonsense }")
    with pytest.raises(InputError, match="expected HLO text, but"):
        read_graph(tmp_path / "wrong.hlo")


def test_a_kernel_gets_tiles(bundle: Bundle, tmp_path: Path) -> None:
    path = modules.write(modules.make_module(), tmp_path / "mine.pb")
    ranking = bundle.rank(read_graph(path, "tile:xla"))
    assert ranking.graph.collection.kind == "tile"
    assert ranking.to_frame(1)["configuration"][0].startswith("output ")


def test_a_store_ranks_as_the_files_that_it_was_made_of(
    bundle: Bundle, data: Path, store: Store
) -> None:
    of_files = {q.graph.key: q for q in read_questions(data)}
    of_store = {q.graph.key: q for q in read_questions(store.folder)}
    assert of_files.keys() == of_store.keys()
    for key, question in of_files.items():
        other = of_store[key]
        assert question.facts == other.facts
        ranked = [bundle.rank(q.graph, q.facts).scores for q in (question, other)]
        assert np.array_equal(*ranked)


def test_a_file_of_a_pruned_store_is_promised_what_the_program_is(
    bundle: Bundle, data: Path, tmp_path: Path
) -> None:
    pruned = prepare_store(find_files(data), tmp_path / "pruned", Preparation(1))
    paths = dict(zip(pruned.graphs["graph"], pruned.paths(), strict=True))
    for question in read_questions(data):
        if question.graph.collection.kind == "layout":
            ours, theirs = (bundle.rank(p) for p in (paths[question.graph.name], question.file))
            assert (ours.measure, ours.known) == (theirs.measure, theirs.known)
            assert ours.reason == theirs.reason


def test_a_folder_of_modules(tmp_path: Path) -> None:
    for name in ("one", "two"):
        modules.write(modules.make_layout_record(), tmp_path / f"{name}.pb")
    (tmp_path / "notes.md").write_text("mine")
    assert [q.graph.name for q in read_questions(tmp_path)] == ["one", "two"]


def test_a_folder_that_xla_dumped_has_programs_with_nothing_to_choose(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """And a file that is no program, beside each."""
    one = modules.module(("main", 1, [modules.node(1, "parameter", modules.shape(8))]))
    modules.write(one, tmp_path / "module_0000.jit_key.before_optimizations.hlo.pb")
    report = "module_0000.jit_key.cpu_after_optimizations-memory-usage-report.pb"
    (tmp_path / report).write_bytes(b"\x0b")
    with pytest.raises(InputError, match="holds no program in which anything"):
        list(read_questions(tmp_path))
    modules.write(modules.make_module(), tmp_path / "module_0001.jit_mine.hlo.pb")
    assert [q.graph.name for q in read_questions(tmp_path)] == ["module_0001.jit_mine.hlo"]
    assert "jit_key.before_optimizations.hlo.pb: left out" in capsys.readouterr().err
    with pytest.raises(InputError, match="expected a number from 1 to"):
        list(read_questions(tmp_path, configs=10**6))


@pytest.mark.parametrize("nodes", [-1, 10**400, 1e300, "9", None])
def test_a_prepared_graph_of_impossible_size(tmp_path: Path, nodes: object) -> None:
    summary = {"architecture": "a", "nodes": nodes, "edges": 1, "configurable": 1}
    path = tmp_path / "program.safetensors"
    write_prepared(make_layout_graph(0), {"summary": summary}, path)
    with pytest.raises(InputError, match=r"program\.safetensors: lacks its summary"):
        read_graph(path)


def test_what_cannot_be_read_is_said(tmp_path: Path) -> None:
    for name, words in (("a.md", "found .md"), ("a.npz", "no such file"), ("a.pb", "no such file"),
                        ("a.hlo", "no such file")):  # fmt: skip
        with pytest.raises(InputError, match=words):
            read_graph(tmp_path / name)
    with pytest.raises(InputError, match="expected one file, found a folder"):
        read_graph(tmp_path)
