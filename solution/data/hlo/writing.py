"""Write a record as an npz file of the competition, where its download has it."""

import zipfile
from pathlib import Path

import numpy as np

from solution.data.hlo.records import Record
from solution.data.npz import LAYOUTS
from solution.domain.codebook import Codebook
from solution.system.files import replace_file

BLOCK_VALUES = 1 << 22  # of the config tensor that are expanded at once: 16 MB


def write_record(record: Record, folder: Path, split: str | None = None) -> Path:
    """Write the graph below `folder`, atomically, the layouts a block at a time.

    Args:
        split: train, valid or test; by default train where there are labels, test where not.
    """
    graph = record.graph
    chosen = split or ("test" if graph.runtimes is None else "train")
    path = folder / "npz" / graph.collection.folder / chosen / f"{graph.name}.npz"
    with (
        replace_file(path) as temporary,
        zipfile.ZipFile(temporary, "w", zipfile.ZIP_DEFLATED) as archive,
    ):
        for name, array in _arrays(record).items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, array, allow_pickle=False)
        if graph.collection.kind == "layout":
            _write_layouts(archive, graph.layouts)
    return path


def _arrays(record: Record) -> dict[str, np.ndarray]:
    """All but the layouts, by the competition's names and in its types."""
    graph = record.graph
    arrays = {
        "node_feat": graph.node_features,
        "node_opcode": graph.node_opcodes,
        "edge_index": graph.edges,
        "config_runtime": record.nanoseconds,
    }
    if graph.collection.kind == "layout":
        return arrays | {"node_config_ids": graph.configurable, "node_splits": record.splits}
    return arrays | {
        "config_feat": graph.tiles,
        "config_runtime_normalizers": np.full(graph.num_configs, record.normalizer, np.int64),
    }


def _write_layouts(archive: zipfile.ZipFile, codebook: Codebook) -> None:
    """The config tensor (configs, configurable, 18) float32."""
    configs, nodes, slots = codebook.shape
    step = max(1, BLOCK_VALUES // max(1, nodes * slots))
    with archive.open(f"{LAYOUTS}.npy", "w", force_zip64=True) as member:
        header = {"descr": "<f4", "fortran_order": False, "shape": codebook.shape}
        np.lib.format.write_array_header_1_0(member, header)
        for begin in range(0, configs, step):
            rows = codebook.rows[begin : begin + step]
            member.write(codebook.layouts[codebook.pairs(rows)].astype("<f4").tobytes())
