"""What a fuzzer calls: readers whose input is any bytes, below the checksums that would stop it.

A target returns where the input is read, and where it is refused as bad input is; all else is a
defect. Where a seal or a checksum stands before a reader, the target makes it right, so that what
lies behind is reached: somebody who can write a file can seal it.
"""

import io
import json
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np

from ensembles.recipe import find_recipe
from solution.data.npz import read_graph
from solution.domain.graph import Graph
from solution.programs.hlo.records import read_module_file
from solution.serving.bundle import load_bundle
from solution.store import graph_file
from solution.store.store import Store
from solution.system.errors import InputError
from solution.system.files import write_sealed
from submissions.ledger import read_ledger
from submissions.writer import Expected, check_submission
from tests.made.graphs import make_layout_graph, make_tile_graph, to_arrays

FOLDER = Path(tempfile.mkdtemp(prefix="fuzz-"))
MAX_INPUT = 4096  # bytes
LAYOUT, TILE = make_layout_graph(), make_tile_graph()
ASKED = Expected({"layout:xla:random:g": 4, "tile:xla:k": 20}, "the test split")


def _members(graph: Graph) -> dict[str, bytes]:
    found = {}
    for name, array in to_arrays(graph).items():
        content = io.BytesIO()
        np.lib.format.write_array(content, array)
        found[name] = content.getvalue()
    return found


MEMBERS = {graph.collection.kind: _members(graph) for graph in (LAYOUT, TILE)}


def read_npz(data: bytes) -> None:
    """The first byte says of which kind and which array the rest is; checksums are right."""
    graph = LAYOUT if data[:1] < b"\x80" else TILE
    members = dict(MEMBERS[graph.collection.kind])
    name = list(members)[(data[0] if data else 0) % len(members)]
    members[name] = data[1:]
    path = FOLDER / "program.npz"
    with zipfile.ZipFile(path, "w") as archive:
        for key, content in members.items():
            archive.writestr(f"{key}.npy", content)
    _refuse_or_read(lambda: read_graph(path, graph.collection))


def read_zip(data: bytes) -> None:
    """An npz file as it is."""
    _refuse_or_read(lambda: read_graph(_write("any.npz", data), TILE.collection))


def read_module(data: bytes) -> None:
    _refuse_or_read(lambda: read_module_file(_write("module.pb", data)))


def read_prepared(data: bytes) -> None:
    """The header of a prepared graph, its seal right, before the arrays of a sound one."""
    sound = FOLDER / "sound.safetensors"
    if not sound.exists():
        graph_file.write_prepared(TILE, {"split": "train"}, sound)
    content = sound.read_bytes()
    arrays = content[8 + int.from_bytes(content[:8], "little") :]
    header = len(data).to_bytes(8, "little") + data
    seal = graph_file._quoted(graph_file._sum(header))
    sealed = header.replace(graph_file._quoted(graph_file.NO_SEAL), seal, 1)
    path = _write("prepared.safetensors", sealed + arrays)
    _refuse_or_read(lambda: graph_file.read_prepared(path))


def read_store(data: bytes) -> None:
    """The record of a store, its seal right where it is JSON."""
    path = _write("store/store.json", data)
    _seal(data, path)
    _refuse_or_read(lambda: Store.open(path.parent))


def read_recipe(data: bytes) -> None:
    _refuse_or_read(lambda: find_recipe(str(_write("mine.toml", data))))


def read_csv(data: bytes) -> None:
    _refuse_or_read(lambda: check_submission(_write("submission.csv", data), ASKED))


def read_lines(data: bytes) -> None:
    _refuse_or_read(lambda: read_ledger(_write("ledger.csv", data)))


def read_bundle(data: bytes) -> None:
    """The record of a bundle, its seal right where it is JSON."""
    path = _write("bundle/bundle.json", data)
    _seal(data, path)
    _refuse_or_read(lambda: load_bundle(path.parent))


TARGETS: dict[str, Callable[[bytes], None]] = {
    "npz": read_npz,
    "zip": read_zip,
    "protobuf": read_module,
    "prepared": read_prepared,
    "store": read_store,
    "bundle": read_bundle,
    "recipe": read_recipe,
    "csv": read_csv,
    "ledger": read_lines,
}


def _seal(data: bytes, path: Path) -> None:
    """Write the record anew with its seal, where it is one."""
    try:
        value = json.loads(data)
        if isinstance(value, dict):
            write_sealed(value, path)
    except (ValueError, RecursionError):
        return


def _write(name: str, data: bytes) -> Path:
    path = FOLDER / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(data)
    return path


def _refuse_or_read(read: Callable[[], object]) -> None:
    try:
        read()
    except InputError as error:
        assert str(FOLDER) in str(error), f"does not name the file: {error}"
