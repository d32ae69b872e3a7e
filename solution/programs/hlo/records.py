"""Convert tuning records to graphs: the nodes of a module, its configurations, their runtimes.

A tuning record is a module with runs. A run is one configuration with the time that was measured
for it, or an error. The graphs can be written as npz files, in the folder structure of the
competition's download.

Failed runs are left out. If some runs were timed, runs without a time are left out too. If no run
was timed, the graph has no labels, as in a test split. A module without runs becomes a layout graph
with one configuration, which sets no layout.

Source: tuning_data_iterator.cc of google-research-datasets/tpu_graphs, which requires a run of the
default configuration: its time divides a tile graph's runtimes. Here, if a record has no such run,
the shortest runtime divides them, which changes no score.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import lru_cache
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np

from solution.data.npz import (
    LABEL_SOURCE,
    OPTION_NAMES,
    OPTIONS,
    Blocks,
    find_option_set,
    write_npz,
)
from solution.data.npz_arrays import LAYOUTS
from solution.domain.codebook import Codebook, LayoutEncoder, LayoutValueError
from solution.domain.collection import Collection, collection
from solution.domain.graph import Graph, InvalidGraphError
from solution.domain.vocabulary import LAYOUT_TENSORS, LAYOUT_UNSET, MAX_RANK, NUM_LAYOUT_FEATURES
from solution.programs.hlo.messages import MESSAGES, read_records
from solution.programs.hlo.nodes import Nodes, find_configurable, first, read_nodes, summarise
from solution.system.errors import InputError
from solution.system.names import make_safe

DEFAULT_COLLECTIONS = {"layout": "layout:xla:random", "tile": "tile:xla"}
# nanoseconds: a run (one measured configuration) with at most this time counts as not timed
NO_TIME = 1
# maximum number of elements of the config tensor that are expanded at once: 16 MB
BLOCK_VALUES = 1 << 22
# maximum number of runs (measured configurations) whose layouts are expanded in memory at once
BLOCK_RUNS = 256


@dataclass(frozen=True, eq=False)
class Record:
    """A tuning record as a Graph, and data of the record that a Graph cannot hold."""

    graph: Graph
    module: Any  # the message Module
    splits: np.ndarray  # (1, s) int64: boundaries of the sections of nodes, see nodes.Nodes
    nanoseconds: np.ndarray  # (configs,) int64: runtimes; zeros if there are no labels
    normalizer: int  # nanoseconds by which a tile graph's runtimes are divided
    left_out: int  # runs that are not in the graph: failed, or without a time while others have one


def read_module_file(path: Path, collection_name: str | None = None) -> list[Record]:
    """Return a protobuf file's records as graphs of `collection_name` (default: layout:xla:random
    or tile:xla, by their kind). Raises InputError if the file is not such a protobuf, is truncated,
    or a record is not a graph."""
    return make_records(path, read_records(path), collection_name)


def make_records(
    path: Path, messages: Sequence[Any], collection_name: str | None = None
) -> list[Record]:
    """Return a file's TuningRecord messages as graphs, like read_module_file."""
    names = _names(path, messages)
    records = []
    named = list(zip(names, messages, strict=True))
    with _show_progress(path, named) as tracked:
        for number, (name, message) in enumerate(tracked):
            try:
                records.append(_read_record(name, message, collection_name))
            except InvalidGraphError as error:
                raise InputError(
                    f"{path}: record {number} ({name}): " + "; ".join(error.defects) + ". Expected "
                    "a sound module with its configurations. Write the file again, or leave the "
                    "record out."
                ) from error
    return records


def _read_record(name: str, message: Any, collection_name: str | None) -> Record:
    nodes = read_nodes(message.module)
    kind, runs, given = _usable(message.runs)
    found = _find_collection(kind, collection_name)
    nanoseconds = np.array([run.profile.compute_time_ns for run in runs], np.int64)
    if not len(nanoseconds):
        nanoseconds = np.zeros(1, np.int64)
    nanoseconds *= nanoseconds > NO_TIME
    normalizer = next((t for t, run in zip(nanoseconds, runs, strict=False) if run.is_default), 0)
    normalizer = int(normalizer or nanoseconds.min() or 1)
    configurable = np.empty(0, np.int64) if kind == "tile" else _configurable(message, nodes)
    divisor = normalizer if kind == "tile" else 1
    graph = Graph(
        name=name,
        collection=found,
        node_features=nodes.features,
        node_opcodes=nodes.opcodes,
        edges=nodes.edges,
        configurable=configurable,
        configs=read_tiles(runs) if kind == "tile" else _layouts(runs, len(configurable)),
        runtimes=nanoseconds / divisor if nanoseconds.any() else None,
        summed=nodes.summed,
        label_source=message.label_source,
        **_options(message, runs),
    )
    left_out = given - len(runs)
    return Record(graph, message.module, nodes.splits, nanoseconds, normalizer, left_out)


