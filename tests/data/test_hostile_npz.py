"""Files that want memory or time without end, or are called so that nobody can write it down."""

import io
import os
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from solution.analysis.data_check import check_files
from solution.data.folders import GraphFile
from solution.data.npz import fingerprint, read_graph
from solution.data.npz_arrays import MAX_ARRAY_BYTES
from solution.domain.collection import collection
from solution.domain.graph import Graph
from solution.system.errors import InputError
from tests.conftest import FastSlow
from tests.made.graphs import make_layout_graph, make_tile_graph, to_arrays, write_graph
from tests.made.guarded import MEMORY, Guard

LAYOUT, TILE = make_layout_graph(), make_tile_graph()


def header(*shape: int, fortran_order: bool = False, descr: str = "<f4") -> bytes:
    stream = io.BytesIO()
    described = {"descr": descr, "fortran_order": fortran_order, "shape": shape}
    np.lib.format.write_array_header_1_0(stream, described)
    return stream.getvalue()


def write_members(folder: Path, graph: Graph, **changes: bytes) -> Path:
    """The file with some members as any bytes."""
    path = folder / f"{graph.name}.npz"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, array in to_arrays(graph).items():
            archive.writestr(f"{name}.npy", changes.get(name, encode(array)))
    return path


def refusal(guard: Guard, path: Path, graph: Graph) -> str:
    """The message, from a process that has little memory and time."""
    with pytest.raises(InputError) as caught:
        guard.call(read_graph, path, graph.collection)
    assert str(path) in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("fortran_order", [False, True])
@pytest.mark.parametrize("shape", [
    (10**12, 0, 18), (0, 10**12, 18), (10**12, 3, 18), (12, 10**12, 18), (13, 3, 18), (12, 4, 18),
    (12, 3, 17), (12, 3), (2**63, 3, 18), (-1, 3, 18), (12, 3, 18, 1),
])  # fmt: skip
def test_layouts_of_another_shape_are_refused_before_they_are_read(
    shape: tuple[int, ...], fortran_order: bool, tmp_path: Path, guard: Guard
) -> None:
    member = header(*shape, fortran_order=fortran_order) + bytes(5000)
    path = write_members(tmp_path, LAYOUT, node_config_feat=member)
    message = refusal(guard, path, LAYOUT)
    assert "expected float32 of shape (12, 3, 18)" in message
    assert "config_runtime has 12 configurations, node_config_ids 3 nodes" in message


def raw(shape: object, version: int = 1) -> bytes:
    """A header with any text in the place of the shape, and some bytes."""
    text = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    size = len(text).to_bytes(2, "little")
    return b"\x93NUMPY" + bytes([version, 0]) + size + text + bytes(5000)


def encode(array: np.ndarray) -> bytes:
    stream = io.BytesIO()
    np.lib.format.write_array(stream, array)
    return stream.getvalue()


DAMAGED: dict[str, Callable[[np.ndarray], bytes]] = {
    "complex": lambda array: encode(array.astype(complex)),
    "text": lambda array: encode(array.astype(str)),
    "bytes": lambda array: encode(array.astype("S8")),
    "struct": lambda array: encode(np.zeros(array.shape, [("a", "<f4")])),
    "date": lambda array: encode(np.zeros(array.shape, "<M8[s]")),
    "bool": lambda array: encode(array.astype(bool)), "2^63 rows": lambda array: raw((2**63, 3)),
    "10^30 rows": lambda array: raw((10**30, 3, 18)), "-1 rows": lambda array: raw((-1, 3)),
    "10^9 rows": lambda array: raw((10**9, *array.shape[1:])),
    "2^60 bytes": lambda array: raw((2**58,)), "yes as a size": lambda array: raw((True, 3, 18)),
    "an open bracket": lambda array: raw("(12, 3, 18"),
    "nested": lambda array: raw("(" * 90 + ")" * 90),
    "code": lambda array: raw("__import__('os').getpid()"),
    "npy 3.0": lambda array: raw((3,), version=3), "npy 9.0": lambda array: raw((3,), version=9),
    "no header": lambda array: bytes(500), "cut": lambda array: encode(array)[:-3],
    "more": lambda array: encode(array) + bytes(9), "empty": lambda array: b"",
}  # fmt: skip


