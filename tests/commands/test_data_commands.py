"""`fastslow check`, `inspect` and `prepare`, and what `run` makes of what they find and make."""

import dataclasses
import shutil
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import numpy as np
import pytest
from matplotlib import image

from solution.data.folders import find_files
from solution.domain.collection import NAMES
from solution.domain.vocabulary import OPTION_NAMES
from solution.features.preparation import Preparation
from solution.store.preparing import prepare_store
from solution.store.store import Store
from solution.system.errors import InputError
from solution.system.files import read_sealed, write_sealed
from tests.conftest import FastSlow, assert_done, assert_refused
from tests.made.graphs import make_layout_graph, make_tile_graph, to_arrays, write_graph
from tests.made.hostile import Bomb
from tests.store.test_store import prepare, snapshot, write_data

QUICK = ("--experiment", "nothing_001", "--workers", "1")


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-300])


def change(name: str, function: Callable[[np.ndarray], np.ndarray]) -> Callable[[Path], None]:
    """Rewrite the file with one other array."""

    def damage(path: Path) -> None:
        arrays = to_arrays(make_layout_graph(name=path.stem))
        np.savez(path, **(arrays | {name: function(arrays[name])}))

    return damage


def put(array: np.ndarray, index: int | tuple[int, int], value: float) -> np.ndarray:
    changed = array.copy()
    changed[index] = value
    return changed


def pickle_opcodes(path: Path) -> None:
    bomb = np.array([Bomb(path.with_name("unpickled"))], object)
    change("node_opcode", lambda _: bomb)(path)


DEFECTS: dict[str, tuple[Callable[[Path], None], str]] = {
    "truncated": (truncate, "truncated or not an npz file"),
    "pickled": (pickle_opcodes, "node_opcode holds object"),
    "shape": (change("node_feat", lambda a: a[:, :139]), "node_feat has shape (8, 139)"),
    "nan": (change("node_feat", lambda a: put(a, (3, 7), np.nan)), "node_feat has NaN"),
    "index": (change("edge_index", lambda a: put(a, (0, 1), 8)), "edge_index points outside"),
    "opcode": (change("node_opcode", lambda a: put(a, 2, 250)), "unknown opcode 250"),
    "unlabelled": (change("config_runtime", np.zeros_like), "all runtimes are 0"),
}


def write_broken(folder: Path, *names: str) -> dict[str, Path]:
    """One sound graph, and one broken file for each of the defects called `names`."""
    write_graph(make_layout_graph(name="sound"), folder)
    paths = {}
    for name in names:
        paths[name] = write_graph(make_layout_graph(name=f"broken-{name}"), folder)
        DEFECTS[name][0](paths[name])
    return paths


def assert_names(result: CompletedProcess[str], defect: str, path: Path) -> None:
    """One line says which file it is and what is wrong with it."""
    lines = [line for line in result.stderr.splitlines() if str(path) in line]
    assert len(lines) == 1
    assert DEFECTS[defect][1] in lines[0]


def test_check_shows_every_collection_of_the_bundled_sample(fastslow: FastSlow) -> None:
    rows = [line.strip() for line in assert_done(fastslow("check")).splitlines()]
    assert [row for row in rows if row in NAMES] == list(NAMES)
    assert sum(row.startswith("test ") for row in rows) == 5
    assert rows[-1] == "All 250 files are sound."


def test_check_finds_the_real_files_sound(fastslow: FastSlow, tpu: Path) -> None:
    said = assert_done(fastslow("check", tpu))
    assert "All 33" in said
    assert all(name in said for name in NAMES)


def test_every_defect_of_a_folder_is_listed_at_once(
    fastslow: FastSlow, fastslow_here: FastSlow, tmp_path: Path
) -> None:
    paths = write_broken(tmp_path / "data", *DEFECTS)
    for result in (fastslow("check", tmp_path / "data"), fastslow_here("run", tmp_path / "data")):
        assert_refused(result)
        for defect, path in paths.items():
            assert_names(result, defect, path)
        assert "sound.npz" not in result.stderr
    assert not (tmp_path / "runs").exists()
    assert not any(tmp_path.rglob("unpickled"))


