"""The file of one prepared graph: small arrays are read, large ones mapped into memory.

The format is safetensors: a length, a JSON header, the arrays one after the other. It holds no
pickle, other programs read it, and an array in it is a piece of the file, so what is not looked at
is never loaded. (The library's own numpy reader copies whole arrays, so they are mapped here.)
"""

import hashlib
import json
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from safetensors.numpy import save

from solution.domain.codebook import Codebook
from solution.domain.collection import collection
from solution.domain.graph import Graph
from solution.system.errors import InputError
from solution.system.files import replace_file

SUFFIX = ".safetensors"
RECORD = "record"  # the one entry of the header's metadata
SEAL = "header"  # in the record: a checksum of the whole header, in which it stands as zeros
NO_SEAL = 64 * "0"
DTYPES = {
    "U8": np.uint8, "U16": np.uint16, "U32": np.uint32,
    "I8": np.int8, "I32": np.int32, "I64": np.int64,
    "F32": np.float32, "F64": np.float64,
}  # fmt: skip
MAX_HEADER = 100 << 20  # as the library's
MAPPED_BYTES = 1 << 20  # from this size on: a mapped file stays open


def write_prepared(graph: Graph, record: dict[str, Any], path: Path) -> None:
    """Write the graph and what is known of it atomically; equal graphs give equal bytes."""
    arrays = {
        "node_features": graph.node_features,
        "node_opcodes": graph.node_opcodes,
        "edges": graph.edges.astype(np.int32),
        "configurable": graph.configurable.astype(np.int32),
    }
    if isinstance(graph.configs, Codebook):
        arrays |= graph.configs.arrays() | {"rows": graph.configs.rows.astype(np.int32)}
    else:
        arrays["tiles"] = graph.configs
    if graph.runtimes is not None:
        arrays["runtimes"] = graph.runtimes
    if graph.options is not None:
        arrays["options"] = graph.options
    record = {"name": graph.name, "collection": graph.collection.name, SEAL: NO_SEAL, **record}
    contiguous = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    content = memoryview(save(contiguous, {RECORD: json.dumps(record)}))
    start = 8 + int.from_bytes(content[:8], "little")
    header = bytes(content[:start])
    with replace_file(path) as temporary, temporary.open("wb") as file:
        file.write(header.replace(_quoted(NO_SEAL), _quoted(_seal(header)), 1))
        file.write(content[start:])


def read_record(path: Path) -> dict[str, Any]:
    """What was written beside the arrays; the arrays are not touched."""
    with path.open("rb") as file:
        return _read_header(path, file)[0]


def read_prepared(path: Path) -> Graph:
    """Read the graph; the codes of many configurations are read when they are looked at.

    Raises:
        InputError: the file is missing, truncated or not a prepared graph.
    """
    try:
        with path.open("rb") as file:
            record, entries, start = _read_header(path, file)
            arrays = {name: _read_array(file, start, entry) for name, entry in entries.items()}
            return _build(record, arrays)
    except FileNotFoundError as error:
        raise InputError(f"{path}: there is no such file. Prepare the data again.") from error
    except (KeyError, TypeError, ValueError) as error:
        raise _broken(path, f"{type(error).__name__}: {error}") from error


def _build(record: dict[str, Any], arrays: dict[str, np.ndarray]) -> Graph:
    if "tiles" in arrays:
        configs: Codebook | np.ndarray = arrays["tiles"]
    else:
        configs = Codebook(*(arrays[name] for name in ("layouts", "starts", "codes", "rows")))
    return Graph(
        name=record["name"],
        collection=collection(record["collection"]),
        node_features=arrays["node_features"],
        node_opcodes=arrays["node_opcodes"],
        edges=arrays["edges"].astype(np.int64),
        configurable=arrays["configurable"].astype(np.int64),
        configs=configs,
        runtimes=arrays.get("runtimes"),
        options=arrays.get("options"),
    )


def _read_header(path: Path, file: BinaryIO) -> tuple[dict[str, Any], dict[str, Any], int]:
    """The record, where each array lies, and where the first one begins."""
    length = file.read(8)
    start = 8 + int.from_bytes(length, "little")
    if len(length) < 8 or start > min(path.stat().st_size, MAX_HEADER):
        raise _broken(path, "it has no header")
    text = file.read(start - 8)
    try:
        entries = json.loads(text)
        record = json.loads(entries.pop("__metadata__")[RECORD])
        seal = record.pop(SEAL)
        end = start + max(entry["data_offsets"][1] for entry in entries.values())
        sound = _seal((length + text).replace(_quoted(seal), _quoted(NO_SEAL), 1)) == seal
    except (ValueError, TypeError, LookupError, AttributeError) as error:
        raise _broken(path, f"it has no such header ({type(error).__name__}: {error})") from error
    if not sound:
        raise _broken(path, "its header is damaged")
    if end != path.stat().st_size:
        raise _broken(path, f"it has {path.stat().st_size} bytes, expected {end}")
    return record, entries, start


def _seal(header: bytes) -> str:
    return hashlib.sha256(header).hexdigest()


def _quoted(seal: str) -> bytes:
    """As it stands in the header: in the JSON of the record, which is a string in JSON."""
    return rf"\"{SEAL}\": \"{seal}\"".encode()


def _read_array(file: BinaryIO, start: int, entry: dict[str, Any]) -> np.ndarray:
    shape, (first, last) = tuple(entry["shape"]), entry["data_offsets"]
    dtype = np.dtype(DTYPES[entry["dtype"]])
    count = int(np.prod(shape, dtype=np.int64))
    if count * dtype.itemsize != last - first:
        raise ValueError(f"an array of shape {shape} has {last - first} bytes")
    if last - first >= MAPPED_BYTES:
        return np.memmap(file, dtype, "r", start + first, shape).view(np.ndarray)
    file.seek(start + first)
    return np.frombuffer(file.read(last - first), dtype).reshape(shape)


def _broken(path: Path, why: str) -> InputError:
    return InputError(
        f"{path}: expected a prepared graph, but {why}. Delete it, and prepare the data again."
    )
