"""Write a record as an npz file, in the folder structure of the competition's download."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from solution.data.hlo.records import Record
from solution.data.npz import LABEL_SOURCE, OPTION_NAMES, OPTIONS
from solution.data.npz_arrays import LAYOUTS
from solution.data.npz_writer import Blocks, write_npz
from solution.domain.codebook import Codebook

BLOCK_VALUES = 1 << 22  # values of the config tensor that are expanded at once: 16 MB


def write_record(record: Record, folder: Path, split: str | None = None) -> Path:
    """Write the graph below `folder`, atomically, the layouts a block at a time.

    Args:
        split: train, valid or test; by default train if there are labels, otherwise test.
    """
    graph = record.graph
    chosen = split or ("test" if graph.runtimes is None else "train")
    path = folder / "npz" / graph.collection.folder / chosen / f"{graph.name}.npz"
    return write_npz(_arrays(record), path)


def _arrays(record: Record) -> dict[str, np.ndarray | Blocks]:
    """Return the arrays with the competition's names and types."""
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