def test_empty_and_missing_folders_are_refused(fastslow_here: FastSlow, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    for folder, words in (("data", "found none"), ("missing", "there is no such folder")):
        for result in (fastslow_here("check", folder), fastslow_here("run", folder, *QUICK)):
            assert_refused(result, f"{folder}: ", words)
    assert not (tmp_path / "runs").exists()


def test_layouts_and_compile_options_in_one_collection_are_one_message(
    fastslow_here: FastSlow, tmp_path: Path
) -> None:
    """Their feature tables differ, so no model learns from both."""
    data, store, out = tmp_path / "data", tmp_path / "store", tmp_path / "out"
    for seed in range(2):
        graph = make_layout_graph(seed, name=f"laid{seed}")
        write_graph(graph, data)
        options = np.arange(12)[:, None] % 2 * np.ones((1, len(OPTION_NAMES)), np.int8)
        chosen = dataclasses.replace(
            graph, name=f"told{seed}", options=options.astype(np.int8),
            option_names=OPTION_NAMES,
        )  # fmt: skip
        write_graph(chosen, data)
    prepare_store(find_files(data), store, Preparation())
    paths = sorted(str(path) for path in data.rglob("*.npz"))
    for command in (("check", data), ("check", store), ("run", data, "--run", out, *QUICK)):
        named = paths if command == ("check", data) else ("laid0", "told1")
        facts = ("layout:xla:random", "2 with layouts", "2 with compile options (cpu)")
        assert_refused(fastslow_here(*command), *facts, *named)
    assert not out.exists()
    for path in (path for path in paths if "told" in path):
        Path(path).unlink()
    assert_done(fastslow_here("check", data))


def assert_is_picture(path: Path) -> None:
    assert path.read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    assert 5_000 < path.stat().st_size < 2_000_000
    pixels = image.imread(path)
    height, width = pixels.shape[:2]
    assert 1000 < width < 4000
    assert 400 < height < 4000
    assert pixels[..., :3].std() > 0.02  # something is drawn


def test_inspect_shows_a_layout_graph(fastslow: FastSlow, tmp_path: Path) -> None:
    said = assert_done(fastslow("inspect", write_graph(make_layout_graph(), tmp_path)))
    for words in ("layout:xla:random:program", "Picture: program.png", "parameter", "dot", "add",
                  "reshape", "tanh"):  # fmt: skip
        assert words in said
    assert_is_picture(tmp_path / "program.png")


def test_inspect_tells_a_tile_graph_by_its_arrays(fastslow_here: FastSlow, tmp_path: Path) -> None:
    np.savez(tmp_path / "kernel.npz", **to_arrays(make_tile_graph(labelled=False)))
    said = assert_done(fastslow_here("inspect", "kernel.npz", "--picture", "pictures/kernel.png"))
    for words in ("tile:xla:kernel", "Output tile", "parameter", "dot", "tanh"):
        assert words in said
    assert_is_picture(tmp_path / "pictures" / "kernel.png")
    assert not (tmp_path / "kernel.png").exists()


def test_inspect_asks_for_a_layouts_collection(fastslow_here: FastSlow, tmp_path: Path) -> None:
    np.savez(tmp_path / "program.npz", **to_arrays(make_layout_graph()))
    assert_refused(fastslow_here("inspect", "program.npz"), "program.npz", "--collection")
    assert not (tmp_path / "program.png").exists()
    assert_done(fastslow_here("inspect", "program.npz", "--collection", "layout:nlp:random"))
    assert_is_picture(tmp_path / "program.png")


def test_inspect_draws_a_program_of_one_operation(fastslow_here: FastSlow, tmp_path: Path) -> None:
    graph = dataclasses.replace(
        make_tile_graph(configs=1),
        node_features=make_tile_graph().node_features[:1],
        node_opcodes=np.ones(1, np.uint8),
        edges=np.empty((0, 2), np.int64),
    )
    assert_done(fastslow_here("inspect", write_graph(graph, tmp_path)))
    assert_is_picture(tmp_path / "kernel.png")


def test_inspect_draws_pictures_of_a_folder(fastslow: FastSlow, tmp_path: Path) -> None:
    for seed in range(2):
        write_graph(make_layout_graph(seed, name=f"program_{seed}"), tmp_path / "data")
    assert_done(fastslow("inspect", "data"))
    drawn = {path.name for path in (tmp_path / "pictures").iterdir()}
    assert {"ranges.png", "gains.png", "violations.png"} <= drawn


@pytest.mark.parametrize(("ending", "start"), [("svg", b"<?xml"), ("pdf", b"%PDF")])
def test_a_picture_is_what_its_name_says(
    ending: str, start: bytes, fastslow_here: FastSlow, tmp_path: Path
) -> None:
    path = write_graph(make_tile_graph(), tmp_path)
    assert_done(fastslow_here("inspect", path, "--picture", f"kernel.{ending}"))
    assert (tmp_path / f"kernel.{ending}").read_bytes().startswith(start)


def test_inspect_refuses_what_it_would_ignore(fastslow_here: FastSlow, tmp_path: Path) -> None:
    graph = make_layout_graph()
    path = write_graph(graph, tmp_path / "data")
    (tmp_path / "file").touch()
    for words, expected in (
        ((path, "--picture", "a.doc"), "ends with .png, .svg, .pdf"),
        ((path, "--graph", graph.name), "--graph is for a folder"),
        (("data", "--collection", "layout:xla:random"), "Give --graph NAME"),
        (("data", "--graph", graph.name, "--collection", "layout:nlp:random"), "has no graph"),
        (("data", "--picture", "file"), "file: a file is in its place"),
        ((path, "--picture", "file/a.png"), "file: a file is in its place"),
    ):
        assert_refused(fastslow_here("inspect", *words), expected)
    named = ("--graph", graph.name, "--collection", "layout:xla:random")
    assert_done(fastslow_here("inspect", "data", *named))


WIDE_EXPERIMENT = '''
"""Looks two hops around."""
from dataclasses import dataclass

from solution.domain.collection import NAMES
from solution.experiments.base import Experiment
from solution.models.nothing import NothingSettings


@dataclass(frozen=True)
class WideSettings(NothingSettings):
    needed_hops = 2


EXPERIMENT = Experiment(name="wide", collections=NAMES, ranker=WideSettings())
'''


def times_of(store: Path) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in store.rglob("*.safetensors")}


