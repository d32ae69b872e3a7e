"""A bundle that is not what was packed gets one message, and nothing in it is used."""

import dataclasses
import json
import os
import pickle
import re
import shutil
import stat
import zipfile
from pathlib import Path
from typing import Any

import pytest

from ensembles.recipe import Recipe
from solution.features.preparation import VERSION
from solution.models import catalogue
from solution.models.base import RankerSettings
from solution.models.catalogue import save_model
from solution.models.linear import RidgeSettings
from solution.models.nets.training_settings import TrainingSettings
from solution.models.tile.tile_gnn import TileGnnSettings
from solution.models.trees.lightgbm_ranker import LightGBMSettings
from solution.serving.archive import unpack, write_archive
from solution.serving.bundle import DEFAULT, load_bundle
from solution.serving.record import RECORD, BundleRecord, Member, write_bundle_record
from solution.system.errors import InputError
from solution.system.files import read_sealed, write_sealed
from solution.system.sealing import list_checksums
from tests.made.graphs import make_layout_graph, make_tile_graph
from tests.made.hostile import Bomb

MODEL = "models/ridge/tile-xla/fold-0-seed-0"
MEMBER = Member(MODEL, "ridge", ("tile:xla",), 0, 0)
GRAPH, LAYOUT = make_tile_graph(9, configs=8), make_layout_graph(0)
GRAPHS = [make_tile_graph(seed, configs=12, name=f"kernel_{seed}") for seed in range(4)]
ENDLESS = {"name": "", "architecture": "", "group": "", "family": "", "nodes": 1, "edges": 1,
           "configurable": 0, "configs": 9, "steps": [[1, 0.5]], "ranked": 9}  # fmt: skip


def list_files(folder: Path) -> dict[str, Any]:
    """Fields of the record that fit what is there."""
    files = list_checksums(folder, leave_out=[RECORD])
    return {"files": files, "sizes": {name: (folder / name).stat().st_size for name in files}}


def seal(folder: Path, **changes: Any) -> None:
    """Make the record fit what is there, as an attacker would."""
    record = BundleRecord(
        name="made", recipe=Recipe(name="r", members={"ridge": 1.0}), features=VERSION, code="",
        commit=None, versions={}, members=(MEMBER,), programs={}, scores={}, families={},
        refitted=False, teacher=None, **list_files(folder),
    )  # fmt: skip
    write_bundle_record(record, folder)
    if changes:
        path = folder / RECORD
        write_sealed(read_sealed(path, "a bundle") | changes, path)


def seal_model(folder: Path, **changes: Any) -> None:
    path = folder / MODEL / catalogue.RECORD
    found = read_sealed(path, "a model") | changes
    found["files"] = list_checksums(folder / MODEL, leave_out=[catalogue.RECORD])
    write_sealed(found, path)
    seal(folder)


@pytest.fixture
def made(tmp_path: Path) -> Path:
    """A bundle of one small model."""
    put_model(tmp_path / "made", RidgeSettings(max_configs=5, grid=(1.0,)))
    return tmp_path / "made"


def refused(path: Path, words: str) -> None:
    with pytest.raises(InputError, match=words):
        load_bundle(path).rank(GRAPH)


def test_the_bundle_that_is_attacked_here_is_sound(made: Path, tmp_path: Path) -> None:
    path = write_archive(made, tmp_path / "made.zip")
    assert load_bundle(path).rank(GRAPH).scores.shape == (8,)
    assert zipfile.ZipFile(path).infolist()[0].compress_type == zipfile.ZIP_STORED


def test_a_bundle_that_did_not_follow_its_order_promises_nothing(made: Path) -> None:
    ranked = {"steps": [[1, 0.0]], "configurable": 0, "configs": 8, "ranked": 8}
    known = [ENDLESS | ranked | {"group": str(number)} for number in range(20)]
    seal(made, programs={GRAPH.collection.name: known})
    assert "too few" not in load_bundle(made).rank(GRAPH).reason
    seal(made, programs={GRAPH.collection.name: known}, explored={GRAPH.collection.name: 0.25})
    assert "programs predicted" in load_bundle(made).rank(GRAPH).reason