def _usable(runs: Sequence[Any]) -> tuple[str, list[Any], int]:
    """Return the runs' kind ("layout" or "tile"), the usable runs, and the number of all runs with
    a configuration. Usable are the timed runs or, if no run was timed, all that did not fail."""
    given = [run for run in runs if run.tile.HasField("sizes") or run.layout.HasField("layouts")]
    kinds = {run.WhichOneof("configuration") for run in given}
    if len(kinds) > 1:
        raise InvalidGraphError(["some of its runs give tiles, others layouts"])
    sound = [run for run in given if not run.error]
    timed = [run for run in sound if run.profile.compute_time_ns > NO_TIME]
    if given and not sound:
        raise InvalidGraphError([f"all of its {len(given)} runs failed"])
    return (kinds or {"layout"}).pop(), timed or sound, len(given)


def _find_collection(kind: str, name: str | None) -> Collection:
    found = collection(name or DEFAULT_COLLECTIONS[kind])
    if found.kind != kind:
        raise InvalidGraphError([f"it has {kind} configurations, not those of {found.name}"])
    return found


def _configurable(message: Any, nodes: Nodes) -> np.ndarray:
    if len(message.config_index_to_node):
        return np.array(message.config_index_to_node, np.uint64).astype(np.int64)
    return find_configurable(nodes.opcodes)


def read_tiles(runs: Sequence[Any]) -> np.ndarray:
    """Return tiles (configs, 24) float32: for the kernel, the output and the input, in this order,
    six sizes, their sum and their product."""
    rows = []
    for run in runs:
        sizes = run.tile.sizes
        blocks = (sizes.kernel_bounds, sizes.output_bounds, sizes.input_bounds)
        rows.append([number for block in blocks for number in _summarise_tile(block)])
    return np.array(rows, np.int64).astype(np.float32)


def _summarise_tile(bounds: Sequence[int]) -> list[int]:
    """Return six sizes, their sum and their product; eight zeros if there are no sizes."""
    return summarise(bounds, MAX_RANK) if len(bounds) else [0] * (MAX_RANK + 2)


def _options(message: Any, runs: Sequence[Any]) -> dict[str, Any]:
    """Return the fields of a Graph that hold compile options, with the default for each option that
    a run lacks; {} if no run has options."""
    if not any(run.HasField("options") for run in runs):
        return {}
    names = find_option_set(message.option_names)  # the CPU's options if the record names none
    if names is None:
        told = ", ".join(message.option_names)
        raise InvalidGraphError([f"its options are {told}, which no target has"])
    rows = [list(run.options.choices) for run in runs]
    if any(len(row) > len(names) for row in rows):
        raise InvalidGraphError([f"a run has more than {len(names)} options"])
    # older records lack options that were added later
    padded = [row + [0] * (len(names) - len(row)) for row in rows]
    choices = np.array(padded, np.int64).clip(-1, 127).astype(np.int8)
    return {"options": choices, "option_names": names}


def _layouts(runs: Sequence[Any], nodes: int) -> Codebook:
    """Return a Codebook of the layouts that the runs set at `nodes` configurable nodes. If there
    are no runs, it has one configuration that sets no layout."""
    encoder = LayoutEncoder(max(1, len(runs)), nodes)
    if not runs:
        encoder.add(np.full((1, nodes, NUM_LAYOUT_FEATURES), LAYOUT_UNSET, np.int8))
    try:
        for begin in range(0, len(runs), BLOCK_RUNS):
            block = [_layout_rows(run, nodes) for run in runs[begin : begin + BLOCK_RUNS]]
            encoder.add(np.array(block).reshape(len(block), nodes, NUM_LAYOUT_FEATURES))
    except LayoutValueError as error:
        raise InvalidGraphError(
            [f"run {error.index[0]} has the dimension {error.value}"]
        ) from error
    return encoder.finish()