def test_prepare_says_what_it_made_and_check_finds_it_sound(
    fastslow: FastSlow, fastslow_here: FastSlow, tmp_path: Path
) -> None:
    write_data(tmp_path)
    said = assert_done(fastslow("prepare", "data"))
    assert "stores/data: 7 graphs, " in said
    assert Store.open(tmp_path / "stores" / "data").preparation["hops"] is None
    assert "All 7" in assert_done(fastslow_here("check", "stores/data"))
    before = snapshot(tmp_path / "stores" / "data")
    times = times_of(tmp_path)
    assert_done(fastslow("prepare", "data", "--replace"))
    assert times_of(tmp_path).items().isdisjoint(times.items())
    assert snapshot(tmp_path / "stores" / "data") == before


def test_what_is_left_out_is_named_by_every_command(fastslow: FastSlow, tmp_path: Path) -> None:
    write_data(tmp_path)
    path = tmp_path / "data/npz/tile/xla/Test/kernel.NPZ"
    path.parent.mkdir()
    path.touch()
    (tmp_path / "data" / "sample_submission.csv").write_text("Id,Top\n", encoding="utf-8")
    for command in (("check",), ("prepare",), ("run", *QUICK)):
        result = fastslow(command[0], "data", *command[1:])
        assert_done(result)
        for words in ("1 npz", "tile/xla/Test/kernel.NPZ.", "data/sample_submission.csv."):
            assert words in result.stderr


def test_every_defect_is_named_and_it_can_go_on(fastslow: FastSlow, tmp_path: Path) -> None:
    paths = write_broken(tmp_path / "data", *DEFECTS)
    store = tmp_path / "store"
    result = fastslow("prepare", tmp_path / "data", "--hops", "1", "--out", store)
    assert_refused(result)
    for defect, path in paths.items():
        assert_names(result, defect, path)
    assert "sound.npz" not in result.stderr
    assert not (store / "graphs.parquet").exists()
    [(sound, written)] = times_of(store).items()
    assert sound.stem == "sound"
    assert not any(tmp_path.rglob("unpickled"))
    for path in paths.values():
        write_graph(make_layout_graph(name=path.stem), tmp_path / "data")
    assert_done(fastslow("prepare", "data", "--hops", "1", "--out", store))
    assert sound.stat().st_mtime_ns == written
    assert snapshot(store) == snapshot(prepare(tmp_path, replace=True).folder)


@pytest.mark.parametrize("replace", [False, True])
@pytest.mark.parametrize("content", ["notes.txt", "store.json", None])
def test_a_folder_with_something_else_is_refused_and_stays(
    content: str | None, replace: bool, tmp_path: Path
) -> None:
    """A file that is called like the record of a store is none; `None` is a file in the way."""
    files = find_files(write_data(tmp_path))
    path = tmp_path / "out" if content is None else tmp_path / "out" / content
    path.parent.mkdir(exist_ok=True)
    path.write_text("[1]")
    before = snapshot(tmp_path)
    with pytest.raises(InputError, match="out.*: expected"):
        prepare_store(files, tmp_path / "out", Preparation(), replace=replace)
    assert snapshot(tmp_path) == before


def test_check_finds_every_damaged_file_of_a_store(fastslow_here: FastSlow, tmp_path: Path) -> None:
    write_data(tmp_path)
    store = prepare(tmp_path)
    before = snapshot(store.folder)
    flipped, truncated, missing, swapped, other, *_ = store.paths()
    content = bytearray(flipped.read_bytes())
    content[-20] ^= 1
    flipped.write_bytes(content)
    truncated.write_bytes(truncated.read_bytes()[:-1])
    missing.unlink()
    shutil.copyfile(other, swapped)
    result = fastslow_here("check", "store")
    assert_refused(result, "4 defects")
    lines = result.stderr.splitlines()
    damaged = {flipped: "is not what was", truncated: "bytes, expected", missing: "no such file",
               swapped: "is not the file that was written"}  # fmt: skip
    for path, words in damaged.items():
        found = [line for line in lines if str(path.relative_to(tmp_path)) in line]
        assert len(found) == 1
        assert words in found[0]
    assert snapshot(prepare(tmp_path).folder) == before  # as the messages say