def test_a_pickle_and_a_huge_array_are_not_loaded(made: Path, tmp_path: Path) -> None:
    entry = {"dtype": "F64", "shape": [1 << 50], "data_offsets": [0, 1 << 53]}
    header = json.dumps(dict.fromkeys(("mean", "scale", "weights", "penalty"), entry)).encode()
    huge = len(header).to_bytes(8, "little") + header
    for content in (pickle.dumps(Bomb(tmp_path / "exploded")), huge):
        (made / MODEL / "model.safetensors").write_bytes(content)
        seal_model(made)
        refused(made, "cannot be loaded")
    assert not (tmp_path / "exploded").exists()


def put_model(made: Path, settings: RankerSettings) -> Path:
    """Replace the model, if there is one, by another one."""
    shutil.rmtree(made, ignore_errors=True)
    (made / MODEL).mkdir(parents=True)
    save_model(settings.build(0).fit(GRAPHS, []), settings, 0, made / MODEL)
    seal(made)
    return made / MODEL


NET = TileGnnSettings(width=8, blocks=1, training=TrainingSettings(epochs=1, configs_per_graph=4))


@pytest.mark.parametrize("change", [{"width": 1 << 40}, {"blocks": 10**9}, {"width": 4096}])
def test_a_net_that_is_larger_than_its_weights(change: dict[str, int], made: Path) -> None:
    found = read_sealed(put_model(made, NET) / catalogue.RECORD, "a model")
    seal_model(made, settings=found["settings"] | change)
    refused(made, "expected a number from|expected the weights of the net")


LINES = {
    "num_leaves": "num_leaves=99999999", "left_child": "left_child=7 7 7 7 7",
    "split_feature": "split_feature=9999999 0 0", "threshold": "threshold=nan",
    "decision_type": "decision_type=1", "num_cat": "num_cat=1000000",
    "leaf_value": "leaf_value=1e999", "leaf_count": "leaf_count=$(id)",
    "max_feature_idx": "max_feature_idx=-5", "num_class": "num_class=0",
    "objective": "objective=multiclass num_class:0", "tree_sizes": "end of trees", "Tree": "Tree=7",
}  # fmt: skip


@pytest.mark.parametrize("name", LINES)
def test_trees_that_lightgbm_could_not_bear(name: str, made: Path) -> None:
    path = put_model(made, LightGBMSettings(rounds=3, min_data_in_leaf=2)) / "model.txt"
    path.write_text(re.sub(rf"^{name}=.*$", LINES[name], path.read_text(), flags=re.MULTILINE))
    seal_model(made)
    refused(made, "expected trees as LightGBM writes them")


def test_a_model_of_other_collections_than_its_record_says(made: Path) -> None:
    found = dataclasses.asdict(MEMBER) | {"collections": ["layout:xla:random"]}
    seal(made, members=[found])
    with pytest.raises(InputError, match="cannot score"):
        load_bundle(made).rank(LAYOUT)


def test_what_is_given_in_a_bundles_place_is_named(made: Path, tmp_path: Path) -> None:
    refused(made / RECORD, "is the record of a bundle. Give its folder")
    os.mkfifo(tmp_path / "pipe")
    refused(tmp_path / "pipe", "expected a file, found a pipe")
    refused(Path("/dev/null"), "expected a file, found a device")
    refused(tmp_path / "nowhere", "there is no bundle here")


def test_a_record_that_promises_petabytes(made: Path) -> None:
    found = read_sealed(made / RECORD, "a bundle")
    seal(made, sizes=dict.fromkeys(found["sizes"], 1 << 50))
    refused(made, "expected at most")


@pytest.mark.parametrize("kind", ["os.system", "own:Mine", "", None, 3, "solution.cli.main"])
def test_a_kind_that_is_not_in_the_table(kind: object, made: Path) -> None:
    seal_model(made, kind=kind)
    refused(made, "is of the kind")


def test_other_features(made: Path) -> None:
    seal_model(made, preparation={"version": VERSION + 1, "hops": 1})
    refused(made, f"version {VERSION + 1} of the features")
    seal(made, features=VERSION - 1)
    refused(made, f"version {VERSION - 1} of the features")


