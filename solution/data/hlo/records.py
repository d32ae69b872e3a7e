"""Tuning records as graphs: the nodes of a module, its configurations, their runtimes.

Runs that failed are left out, and where some runs were timed, those that were not. Where none was,
the graph has no labels, as in a test split. A module without any run is a layout graph with one
configuration, in which the compiler chooses everything.

Source: tuning_data_iterator.cc of google-research-datasets/tpu_graphs. Where a record has no
default run, which it asks for, a tile's runtimes are divided by the shortest: no score depends on
it.
"""

from collections import Counter
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import lru_cache
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np

from solution.data.hlo.messages import MESSAGES, read_records
from solution.data.hlo.nodes import Nodes, find_configurable, first, read_nodes, summarise
from solution.data.npz import find_option_set
from solution.domain.codebook import Codebook
from solution.domain.codebook_encoder import LayoutEncoder, LayoutValueError
from solution.domain.collection import Collection, collection
from solution.domain.graph import Graph, InvalidGraphError
from solution.domain.vocabulary import (
    LAYOUT_TENSORS,
    LAYOUT_UNSET,
    MAX_RANK,
    NUM_LAYOUT_FEATURES,
)
from solution.system.errors import InputError
from solution.system.names import make_safe
from solution.system.progress import track

DEFAULT_COLLECTIONS = {"layout": "layout:xla:random", "tile": "tile:xla"}
NO_TIME = 1  # nanoseconds: up to here a run was not timed
BLOCK_RUNS = 256  # whose layouts are in memory as numbers at once


@dataclass(frozen=True, eq=False)
class Record:
    """A tuning record that can be used, and what a Graph does not keep of it."""

    graph: Graph
    module: Any  # the message Module
    splits: np.ndarray  # (1, s) int64: where the main computations begin and end
    nanoseconds: np.ndarray  # (configs,) int64; zeros where there are no labels
    normalizer: int  # nanoseconds that a tile's runtimes are divided by
    left_out: int  # runs that are not among the configurations


def read_module_file(path: Path, collection_name: str | None = None) -> list[Record]:
    """Read every record of a protobuf file.

    Args:
        collection_name: what layout graphs belong to; tiles are of tile:xla.

    Raises:
        InputError: no such protobuf, truncated, or a record that is no graph.
    """
    return make_records(path, read_records(path), collection_name)


def make_records(
    path: Path, messages: Sequence[Any], collection_name: str | None = None
) -> list[Record]:
    """The same of messages TuningRecord that were read from the file."""
    names = _names(path, messages)
    records = []
    named = list(zip(names, messages, strict=True))
    bar = track(named, f"Reading {path.name}") if len(named) > 1 else nullcontext(iter(named))
    with bar as tracked:
        for place, (name, message) in enumerate(tracked):
            try:
                records.append(_read_record(name, message, collection_name))
            except InvalidGraphError as error:
                raise InputError(
                    f"{path}: record {place} ({name}): " + "; ".join(error.defects) + ". Expected "
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
    """Layout or tile, the runs that are its configurations, and how many tell theirs at all."""
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
    """(configs, 24) float32: the sizes, their sum and product, for kernel, output and input."""
    rows = []
    for run in runs:
        sizes = run.tile.sizes
        blocks = (sizes.kernel_bounds, sizes.output_bounds, sizes.input_bounds)
        rows.append([number for block in blocks for number in _summarise_tile(block)])
    return np.array(rows, np.int64).astype(np.float32)


def _summarise_tile(bounds: Sequence[int]) -> list[int]:
    """As of the numbers of a node, but the product of none is 0."""
    return summarise(bounds, MAX_RANK) if len(bounds) else [0] * (MAX_RANK + 2)


def _options(message: Any, runs: Sequence[Any]) -> dict[str, Any]:
    """Graph's fields for options, all the compiler's own where a run has none."""
    if not any(run.HasField("options") for run in runs):
        return {}
    names = find_option_set(message.option_names)  # of the CPU where the record does not say
    if names is None:
        told = ", ".join(message.option_names)
        raise InvalidGraphError([f"its options are {told}, which are those of no target"])
    rows = [list(run.options.choices) for run in runs]
    if any(len(row) > len(names) for row in rows):
        raise InvalidGraphError([f"a run has more than {len(names)} options"])
    padded = [row + [0] * (len(names) - len(row)) for row in rows]  # options that came later
    choices = np.array(padded, np.int64).clip(-1, 127).astype(np.int8)
    return {"options": choices, "option_names": names}


def _layouts(runs: Sequence[Any], nodes: int) -> Codebook:
    """The codebook of the runs; of none, one configuration that leaves all to the compiler."""
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
    """The 18 numbers of each configurable node."""
    given = run.layout.layouts.nodes
    if len(given) != nodes:
        raise InvalidGraphError([f"a run has layouts for {len(given)} of {nodes} nodes"])
    return [_layout_row(node.SerializeToString()) for node in given]


@lru_cache(maxsize=1 << 16)  # few of the many are distinct: four times as fast
def _layout_row(data: bytes) -> tuple[int, ...]:
    tensors = MESSAGES["NodeLayout"].FromString(data).tensors
    if len(tensors) > len(LAYOUT_TENSORS):
        raise InvalidGraphError([f"a run has layouts for {len(tensors)} tensors of a node"])
    row = [slot for tensor in tensors for slot in first(tensor.dims, MAX_RANK, LAYOUT_UNSET)]
    return tuple(first(row, NUM_LAYOUT_FEATURES, LAYOUT_UNSET))


def _names(path: Path, messages: Sequence[Any]) -> list[str]:
    """The file's name for its only record; as in the competition, module and fingerprint for many.

    Names are made safe for a file system; equal ones are numbered until none is as another.
    """
    if len(messages) == 1:
        return [make_safe(path.stem)]
    names = [make_safe(f"{m.module.name}_{_signed(m.fingerprint):x}") for m in messages]
    counts = Counter(names)
    taken = {name for name in names if counts[name] == 1}
    return [
        name if counts[name] == 1 else _number(name, place, taken)
        for place, name in enumerate(names)
    ]


def _number(name: str, place: int, taken: set[str]) -> str:
    """The name with a number that makes it another than those `taken`, which it joins."""
    numbered = next(
        numbered for number in count(place) if (numbered := f"{name}_{number}") not in taken
    )
    taken.add(numbered)
    return numbered


def _signed(fingerprint: int) -> int:
    return fingerprint - (fingerprint >> 63 << 64)
