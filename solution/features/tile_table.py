"""A row for each configuration of a tile graph: the tile, the kernel, and how they fit.

The table feeds LightGBM as it is and the tile net after scaling. Tile sizes mean little alone; they
are set against the tensor that they cut up: how many tiles, how much is wasted at the borders, how
much work there is for each byte that is moved.
"""

from collections.abc import Iterable

import numpy as np
import polars as pl

from solution import vocabulary
from solution.features.padding import tensor_ranks
from solution.features.work import contracted_size, num_bytes, num_elements, num_operations
from solution.graph import Graph
from solution.vocabulary import MAX_RANK, OPCODE_IDS, TILE_BLOCKS

# Opcodes that set the shape of a kernel's loops are counted one by one, the rest together.
COUNTED = (
    "parameter",
    "constant",
    "broadcast",
    "convolution",
    "dot",
    "reduce",
    "reduce-window",
    "reshape",
    "transpose",
    "copy",
    "bitcast",
    "fusion",
    "select",
    "exponential",
    "maximum",
    "multiply",
    "add",
)


def tile_table(graph: Graph) -> pl.DataFrame:
    """Float32 columns, a row for each configuration in order; sizes are logarithms."""
    output = output_node(graph)
    context = {**_describe_kernel(graph, output), **_count_opcodes(graph)}
    tiles = pl.DataFrame(graph.tiles.astype(np.float64), schema=_config_names())
    frame = tiles.lazy().with_columns(*_fit(graph, output)).with_columns(*_reuse())
    sizes = [name for block in TILE_BLOCKS for name in _block_names(block)]
    logs = [
        pl.col(name).clip(0).log1p() for name in [*sizes, "tiles", "tile_volume", "reduction_tiles"]
    ]
    constants = [pl.lit(value).alias(name) for name, value in context.items()]
    return frame.with_columns(*logs).with_columns(*constants).cast(pl.Float32()).collect()


def output_node(graph: Graph) -> int:
    """The node whose tensor the output tile cuts up.

    The largest tensor that nobody in the kernel consumes; where that is a tuple, its largest part;
    where there is none, the largest tensor at all.
    """
    ranks, elements = tensor_ranks(graph), num_elements(graph)
    consumed = np.zeros(graph.num_nodes, bool)
    consumed[graph.edges[:, 1]] = True
    last = ~consumed
    parts = np.zeros(graph.num_nodes, bool)
    parts[graph.edges[last[graph.edges[:, 0]], 1]] = True
    for candidates in (last & (ranks > 0), parts & (ranks > 0), ranks > 0):
        if candidates.any():
            return int(np.argmax(np.where(candidates, elements, -1)))
    return graph.num_nodes - 1


def _block_names(block: str) -> list[str]:
    return [f"{block}_{slot}" for slot in (*range(MAX_RANK), "sum", "product")]


def _config_names() -> list[str]:
    return [name for block in TILE_BLOCKS for name in _block_names(block)]


def _fit(graph: Graph, output: int) -> Iterable[pl.Expr]:
    """How the tile fits the output tensor and the kernel window."""
    sizes = _physical_sizes(graph, output)
    rank = max(1, int(tensor_ranks(graph)[output]))
    counts, wastes = [], []
    for slot in range(MAX_RANK):
        size = max(1.0, float(sizes[slot]))
        tile = pl.col(f"output_{slot}").clip(1, size)
        count = (size / tile).ceil()
        counts.append(count)
        wastes.append(count * tile / size)
        yield (tile / size).log().alias(f"share_{slot}")
        yield count.log().alias(f"tiles_{slot}")
    for place in range(3):  # counted from the contiguous dimension, whatever the rank
        slot = rank - 1 - place
        known = slot >= 0
        yield (pl.col(f"output_{slot}").log1p() if known else pl.lit(0.0)).alias(f"minor_{place}")
        yield (counts[slot].log() if known else pl.lit(0.0)).alias(f"minor_tiles_{place}")
    yield _product(counts).alias("tiles")
    yield _product(wastes).log().alias("waste")
    volume = _product([pl.col(f"output_{slot}").clip(1) for slot in range(rank)])
    yield volume.alias("tile_volume")
    depth = float(contracted_size(graph).max())
    given = pl.col("input_0") > 0
    step = pl.when(given).then(pl.col("input_0").clip(1, depth)).otherwise(depth)
    yield (depth / step).ceil().alias("reduction_tiles")
    yield pl.when(given).then(pl.col("input_product")).otherwise(depth).alias("step")
    yield pl.col("kernel_product").clip(1).log().alias("kernel_volume")


def _physical_sizes(graph: Graph, node: int) -> np.ndarray:
    """The sizes (6,) of the node's dimensions from major to minor, the order that tiles have."""
    rank = int(tensor_ranks(graph)[node])
    layout = graph.node_features[node, vocabulary.NODE_LAYOUT][:rank].astype(np.int64)
    sizes = graph.node_features[node, vocabulary.SHAPE_DIMENSIONS].astype(np.float64)
    if sorted(layout) == list(range(rank)):
        sizes[:rank] = sizes[layout[::-1]]
    return sizes


def _reuse() -> Iterable[pl.Expr]:
    """Arithmetic intensity of a tile seen as a matrix product: rows x columns x step."""
    columns = pl.col("minor_0").exp() - 1  # minor_0 is log1p of the tile
    columns = columns.clip(1)
    rows = (pl.col("tile_volume") / columns).clip(1)
    step = pl.col("step").clip(1)
    footprint = rows * columns + rows * step + columns * step
    yield (rows * columns * step / footprint).log().alias("intensity")
    yield footprint.log().alias("footprint")
    yield (columns * step).log().alias("right_footprint")
    yield (rows * step).log().alias("left_footprint")
    yield (pl.col("tiles") * pl.col("reduction_tiles")).log().alias("steps")
    yield step.log().alias("step")


def _product(factors: list[pl.Expr]) -> pl.Expr:
    result = factors[0]
    for factor in factors[1:]:
        result = result * factor
    return result


def _describe_kernel(graph: Graph, output: int) -> dict[str, float]:
    sizes = graph.node_features[output, vocabulary.SHAPE_DIMENSIONS].astype(np.float64)
    window = graph.node_features[:, vocabulary.WINDOW_SIZE].max(axis=0)
    elements = num_elements(graph)
    parameters = graph.node_opcodes == OPCODE_IDS["parameter"]
    values = {f"output_size_{slot}": float(np.log1p(sizes[slot])) for slot in range(MAX_RANK)}
    values |= {f"window_{slot}": float(window[slot]) for slot in range(4)}
    return values | {
        "output_rank": float(tensor_ranks(graph)[output]),
        "output_elements": float(np.log(elements[output])),
        "largest_elements": float(np.log(elements.max())),
        "parameter_bytes": float(np.log1p(num_bytes(graph)[parameters].sum())),
        "contracted_size": float(np.log(contracted_size(graph).max())),
        "operations": float(np.log(num_operations(graph).sum())),
        "nodes": float(np.log(graph.num_nodes)),
    }


def _count_opcodes(graph: Graph) -> dict[str, float]:
    counts = np.bincount(graph.node_opcodes, minlength=vocabulary.NUM_OPCODES)
    named = {f"count_{name}": float(counts[OPCODE_IDS[name]]) for name in COUNTED}
    return named | {"count_other": float(counts.sum() - sum(named.values()))}