@pytest.mark.parametrize(("change", "words"), [
    ({"format": 2}, "another format"), ({"members": [{"folder": "../x"}]}, "record of a bundle"),
    ({"sizes": {}}, "without a size"), ({"sizes": {"README.md": -1}}, "record of a bundle"),
    ({"programs": {"tile:xla": [ENDLESS]}}, "its best was never measured"),
    ({"programs": {"tile:xla": [ENDLESS | {"steps": [[1, 0.1], [2, 0.5], [3, 0]]}]}}, "slower"),
    ({"programs": {"tile:xla": [ENDLESS | {"steps": [[5, 0.5], [2, 0]]}]}}, "slower"),
    ({"members": [dataclasses.asdict(MEMBER)] * 2}, "names a model twice"),
    ({"members": [dataclasses.asdict(MEMBER) | {"collections": ["tile:tpu"]}]}, "'tile:tpu'"),
    ({"programs": {"tile:xla": [ENDLESS | {"nodes": -7}]}}, "record of a bundle"),
    ({"recipe": {"name": "r", "members": {}}}, "record of a bundle"),
    ({"members": [dataclasses.asdict(MEMBER) | {"seed": 10**300}]}, "record of a bundle"),
    ({"members": [dataclasses.asdict(MEMBER) | {"fold": -7}]}, "record of a bundle"),
    ({"programs": {"tile:xla": [ENDLESS | {"configs": 1e300}]}}, "record of a bundle"),
])  # fmt: skip
def test_a_record_of_something_else(change: dict[str, Any], words: str, made: Path) -> None:
    seal(made, **change)
    refused(made, words)


NAMES = ["../evil", "/tmp/evil", "a/b", "a\\b", ".", "..", "", ".hidden", "a\0b", "x" * 300, "-o"]


@pytest.mark.parametrize("name", NAMES)
def test_a_name_that_leads_elsewhere(name: str, made: Path) -> None:
    """An experiment's name becomes a file's, as in `fastslow onnx`."""
    seal(made, members=[dataclasses.asdict(MEMBER) | {"experiment": name}])
    refused(made, "record of a bundle, but members.0.experiment")


@pytest.mark.parametrize("name", ["../README.md", "/etc/hostname", "models/../../x", "a\0b"])
def test_a_file_outside_of_the_bundle(name: str, made: Path) -> None:
    found = read_sealed(made / RECORD, "a bundle")
    seal(made, files=found["files"] | {name: "1:0"}, sizes=found["sizes"] | {name: 1})
    refused(made, "record of a bundle, but files")


def change_student(folder: Path, which: str, change: dict[str, Any], **others: Any) -> None:
    """Unpack the default bundle, and give a student other settings than it was trained with."""
    folder.mkdir(exist_ok=True)
    unpack(DEFAULT, folder)
    paths = sorted(folder.rglob(catalogue.RECORD), reverse=True)  # xla before nlp
    models = [(path, read_sealed(path, "a model")) for path in paths]
    path, model = next((path, model) for path, model in models if model["kind"] == which)
    write_sealed(model | {"settings": model["settings"] | change} | others, path)
    write_sealed(read_sealed(folder / RECORD, "a bundle") | list_files(folder), folder / RECORD)


@pytest.mark.parametrize(("kind", "change"), [
    ("layout_net", {"hops": 10**9}), ("layout_net", {"hops": 1e300}), ("layout_net", {"hops": 1.5}),
    ("layout_net", {"hops": None}), ("layout_net", {"rounds": [10**9]}),
    ("layout_net", {"rounds": [8] * 1000}), ("tile_net", {"blocks": 10**9}),
    ("tile_net", {"blocks": "9"}), ("tile_net", {"width": -1}),
])  # fmt: skip
def test_a_student_that_says_it_is_huge(kind: str, change: dict[str, Any], tmp_path: Path) -> None:
    change_student(tmp_path, kind, change)
    (name,) = change
    refused(tmp_path, f"has the setting {name} = .*, expected a number from 0 to")


