"""Write and read the file of one prepared graph: small arrays are read, large ones memory-mapped.

The format is safetensors: the header's length, a JSON header, then the arrays one after the other.
It contains no pickle, other programs can read it, and each array is one contiguous range of the
file, so a large array is loaded only where it is used. (The safetensors library's numpy reader
copies whole arrays, so this module maps them itself.)

The header contains a checksum of every array and a checksum of itself, called the seal. The seal
therefore covers every byte that was written. A small array is compared with its checksum whenever
it is read. Comparing a mapped array means reading all of it, which is slow. So it is done once,
when the store is opened, and not at every later read (`is_checked`).

GraphCache keeps the graphs that were read within a memory budget.
"""

import hashlib
import json
import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, overload

import numpy as np
from safetensors.numpy import save

from solution.data.folders import parse_path
from solution.domain import vocabulary
from solution.domain.codebook import Codebook, check_codebook
from solution.domain.collection import collection
from solution.domain.graph import TIMED, Budget, Graph
from solution.features.preparation import Preparation
from solution.system.errors import InputError
from solution.system.files import open_regular, replace_file

SUFFIX = ".safetensors"
RECORD = "record"  # the only entry of the header's metadata
SUMS = "sums"  # key in the record: the checksum of each array
SEAL = "header"  # key in the record: the header's checksum, computed with NO_SEAL as its value
NO_SEAL = 64 * "0"
DTYPES = {
    "U8": np.uint8, "U16": np.uint16, "U32": np.uint32,
    "I8": np.int8, "I32": np.int32, "I64": np.int64,
    "F32": np.float32, "F64": np.float64,
}  # fmt: skip
ARRAYS = {  # the arrays that a file may contain, and the types allowed for each
    "node_features": ("F32",), "node_opcodes": ("U8",), "edges": ("I32",),
    "configurable": ("I32",), "tiles": ("F32",), "runtimes": ("F32", "F64"),
    "layouts": ("I8",), "starts": ("I64",), "codes": ("U8", "U16", "U32"), "rows": ("I32",),
    "options": ("I8",),
}  # fmt: skip
MAX_HEADER = 1 << 20  # maximum number of bytes of the header; usually it has about 3,000
MAPPED_BYTES = 1 << 20  # arrays of at least this size are mapped, which keeps the file open
BLOCK_BYTES = 1 << 20  # bytes read at a time to compute a checksum
AS_IT_IS = Preparation(None)  # keeps all nodes of a stored graph


@dataclass(frozen=True)
class _Span:
    """The type, shape, byte range and checksum of an array in the file."""

    dtype: np.dtype
    shape: tuple[int, ...]
    first: int  # offset in the file of the first byte
    last: int  # offset of the byte after the last one
    sum: str

    @property
    def is_mapped(self) -> bool:
        return self.last - self.first >= MAPPED_BYTES


@dataclass(frozen=True)
class _Header:
    # the metadata that write_prepared was given, and the graph's name and collection
    record: dict[str, Any]
    spans: dict[str, _Span]
    seal: str


def write_prepared(graph: Graph, record: dict[str, Any], path: Path) -> str:
    """Write the graph and its metadata `record` atomically, and return the file's checksum (seal).
    Equal graphs with equal records give equal bytes. If `path` lies in a store, `record` needs the
    graph's "split": readers compare it with the path."""
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
    contiguous = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    sums = {name: _sum(array.reshape(-1).view(np.uint8).data) for name, array in contiguous.items()}
    names: dict[str, Any] = {"name": graph.name, "collection": graph.collection.name}
    if graph.options is not None and graph.option_names != vocabulary.OPTION_NAMES:
        names["option_names"] = graph.option_names
    if graph.label_source:
        names["label_source"] = graph.label_source
    text = json.dumps({**names, SEAL: NO_SEAL, SUMS: sums, **record})
    content = memoryview(save(contiguous, {RECORD: text}))
    start = 8 + int.from_bytes(content[:8], "little")
    header = bytes(content[:start])
    seal = _sum(header)
    with replace_file(path) as temporary, temporary.open("wb") as file:
        file.write(header.replace(_quoted(NO_SEAL), _quoted(seal), 1))
        file.write(content[start:])
    return seal


