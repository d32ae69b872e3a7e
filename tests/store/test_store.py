"""A prepared store holds what the files hold, and is never mistaken for one of other files."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from solution.data.folders import GraphFile, choose_sample, find_files
from solution.data.npz import read_graph
from solution.domain.graph import Graph
from solution.features import preparation
from solution.features.preparation import Preparation, keep_neighbourhood, repair_padding
from solution.store import preparing
from solution.store import store as module
from solution.store.graph_file import read_prepared
from solution.store.preparing import prepare_store
from solution.store.store import Store, check_preparation, is_store
from solution.system.errors import InputError
from tests.made.graphs import find_difference, make_layout_graph, make_tile_graph, write_graph

SAMPLE_ROWS = "ID,TopConfigs\ntile:xla:kernel,0;1;2;3;4\n"


def write_data(folder: Path) -> Path:
    """A few graphs of every kind and split."""
    data = folder / "data"
    for seed in range(3):
        write_graph(make_layout_graph(seed, name=f"program_{seed}"), data)
        write_graph(make_tile_graph(seed, name=f"kernel_{seed}"), data, "valid")
    write_graph(make_layout_graph(3, name="asked", labelled=False), data, "test")
    return data


def prepare(folder: Path, **options: Any) -> Store:
    """The store of folder/data."""
    data = folder / "data"
    options = {"preparation": Preparation(), **options}
    sample = choose_sample(data)
    return prepare_store(find_files(data), folder / "store", sample_submission=sample, **options)


def snapshot(folder: Path) -> dict[str, bytes]:
    """Every file below the folder."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


def refusal(folder: Path, **options: Any) -> str:
    with pytest.raises(InputError) as caught:
        prepare(folder, **options)
    return str(caught.value)


def read_file(file: GraphFile) -> Graph:
    return read_graph(file.path, file.collection)


@pytest.mark.parametrize("hops", [1, 2, None])
def test_prepared_graphs_are_repaired_and_pruned_on_the_whole_graph(
    hops: int | None, sample: Path, sample_store: Store, tmp_path: Path
) -> None:
    files, store = find_files(sample), sample_store
    if hops != 1:
        files = files[::10]
        store = prepare_store(files, tmp_path / "store", Preparation(hops))
    for file, path in zip(files, store.paths(), strict=True):
        graph = repair_padding(read_file(file))
        expected = graph if hops is None else keep_neighbourhood(graph, hops)
        if file.split == "test":
            expected = dataclasses.replace(expected, runtimes=None)
        assert find_difference(read_prepared(path), expected) is None, path


def test_every_label_is_kept_and_labels_of_test_graphs_are_dropped(tmp_path: Path) -> None:
    """Somebody may have them; they are not in the store."""
    graph = make_layout_graph(configs=9).select(np.array([0, 1, 0, 2, 0, 1]))
    runtimes = np.array([5.0, 6.0, 7.0, 8.0, 2**53 - 1, 10.0])
    graph = dataclasses.replace(graph, runtimes=runtimes)
    for split in ("train", "test"):
        write_graph(dataclasses.replace(graph, name=split), tmp_path / "data", split)
    store = prepare(tmp_path)
    train, test = (read_prepared(path) for path in store.paths())
    np.testing.assert_array_equal(train.runtimes, runtimes)
    assert test.runtimes is None
    assert store.graphs["labelled"].to_list() == [True, False]
    assert store.graphs["spread"].to_list() == [(2**53 - 1) / 5, None]


def slow_noise(graph: Graph) -> float | None:
    """How far identical configurations differ, from their rows as text."""
    assert graph.runtimes is not None
    rows = graph.tiles if graph.collection.kind == "tile" else graph.layouts.expand()
    groups: dict[str, list[float]] = {}
    for row, runtime in zip(rows.tolist(), graph.runtimes.tolist(), strict=True):
        groups.setdefault(str(row), []).append(runtime)
    ratios = [max(group) / min(group) - 1 for group in groups.values() if len(group) > 1]
    return float(np.median(ratios)) if ratios else None