def _layout_rows(run: Any, nodes: int) -> list[tuple[int, ...]]:
    """Return the 18 numbers of each configurable node's layouts in a run."""
    given = run.layout.layouts.nodes
    if len(given) != nodes:
        raise InvalidGraphError([f"a run has layouts for {len(given)} of {nodes} nodes"])
    return [_layout_row(node.SerializeToString()) for node in given]


# few layouts are distinct: with this cache, reading takes a quarter of the time
@lru_cache(maxsize=1 << 16)
def _layout_row(data: bytes) -> tuple[int, ...]:
    tensors = MESSAGES["NodeLayout"].FromString(data).tensors
    if len(tensors) > len(LAYOUT_TENSORS):
        raise InvalidGraphError([f"a run has layouts for {len(tensors)} tensors of a node"])
    row = [slot for tensor in tensors for slot in first(tensor.dims, MAX_RANK, LAYOUT_UNSET)]
    return tuple(first(row, NUM_LAYOUT_FEATURES, LAYOUT_UNSET))


def _show_progress(path: Path, named: list[Any]) -> AbstractContextManager[Iterator[Any]]:
    """Return a context manager whose value iterates over `named`; show progress if there are
    several records."""
    if len(named) == 1:
        return nullcontext(iter(named))
    # Imported only here, because it imports rich, which a file with one record does not need.
    from solution.system.progress import track

    return track(named, f"Reading {path.name}")


def _names(path: Path, messages: Sequence[Any]) -> list[str]:
    """Return the names of a file's records, safe for file systems: the file's name for a single
    record, otherwise the module's name and fingerprint, with a number if several are equal."""
    if len(messages) == 1:
        return [make_safe(path.stem)]
    names = [make_safe(f"{m.module.name}_{_signed(m.fingerprint):x}") for m in messages]
    counts = Counter(names)
    taken = {name for name in names if counts[name] == 1}
    return [
        name if counts[name] == 1 else _number(name, position, taken)
        for position, name in enumerate(names)
    ]


def _number(name: str, position: int, taken: set[str]) -> str:
    """Return `name` with a number appended so that it is not in `taken`, and add it to `taken`."""
    numbered = next(
        numbered for number in count(position) if (numbered := f"{name}_{number}") not in taken
    )
    taken.add(numbered)
    return numbered


def _signed(fingerprint: int) -> int:
    return fingerprint - (fingerprint >> 63 << 64)


def write_record(record: Record, folder: Path, split: str | None = None) -> Path:
    """Write a record's graph as npz below `folder`, atomically, and return its path. `split`:
    train, valid or test; by default train with labels, else test."""
    graph = record.graph
    chosen = split or ("test" if graph.runtimes is None else "train")
    path = folder / "npz" / graph.collection.folder / chosen / f"{graph.name}.npz"
    return write_npz(_arrays(record), path)


def _arrays(record: Record) -> dict[str, np.ndarray | Blocks]:
    """Return the arrays of the npz file, with the competition's names and types."""
    graph = record.graph
    arrays: dict[str, np.ndarray | Blocks] = {
        "node_feat": graph.node_features,
        "node_opcode": graph.node_opcodes,
        "edge_index": graph.edges,
        "config_runtime": record.nanoseconds,
    }
    if graph.options is not None:
        arrays |= {OPTIONS: graph.options, OPTION_NAMES: np.array(graph.option_names)}
    if graph.label_source:
        arrays[LABEL_SOURCE] = np.array(graph.label_source)
    if graph.collection.kind == "layout":
        return arrays | {
            "node_config_ids": graph.configurable,
            "node_splits": record.splits,
            LAYOUTS: Blocks(graph.layouts.shape, np.dtype("<f4"), _expand(graph.layouts)),
        }
    return arrays | {
        "config_feat": graph.tiles,
        "config_runtime_normalizers": np.full(graph.num_configs, record.normalizer, np.int64),
    }


def _expand(codebook: Codebook) -> Iterator[np.ndarray]:
    """Yield the config tensor (configs, configurable, 18), a few configurations at a time."""
    configs, nodes, slots = codebook.shape
    step = max(1, BLOCK_VALUES // max(1, nodes * slots))
    for begin in range(0, configs, step):
        yield codebook.layouts[codebook.pairs(codebook.rows[begin : begin + step])]