@pytest.mark.parametrize("damage", DAMAGED)
def test_a_damaged_array_is_refused(damage: str, tmp_path: Path, guard: Guard) -> None:
    for graph in (LAYOUT, TILE):
        arrays = to_arrays(graph)
        for name in arrays.keys() - {"node_splits"}:  # which nobody reads
            path = write_members(tmp_path, graph, **{name: DAMAGED[damage](arrays[name])})
            refusal(guard, path, graph)


@pytest.mark.parametrize(("graph", "name", "shape", "expected"), [
    (LAYOUT, "node_feat", (10**6, 140), "(8, 140)"), (LAYOUT, "edge_index", (10**8, 3), "(any, 2)"),
    (LAYOUT, "node_config_ids", (10**4, 10**4), "(any)"),
    (TILE, "config_feat", (10**7, 24), "(12, 24)"),
    (TILE, "config_runtime_normalizers", (10**9,), "(12)"),
])  # fmt: skip
def test_an_array_of_another_shape_is_refused_by_its_header(
    graph: Graph, name: str, shape: tuple[int, ...], expected: str, tmp_path: Path, guard: Guard
) -> None:
    descr = "<i8" if name in ("edge_index", "node_config_ids") else "<f4"
    path = write_members(tmp_path, graph, **{name: header(*shape, descr=descr) + bytes(5000)})
    message = refusal(guard, path, graph)
    assert f"{name} has shape ({', '.join(map(str, shape))}), expected {expected}" in message


def test_a_large_array_is_refused_whatever_its_shape(tmp_path: Path, guard: Guard) -> None:
    rows = MAX_ARRAY_BYTES // 4 + 1
    path = write_members(tmp_path, LAYOUT, config_runtime=header(rows))
    assert f"expected at most {MAX_ARRAY_BYTES:,}" in refusal(guard, path, LAYOUT)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "begin"), [
    ("whatever", header(MEMORY // 4)), ("config_runtime", b""),
    ("config_runtime", header(12)), ("node_config_feat", header(12, 3, 18)),
])  # fmt: skip
def test_a_bomb_is_not_inflated(name: str, begin: bytes, tmp_path: Path, guard: Guard) -> None:
    """A megabyte that inflates to more memory than the guard allows, with an honest directory."""
    path = tmp_path / f"{LAYOUT.name}.npz"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for key in to_arrays(LAYOUT).keys() - {name}:
            archive.writestr(f"{key}.npy", encode(to_arrays(LAYOUT)[key]))
        with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
            member.write(begin)
            for _ in range(MEMORY >> 20):
                member.write(bytes(1 << 20))
    if name == "whatever":  # it is not looked at
        assert guard.call(read_graph, path, LAYOUT.collection).num_nodes == LAYOUT.num_nodes
    else:
        assert "the memory" not in refusal(guard, path, LAYOUT)


@pytest.mark.parametrize("kind", ["pipe", "device"])
def test_pipes_and_devices_are_refused(kind: str, tmp_path: Path, guard: Guard) -> None:
    path = tmp_path / "program.npz"
    os.mkfifo(path) if kind == "pipe" else path.symlink_to("/dev/zero")
    assert "expected a" in refusal(guard, path, LAYOUT)
    with pytest.raises(InputError, match="expected a file"):
        guard.call(fingerprint, path)


def test_a_pipe_and_a_name_that_is_no_text_are_defects(fastslow: FastSlow, tmp_path: Path) -> None:
    path = write_graph(make_layout_graph(name="sound"), tmp_path / "data")
    os.mkfifo(path.with_name("pipe.npz"))
    strange = os.path.join(os.fsencode(path.parent), b"\xff\xfe.npz")  # noqa: PTH118
    os.link(path, strange)
    for command in (("check", "data"), ("prepare", "data"), ("inspect", os.fsdecode(strange))):
        result = fastslow(*command)
        assert result.returncode == 2 and "in utf-8" in result.stderr
        assert ("pipe.npz: expected a" in result.stderr) == (command[0] != "inspect")
        assert "Traceback" not in result.stderr and "sound.npz" not in result.stderr


def test_a_name_beyond_the_locale_is_a_defect_that_says_what_helps(tmp_path: Path) -> None:
    write_graph(make_layout_graph(name="père"), tmp_path / "data")
    command = [str(Path(sys.executable).parent / "fastslow"), "check", "data"]
    poor = {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}
    for changes, code in ((poor, 2), (poor | {"PYTHONUTF8": "1"}, 0)):
        environment = {**os.environ, **changes}
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, env=environment)
        assert done.returncode == code, done.stderr
        assert b"Traceback" not in done.stderr
        assert (b"set PYTHONUTF8=1" in done.stderr) == (code == 2)