@pytest.mark.parametrize(("changes", "words"), [
    ({"kind": "tile_net"}, "be loaded"), ({"kind": "lambdarank"}, "'lambdarank'.*layout_net"),
    ({"preparation": {"version": VERSION, "hops": "many"}}, "keep 'many'"),
    ({"preparation": {"version": VERSION, "hops": 10**12}}, "keep 1000000000000 hops"),
    ({"settings": {"pruning": "no", "hops": 1, "rounds": [64, 64]}}, "cannot score"),
    ({"settings": {"pruning": "nothing", "hops": 1, "rounds": [1] * 99}}, "at most 64"),
    ({"settings": {"pruning": "nothing", "hops": 1, "rounds": 7}}, "be loaded"),
])  # fmt: skip
def test_a_hostile_student_is_named(changes: dict[str, object], words: str, tmp_path: Path) -> None:
    change_student(tmp_path, "layout_net", {}, **changes)
    with pytest.raises(InputError, match=words):
        load_bundle(tmp_path).rank(LAYOUT)


@pytest.mark.parametrize(
    ("kind", "change"), [("tile_net", {"blocks": 60}), ("layout_net", {"rounds": [8] * 9})]
)
def test_no_larger_student_is_exported(kind: str, change: dict[str, Any], tmp_path: Path) -> None:
    pytest.importorskip("onnx")
    from solution.serving.onnx_export import export

    change_student(tmp_path / "bundle", kind, change)
    with pytest.raises(InputError, match=r"bundle: models/.* cannot be (written|loaded)"):
        export(load_bundle(tmp_path / "bundle"), tmp_path / "out")


def test_a_file_that_nobody_listed_among_the_models(made: Path) -> None:
    (made / MODEL / "extra.bin").write_bytes(b"")
    refused(made, "not in the bundle's record")


def test_a_zip_that_says_it_unpacks_to_more_than_there_is(made: Path, tmp_path: Path) -> None:
    path = write_archive(made, tmp_path / "made.zip")
    content = path.read_bytes()
    name = f"{MODEL}/model.safetensors".encode()
    size = (made / MODEL / "model.safetensors").stat().st_size.to_bytes(4, "little")
    central = content.rindex(name)
    head = content[:central].rindex(size + size)
    huge = (0xFFFFFFF0).to_bytes(4, "little")
    path.write_bytes(content[:head] + huge + huge + content[head + 8 :])
    refused(path, "bytes, expected|truncated")


def attack_zip(made: Path, path: Path, name: str, content: bytes = b"x", mode: int = 0) -> None:
    write_archive(made, path)
    with zipfile.ZipFile(path, "a") as archive:
        info = zipfile.ZipInfo(name)
        info.external_attr = mode << 16
        archive.writestr(info, content)


@pytest.mark.parametrize(("name", "mode", "words"), [
    ("../escaped", 0, "leads out of the folder"),
    ("models/../../escaped", 0, "leads out of the folder"),
    ("/tmp/escaped", 0, "leads out of the folder"), ("C:\\escaped", 0, "leads out of the folder"),
    ("link", stat.S_IFLNK | 0o777, "is a link"),
    ("extra", 0, "not both in the zip and in its record"), ("models//twice", 0, "in another form"),
    ("models/", 0, "lists the folder 'models/'.* Make the zip with `fastslow pack`"),
])  # fmt: skip
def test_a_zip_with_more(name: str, mode: int, words: str, made: Path, tmp_path: Path) -> None:
    path = tmp_path / "bad.zip"
    attack_zip(made, path, name, b"" if name.endswith("/") else b"/etc/passwd", mode)
    refused(path, words)
    (tmp_path / "here").mkdir()
    with pytest.raises(InputError, match=words):
        unpack(path, tmp_path / "here")
    assert not list(tmp_path.rglob("escaped"))


def test_a_zip_that_is_compressed_or_cut_or_none(made: Path, tmp_path: Path) -> None:
    path = write_archive(made, tmp_path / "made.zip")
    whole = path.read_bytes()
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(RECORD, json.dumps({"a": 1}) * 1000)
    refused(path, "compressed")
    path.write_bytes(whole[: len(whole) // 2])
    refused(path, "truncated or no zip")
    path.write_bytes(b"")
    refused(path, "truncated or no zip")
