"""A cache of computed embeddings with bounded memory; new entries displace old ones.

It is direct-mapped: an entry has exactly one possible slot, given by a hash of its key.
"""

import hashlib

import numpy as np
import torch
from torch import Tensor

from solution.domain.mixing import mix


class EmbeddingTable:
    """Embeddings (width,) float32 of (graph, configuration, segment), in main memory.

    Args:
        max_bytes: of keys and embeddings together.
    """

    def __init__(self, width: int, max_bytes: int) -> None:
        self.capacity = max(1, max_bytes // (4 * width + 8))
        # np.zeros: the system allocates a page only when it is written.
        self._keys = np.zeros(self.capacity, np.uint64)  # 0: empty
        self._values = np.zeros((self.capacity, width), np.float32)

    def read(self, graph: int, configs: np.ndarray, segments: int) -> tuple[Tensor, Tensor]:
        """Return whether each entry is known, and its embedding, else 0.

        Shapes: configs (k,) -> (k, segments) bool, (k, segments, width).
        """
        keys = _hash(graph, configs[:, None], np.arange(segments))
        slots = self._slots(keys)
        known = self._keys[slots] == keys
        values = np.where(known[..., None], self._values[slots], np.float32(0))
        return torch.from_numpy(known), torch.from_numpy(values)

    def write(self, graph: int, configs: np.ndarray, segment: int, values: Tensor) -> None:
        """Store the embeddings `values` (k, width) of one segment in the configurations (k,)."""
        keys = _hash(graph, configs, np.array([segment]))
        slots = self._slots(keys)
        # If two entries want one slot, both assignments keep the last one.
        self._keys[slots] = keys
        self._values[slots] = values.detach().float().cpu().numpy()

    def state(self) -> dict[str, Tensor]:
        """Return the entries for a checkpoint."""
        used = np.flatnonzero(self._keys)
        return {
            "slots": torch.from_numpy(used),
            "keys": torch.from_numpy(self._keys[used].view(np.int64)),
            "values": torch.from_numpy(self._values[used]),
        }

    def restore(self, state: dict[str, Tensor]) -> None:
        """Restore the entries from `state` of a table of the same size."""
        slots = state["slots"].numpy()
        self._keys[slots] = state["keys"].numpy().view(np.uint64)
        self._values[slots] = state["values"].numpy()

    def _slots(self, keys: np.ndarray) -> np.ndarray:
        # all keys are odd
        return ((keys >> np.uint64(1)) % np.uint64(self.capacity)).astype(np.int64)


def name_graph(collection: str, name: str) -> int:
    """Return a 64-bit number for a graph."""
    digest = hashlib.blake2b(f"{collection}/{name}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little")


def _hash(graph: int, configs: np.ndarray, segments: np.ndarray) -> np.ndarray:
    """Return 64-bit keys, never 0; collisions are negligible."""
    key = mix(np.uint64(graph) ^ mix(configs.astype(np.uint64)))
    return mix(key ^ mix(segments.astype(np.uint64))) | np.uint64(1)