def test_the_index_describes_the_files(sample: Path, sample_store: Store) -> None:
    rows = sample_store.graphs.rows(named=True)
    for file, row in list(zip(find_files(sample), rows, strict=True))[::5]:
        graph = read_file(file)
        is_layout = graph.collection.kind == "layout"
        expanded = graph.layouts.expand() if is_layout else graph.tiles
        pairs = [str(pair) for config in expanded.tolist() for pair in enumerate(config)]
        expected = {
            "split": file.split, "architecture": graph.architecture, "nodes": graph.num_nodes,
            "edges": len(graph.edges), "configs": graph.num_configs,
            "configurable": len(graph.configurable), "labelled": file.split != "test",
            "distinct": len({str(config) for config in expanded.tolist()}),
            "layouts": len(set(pairs)) if is_layout else 0,
        }  # fmt: skip
        assert (row["collection"], row["graph"]) == graph.key
        assert {name: row[name] for name in expected} == expected
        if file.split == "test":
            assert row["spread"] is row["noise"] is None
        else:
            assert graph.runtimes is not None
            assert row["spread"] == graph.runtimes.max() / graph.runtimes.min()
            noise = slow_noise(graph)
            assert (row["noise"] is None) == (noise is None)
            assert row["noise"] == noise or abs(row["noise"] - noise) < 1e-12


def test_a_store_is_found_and_has_its_size_and_sample(tmp_path: Path) -> None:
    write_data(tmp_path)
    (tmp_path / "data" / "sample_submission.csv").write_text(SAMPLE_ROWS)
    store = prepare(tmp_path)
    assert is_store(store.folder) and not is_store(tmp_path / "data")
    assert store.size == sum(len(v) for n, v in snapshot(store.folder).items() if "graphs/" in n)
    opened = Store.open(store.folder)
    assert opened.graphs.equals(store.graphs)
    assert opened.preparation == Preparation().describe()
    assert store.find_defects() == []


def test_preparing_again_changes_nothing_and_an_added_file_is_added(tmp_path: Path) -> None:
    write_data(tmp_path)
    before = snapshot(prepare(tmp_path).folder)
    times = {path: path.stat().st_mtime_ns for path in (tmp_path / "store").rglob("*")}
    assert snapshot(prepare(tmp_path).folder) == before
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "store").rglob("*")} == times
    write_graph(make_layout_graph(7, name="more"), tmp_path / "data")
    added = prepare(tmp_path)
    assert "more" in added.graphs["graph"].to_list()
    after = snapshot(added.folder)
    assert snapshot(prepare(tmp_path, replace=True).folder) == after


@pytest.mark.parametrize("finished", [True, False])
def test_a_changed_file_is_named_and_putting_it_back_helps(finished: bool, tmp_path: Path) -> None:
    data = write_data(tmp_path)
    before = snapshot(prepare(tmp_path).folder)
    if not finished:
        (tmp_path / "store" / "graphs.parquet").unlink()
    [path] = data.rglob("program_1.npz")
    content = path.read_bytes()
    write_graph(make_layout_graph(8, name="program_1"), data)
    message = refusal(tmp_path)
    assert str(path) in message and "--replace" in message
    assert len(message.splitlines()) == 1
    path.write_bytes(content)
    assert snapshot(prepare(tmp_path).folder) == before
    write_graph(make_layout_graph(8, name="program_1"), data)
    assert snapshot(prepare(tmp_path, replace=True).folder) != before


@dataclasses.dataclass(frozen=True)
class ChangingPreparation(Preparation):
    """Somebody deletes the file while it is prepared, or writes another one."""

    path: str = ""
    other: str = ""

    def __call__(self, graph: Graph) -> Graph:
        Path(self.path).unlink()
        if self.other:
            Path(self.other).rename(self.path)
        return super().__call__(graph)


@pytest.mark.parametrize("how", ["replaced", "deleted", "deleted before"])
def test_a_file_that_changes_meanwhile_is_said(how: str, tmp_path: Path) -> None:
    """And afterwards the same command makes what is there."""
    path = write_graph(make_tile_graph(), tmp_path / "data")
    files = find_files(tmp_path / "data")
    other = write_graph(make_tile_graph(1), tmp_path / "other") if how == "replaced" else ""
    changing: Preparation = ChangingPreparation(path=str(path), other=str(other))
    if how == "deleted before":
        path.unlink()
        changing = Preparation()
    with pytest.raises(InputError, match=rf"{path.name}: (was changed|there is no such file)"):
        prepare_store(files, tmp_path / "store", changing, workers=1)
    write_graph(make_tile_graph(int(how == "replaced")), tmp_path / "data")
    made = prepare(tmp_path)
    assert made.graphs.equals(prepare(tmp_path, replace=True).graphs)