def results_of(run: Path) -> dict[str, bytes]:
    """Predictions, labels, rankings and the submission."""
    files = snapshot(run).items()
    return {n: content for n, content in files if n.endswith(("parquet", "submission.csv"))}


def test_run_on_a_store_gives_the_same_bytes_as_on_the_data(
    fastslow: FastSlow, cold_fastslow: FastSlow, tmp_path: Path
) -> None:
    """The second one in a new interpreter, which has another hash seed."""
    for seed in range(6):
        write_graph(make_layout_graph(seed, 30, name=f"program_{seed}"), tmp_path / "data")
        write_graph(make_tile_graph(seed, 30, name=f"kernel_{seed}"), tmp_path / "data", "valid")
    write_graph(make_layout_graph(7, name="asked", labelled=False), tmp_path / "data", "test")
    write_graph(make_tile_graph(7, name="asked", labelled=False), tmp_path / "data", "test")
    rows = "ID,TopConfigs\ntile:xla:asked,0;1;2;3;4\nlayout:xla:random:asked,0\n"
    (tmp_path / "data" / "sample_submission.csv").write_text(rows)
    quick = [*QUICK, "--experiment", "layout_lightgbm_001", "--experiment", "tile_lightgbm_001"]
    options = [*quick, "--folds", "2", "--scheme", "graph", "--workers", "1"]
    assert_done(fastslow("run", "data", *options, "--run", "on-data"))
    prepare(tmp_path)
    shutil.rmtree(tmp_path / "data")
    assert_done(cold_fastslow("run", "store", *options, "--run", "on-store"))
    expected = results_of(tmp_path / "on-data")
    assert len(expected) > 10
    assert results_of(tmp_path / "on-store") == expected
    assert snapshot(tmp_path / "stores" / "data") == snapshot(tmp_path / "store")


def test_run_makes_what_its_experiments_need_and_refuses_a_store_without(
    fastslow: FastSlow, fastslow_here: FastSlow, tmp_path: Path
) -> None:
    write_data(tmp_path)
    (tmp_path / "wide.py").write_text(WIDE_EXPERIMENT)
    prepare(tmp_path)
    wide = [*QUICK, "--experiment", "wide.py"]
    assert_refused(fastslow_here("run", "store", *wide), "1 hop", "--hops 2")
    assert not (tmp_path / "runs").exists()
    assert_done(fastslow("run", "data", *QUICK, "--run", "runs/near"))
    near = snapshot(tmp_path / "stores" / "data")
    assert_done(fastslow("run", "data", *wide))
    assert Store.open(tmp_path / "stores" / "data-hops-2").preparation["hops"] == 2
    assert snapshot(tmp_path / "stores" / "data") == near  # another run may be reading it
    assert_done(fastslow("run", "data", *QUICK, "--run", "runs/near"))


def test_run_keeps_a_store_that_serves_and_never_touches_one_that_was_named(
    fastslow: FastSlow, fastslow_here: FastSlow, tmp_path: Path
) -> None:
    write_data(tmp_path)
    (tmp_path / "wide.py").write_text(WIDE_EXPERIMENT)
    assert_done(fastslow("prepare", "data"))
    whole = snapshot(tmp_path / "stores" / "data")
    assert_done(fastslow("run", "data", *QUICK))
    assert snapshot(tmp_path / "stores" / "data") == whole
    near = snapshot(prepare(tmp_path).folder)
    named = ("--store", "store", *QUICK, "--experiment", "wide.py")
    assert_refused(fastslow_here("run", "data", *named), "--store")
    assert snapshot(tmp_path / "store") == near


def test_a_stale_store_is_refused_by_prepare_and_rebuilt_by_run(
    fastslow: FastSlow, fastslow_here: FastSlow, tmp_path: Path
) -> None:
    write_data(tmp_path)
    stored = tmp_path / "stores" / "data"
    stored.parent.mkdir()
    shutil.move(prepare(tmp_path).folder, stored)
    before = snapshot(stored)
    record = read_sealed(stored / "store.json", "a record")
    record["preparation"]["version"] = 0
    write_sealed(record, stored / "store.json")
    stale = snapshot(stored)
    for arguments in (["prepare", "data"], ["run", "stores/data", *QUICK]):
        assert_refused(fastslow_here(*arguments), "repare")
    assert snapshot(stored) == stale
    assert_done(fastslow("run", "data", *QUICK))
    assert snapshot(stored) == before