def read_record(path: Path) -> dict[str, Any]:
    """Return the metadata of a prepared graph without reading its arrays."""
    with _open(path) as file:
        return _read_header(path, file).record


def check_prepared(path: Path, seal: str | None = None) -> tuple[str, dict[str, Any]]:
    """Check every byte of a file; return its checksum (seal) and its metadata. Raises InputError if
    the file is missing or no prepared graph, if a byte differs from what was written, or if the
    file holds another graph than its path or `seal` says."""
    with _open(path) as file:
        header = _read_header(path, file, seal)
        for name, span in header.spans.items():
            _check_array(path, file, name, span)
        return header.seal, header.record


def read_prepared(path: Path, seal: str | None = None, *, is_checked: bool = False) -> Graph:
    """Read the graph; large arrays are mapped, so their values are read only when they are used.

    Args:
        seal: the checksum that the file must have; None accepts any.
        is_checked: skip the checksums of mapped arrays, because they were compared before.

    Raises:
        InputError: the file is missing, damaged or no prepared graph, or it holds another graph
            than its path or `seal` says.
    """
    with _open(path) as file:
        header = _read_header(path, file, seal)
        for name, span in header.spans.items():
            if span.is_mapped and not is_checked:
                _check_array(path, file, name, span)
        try:
            arrays = {name: _read_array(path, file, name, p) for name, p in header.spans.items()}
            return _build(header, arrays)
        except (LookupError, TypeError, ValueError) as error:
            raise _broken(path, f"{type(error).__name__}: {error}") from error


def _open(path: Path) -> BinaryIO:
    try:
        return open_regular(path)
    except FileNotFoundError as error:
        raise InputError(f"{path}: there is no such file. Prepare the data again.") from error


def _build(header: _Header, arrays: dict[str, np.ndarray]) -> Graph:
    if "tiles" in arrays:
        configs: Codebook | np.ndarray = arrays["tiles"]
    else:
        configs = Codebook(*(arrays[name] for name in ("layouts", "starts", "codes", "rows")))
        check_codebook(configs, with_codes=not header.spans["codes"].is_mapped)
    return Graph(
        name=header.record["name"],
        collection=collection(header.record["collection"]),
        node_features=arrays["node_features"],
        node_opcodes=arrays["node_opcodes"],
        edges=arrays["edges"].astype(np.int64),
        configurable=arrays["configurable"].astype(np.int64),
        configs=configs,
        runtimes=arrays.get("runtimes"),
        options=arrays.get("options"),
        option_names=tuple(header.record.get("option_names", vocabulary.OPTION_NAMES)),
        label_source=str(header.record.get("label_source", TIMED)),
    )


def _read_header(path: Path, file: BinaryIO, wanted: str | None = None) -> _Header:
    """Return the header of a prepared graph. Raises InputError if the header's checksum or the
    file's size is wrong, if the file lies at the path of another graph in a store, or if the
    header's checksum is not `wanted` (None: any)."""
    size = os.fstat(file.fileno()).st_size
    length = file.read(8)
    start = 8 + int.from_bytes(length, "little")
    if len(length) < 8 or start > min(size, MAX_HEADER):
        raise _broken(path, "it has no header")
    text = file.read(start - 8)
    try:
        entries = json.loads(text)
        record = json.loads(entries.pop("__metadata__")[RECORD])
        seal, sums = record.pop(SEAL), record.pop(SUMS)
        spans = {name: _read_span(name, entry, start, sums) for name, entry in entries.items()}
        end = max(span.last for span in spans.values())
        sound = _sum((length + text).replace(_quoted(seal), _quoted(NO_SEAL), 1)) == seal
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
        raise _broken(
            path, f"its header cannot be read ({type(error).__name__}: {error})"
        ) from error
    if not sound or end != size:
        raise _broken(path, f"its header is damaged, or it has {size} bytes, expected {end}")
    if wanted not in (None, seal):
        raise _broken(path, "it is not the file that was written for this graph")
    _check_identity(path, record)
    return _Header(record, spans, seal)