@pytest.mark.parametrize("shortest", [5e-324, 1e-300])
def test_runtimes_whose_quotient_is_no_number_are_refused(
    shortest: float, tmp_path: Path, recwarn: pytest.WarningsRecorder
) -> None:
    path = tmp_path / "npz/layout/xla/random/train/program.npz"
    path.parent.mkdir(parents=True)
    runtimes = np.r_[shortest, np.full(11, 1e10)]
    np.savez(path, **(to_arrays(LAYOUT) | {"config_runtime": runtimes}))
    summaries, defects, _ = check_files([GraphFile(path, collection("layout:xla:random"), "train")])
    assert not recwarn.list
    assert len(summaries) + len(defects) == 1
    for defect in defects:
        assert f"whose quotient is no number: {shortest}, 1" in defect
    assert np.isfinite(summaries["spread"].to_numpy()).all()


def test_overflowing_numbers_are_refused(tmp_path: Path, recwarn: pytest.WarningsRecorder) -> None:
    features = LAYOUT.node_features.astype(np.float64)
    features[2, 3] = 1e300
    path = tmp_path / "program.npz"
    np.savez(path, **(to_arrays(LAYOUT) | {"node_feat": features}))
    with pytest.raises(InputError, match="infinite.*2"):
        read_graph(path, LAYOUT.collection)
    assert not recwarn.list


def add_members(path: Path, *names: str) -> None:
    with zipfile.ZipFile(path, "a") as archive:
        for name in names:
            archive.writestr(f"{name}.npy", b"whatever")


def test_members_that_the_directory_hides_are_missed(tmp_path: Path) -> None:
    """A comment that is said to be long swallows the entries behind it, required or not."""
    path = write_members(tmp_path, LAYOUT)
    add_members(path, "config_options", "config_option_names")
    content = bytearray(path.read_bytes())
    entry = content.rindex(b"config_options.npy") - 46  # in the directory, which is at the end
    before = content.rindex(b"PK\1\2", 0, entry)
    size = content.rindex(b"PK\5\6") - entry
    content[before + 32 : before + 34] = size.to_bytes(2, "little")
    path.write_bytes(content)
    assert "config_options.npy" not in zipfile.ZipFile(path).namelist()
    with pytest.raises(InputError, match="expected"):
        read_graph(path, LAYOUT.collection)


@pytest.mark.parametrize("name", ["config_options", "config_option_names"])
def test_options_without_their_names_are_refused(name: str, tmp_path: Path) -> None:
    path = write_members(tmp_path, LAYOUT)
    add_members(path, name)
    with pytest.raises(InputError, match=f"has the array {name} alone"):
        read_graph(path, LAYOUT.collection)


def test_options_whose_names_are_damaged_are_missed(tmp_path: Path) -> None:
    """In the directory, for the names stand in front of the members as well."""
    path = write_members(tmp_path, LAYOUT)
    add_members(path, "config_options", "config_option_names")
    content = path.read_bytes()
    directory = content.index(b"PK\1\2")
    damaged = content[directory:].replace(b"config_option", b"config_0ption")
    path.write_bytes(content[:directory] + damaged)
    with pytest.raises(InputError, match="differ"):
        read_graph(path, LAYOUT.collection)
