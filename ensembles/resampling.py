"""Means over graphs that are drawn again, and the score tables that they are drawn from."""

from collections.abc import Iterator

import numpy as np
import polars as pl

from solution.domain.collection import NAMES
from solution.system.errors import InputError

CHUNK_CELLS = 4_000_000  # of (resamples, graphs) at a time


def resample_means(scores: np.ndarray, resamples: int, seed: int) -> np.ndarray:
    """The means (resamples, members) of rows of `scores` (graphs, members) drawn with replacement.

    Every resample draws as many graphs as there are, the same ones for all members.
    """
    graphs = len(scores)
    generator = np.random.default_rng(seed)
    means = np.empty((resamples, scores.shape[1]))
    step = max(1, CHUNK_CELLS // graphs)
    for start in range(0, resamples, step):
        count = min(step, resamples - start)
        drawn = generator.integers(graphs, size=(count, graphs), dtype=np.int32)
        drawn += np.arange(count, dtype=np.int32)[:, None] * np.int32(graphs)
        times = np.bincount(drawn.ravel(), minlength=count * graphs).reshape(count, graphs)
        means[start : start + count] = times @ scores / graphs
    return means


def iterate_collections(table: pl.DataFrame) -> Iterator[tuple[str, int, list[str], np.ndarray]]:
    """Collection, number of graphs, members in the table's order, scores (graphs, members)."""
    present = table["collection"].unique(maintain_order=True).to_list()
    for collection in sorted(present, key=lambda n: (NAMES.index(n) if n in NAMES else 9, n)):
        own = table.filter(pl.col("collection") == collection)
        wide = own.pivot("member", index="graph", values="score").sort("graph")
        members = [name for name in wide.columns if name != "graph"]
        for name in members:
            missing = wide.filter(pl.col(name).is_null())["graph"]
            if len(missing):
                raise InputError(
                    f"{name} has no score for {collection}:{missing[0]}, and {len(missing) - 1} "
                    "more that others have. Paired statistics need the same graphs for all."
                )
        yield collection, len(wide), members, wide.select(members).to_numpy()