@pytest.mark.parametrize("finished", [True, False])
def test_a_removed_file_is_said_and_the_store_stays(finished: bool, tmp_path: Path) -> None:
    data = write_data(tmp_path)
    before = snapshot(prepare(tmp_path).folder)
    if not finished:
        del before["graphs.parquet"]
        (tmp_path / "store" / "graphs.parquet").unlink()
    next(data.rglob("program_1.npz")).unlink()
    message = refusal(tmp_path)
    assert "holds 1" in message and "program_1" in message
    assert snapshot(tmp_path / "store") == before
    assert "program_1" not in prepare(tmp_path, replace=True).graphs["graph"].to_list()


def test_the_sample_submission_follows_the_data(tmp_path: Path) -> None:
    sample = write_data(tmp_path) / "sample_submission.csv"
    assert prepare(tmp_path).sample_submission is None
    for text in (SAMPLE_ROWS, SAMPLE_ROWS + "tile:xla:other,0;1;2;3;4\n"):
        sample.write_text(text)
        kept = prepare(tmp_path).sample_submission
        assert kept is not None and kept.read_text() == text
    sample.unlink()
    assert prepare(tmp_path).sample_submission is None


@pytest.mark.parametrize("wanted", [1, 2, None])
@pytest.mark.parametrize("kept", [1, 2, None])
def test_a_store_must_keep_all_hops(kept: int | None, wanted: int | None, tmp_path: Path) -> None:
    described = Preparation(kept).describe()
    if kept is None or (wanted is not None and wanted <= kept):
        check_preparation(described, wanted, tmp_path)
    else:
        with pytest.raises(InputError, match="looks further.*(without --hops|--hops 2)"):
            check_preparation(described, wanted, tmp_path)


def test_a_store_that_another_program_prepared_is_refused(tmp_path: Path) -> None:
    for other in ({"version": preparation.VERSION + 1, "hops": None}, {"hops": None}, {}):
        with pytest.raises(InputError, match="data again"):
            check_preparation(other, 1, tmp_path)


def test_another_preparation_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_data(tmp_path)
    before = snapshot(prepare(tmp_path).folder)
    message = refusal(tmp_path, preparation=Preparation(2))
    assert "(hops: 1, now 2)" in message
    assert snapshot(tmp_path / "store") == before
    assert prepare(tmp_path, preparation=Preparation(2), rebuild=True).preparation["hops"] == 2
    assert snapshot(prepare(tmp_path, rebuild=True).folder) == before
    for modules, name in (((module, preparing), "FORMAT"), ((preparation, module), "VERSION")):
        for target in modules:
            monkeypatch.setattr(target, name, 99)
        assert "99" in refusal(tmp_path)
        assert prepare(tmp_path, rebuild=True).graphs.equals(Store.open(tmp_path / "store").graphs)
        monkeypatch.undo()
        with pytest.raises(InputError, match=r"--replace|99"):
            prepare(tmp_path)
        assert snapshot(prepare(tmp_path, rebuild=True).folder) == before


GOLDEN = {
    ("layout:nlp:random", "train", "albert_L-2_H-96_A-2_b4_s32"): (
        "30d3a880fb55a07b5bab167b8f85df60b52a5073c667bb807ab538a8437b5246"
    ),
    ("tile:xla", "train", "bmm_000"): (
        "af68bf5bce3705f39aa67c9d93c7deadff11178d0f5527a054d2e06c83e6e1df"
    ),
}


def test_the_sample_is_prepared_as_ever(sample_store: Store) -> None:
    rows = sample_store.graphs.select("collection", "split", "graph", "checksum").rows()
    found = {tuple(row[:3]): row[3] for row in rows}
    assert {key: found[key] for key in GOLDEN} == GOLDEN, (
        "the same files are prepared differently than before: raise VERSION in "
        "solution/store/store.py (FORMAT in solution/store/store.py where the file itself "
        "changed), so that old stores are not taken for new ones, and update these checksums"
    )