def _read_span(name: str, entry: dict[str, Any], start: int, sums: dict[str, str]) -> _Span:
    shape, (first, last) = tuple(entry["shape"]), entry["data_offsets"]
    if entry["dtype"] not in ARRAYS[name]:
        raise ValueError(f"{name} is {entry['dtype']}")
    dtype = np.dtype(DTYPES[entry["dtype"]])
    if not all(type(number) is int and number >= 0 for number in (*shape, first, last)):
        raise ValueError(f"{name} has the shape {shape} and lies from {first} to {last}")
    if math.prod(shape) * dtype.itemsize != last - first:
        raise ValueError(f"{name} of shape {shape} has {last - first} bytes")
    return _Span(dtype, shape, start + first, start + last, sums[name])


def _check_identity(path: Path, record: dict[str, Any]) -> None:
    """Raise InputError if the file lies at the path of another graph in a store."""
    expected = parse_path(path)
    if expected is None:
        return
    found = (record.get("collection"), record.get("split"), record.get("name"))
    if found != (expected.collection.name, expected.split, expected.name):
        raise _broken(path, f"it is of the graph {' '.join(map(str, found))}")


def _sum(content: bytes | memoryview) -> str:
    return hashlib.sha256(content).hexdigest()


def _quoted(seal: str) -> bytes:
    """Return the bytes of the seal's key and value in the header: JSON inside a JSON string."""
    return rf"\"{SEAL}\": \"{seal}\"".encode()


def _read_array(path: Path, file: BinaryIO, name: str, span: _Span) -> np.ndarray:
    if span.is_mapped:
        return np.memmap(file, span.dtype, "r", span.first, span.shape).view(np.ndarray)
    file.seek(span.first)
    content = file.read(span.last - span.first)
    _compare(path, name, _sum(content), span)
    return np.frombuffer(content, span.dtype).reshape(span.shape)


def _check_array(path: Path, file: BinaryIO, name: str, span: _Span) -> None:
    """Compare an array with its checksum block by block, so that it is never whole in memory."""
    file.seek(span.first)
    digest, left = hashlib.sha256(), span.last - span.first
    while left > 0 and (block := file.read(min(left, BLOCK_BYTES))):
        digest.update(block)
        left -= len(block)
    _compare(path, name, digest.hexdigest(), span)


def _compare(path: Path, name: str, found: str, span: _Span) -> None:
    if found != span.sum:
        raise _broken(path, f"its array {name} is not what was written")


def _broken(path: Path, why: str) -> InputError:
    return InputError(f"{path}: expected a prepared graph, but {why}. Prepare the data again.")


class GraphCache:
    """A cache of graphs: a graph that is read is kept if all kept graphs fit `max_bytes`."""

    def __init__(self, max_bytes: int = 1 << 30) -> None:
        self._graphs: dict[tuple[Path, Preparation], Graph] = {}
        self._budget = Budget(max_bytes)

    def read(
        self,
        path: Path,
        preparation: Preparation = AS_IT_IS,
        seal: str | None = None,
        *,
        is_checked: bool = False,
    ) -> Graph:
        """Return the graph of a file, pruned by `preparation`, from the cache if possible. The file
        must have the checksum `seal` (None: any). `is_checked` is as in read_prepared."""
        key = path, preparation
        if key in self._graphs:
            return self._graphs[key]
        graph = preparation.prune(read_prepared(path, seal, is_checked=is_checked))
        if self._budget.take(graph.nbytes):
            self._graphs[key] = graph
        return graph


class LazyGraphs(Sequence[Graph]):
    """A sequence of graphs: whenever graph n is accessed, function n of `readers` reads it."""

    def __init__(self, readers: Sequence[Callable[[], Graph]]) -> None:
        self._readers = readers

    def __len__(self) -> int:
        return len(self._readers)

    @overload
    def __getitem__(self, index: int) -> Graph: ...
    @overload
    def __getitem__(self, index: slice) -> "LazyGraphs": ...
    def __getitem__(self, index: int | slice) -> "Graph | LazyGraphs":
        if isinstance(index, slice):
            return LazyGraphs(self._readers[index])
        return self._readers[index]()
