"""Build the feature table of a tile graph, a row per configuration: tile, kernel, how they fit.

LightGBM reads the table as it is, the tile net after scaling. Tile sizes alone mean little. They
are compared with the tiled tensor: number of tiles, work wasted at the borders, work per byte
moved, data that fits the caches. Bounds that count a TPU's register tiles are first converted to
elements (solution.features.tile.tiling).

The columns KERNEL_FEATURES describe the kernel and are the same in every row. Bytes of nodes are
summed, averaged and maximised by groups of opcodes, so that trees can tell kernels that move data
from kernels that compute.
"""

import numpy as np

from solution.domain import vocabulary
from solution.domain.graph import Graph
from solution.domain.vocabulary import LANES, MAX_RANK, OPCODE_IDS, SUBLANES, TILE_BLOCKS
from solution.features.column import Feature, as_rows, numbered
from solution.features.operations import (
    contracted_size,
    num_bytes,
    num_elements,
    num_operations,
    tensor_ranks,
)
from solution.features.tile import loops, traffic
from solution.features.tile.fusions import inline_fusions
from solution.features.tile.tiling import REDUCTION, Tiling, find_tiling

# Opcodes that determine a kernel's loops are counted separately, the others together.
COUNTED = (
    "parameter", "constant", "broadcast", "convolution", "dot", "reduce", "reduce-window",
    "reshape", "transpose", "copy", "bitcast", "select", "exponential", "maximum", "multiply",
    "add",
)  # fmt: skip
GROUPS = {
    "data": ("parameter", "constant", "iota"),
    "moving": ("broadcast", "reshape", "transpose", "copy", "bitcast", "slice", "pad", "reverse",
               "concatenate", "gather", "scatter", "dynamic-slice", "dynamic-update-slice"),
    "summing": ("dot", "convolution", "reduce", "reduce-window"),
    "slow": ("exponential", "exponential-minus-one", "log", "log-plus-one", "tanh", "logistic",
             "power", "sqrt", "rsqrt", "cbrt", "divide", "sine", "cosine", "erf", "remainder"),
}  # fmt: skip
OTHER = "other"  # group of all other opcodes, which are element-wise
WINDOWS = 4  # number of a window's dimensions that the table describes

KERNEL_FEATURES = (
    *numbered("output_size", "log1p elements", "the shape in its logical order", MAX_RANK),
    *numbered("window", "elements", "the window of a convolution or pooling", WINDOWS),
    Feature("output_rank", "dimensions", "number of meaningful bounds of a tile"),
    Feature("output_elements", "log elements", "elements of the tiled tensor"),
    Feature("largest_elements", "log elements", "the largest tensor, which may be reduced"),
    Feature("parameter_bytes", "log1p bytes", "bytes of all parameters, which must be read"),
    Feature("contracted_size", "log terms", "products that a dot or convolution sums"),
    Feature("operations", "log operations", "work of all nodes"),
    Feature("intensity_kernel", "log operations per byte", "work over bytes read and written"),
    Feature("nodes", "log count", "nodes of the kernel"),
    Feature("in_registers", "0 or 1", "bounds count TPU register tiles, not elements"),
    *(Feature(f"count_{name}", "count", f"{name} nodes") for name in (*COUNTED, OTHER)),
    *(Feature(f"{group}_{how}", "log1p bytes", f"{how} of the output tensors of {group} nodes")
      for group in (*GROUPS, OTHER) for how in ("sum", "mean", "max")),
)  # fmt: skip
MINOR = 3  # number of most minor dimensions that the columns minor_* and minor_tiles_* describe

_BLOCKS = {
    "kernel": "the tile of a convolution's kernel",
    "output": "the tile of the tiled tensor",
    "input": "the tile of the input; its first bound divides the loop of a sum",
}
CONFIGURATION = tuple(
    Feature(f"{block}_{slot}", "log1p as given", f"{what}: {_what}")
    for block, what in _BLOCKS.items()
    for slot, _what in (
        *((bound, f"bound {bound}") for bound in range(MAX_RANK)),
        ("sum", "sum of the bounds"),
        ("product", "product of the bounds"),
    )
)
FIT = (
    *numbered("share", "log share", "the tile over the tensor along a dimension", MAX_RANK),
    *numbered("tiles", "log count", "tiles along a dimension", MAX_RANK),
    *numbered("minor", "log1p elements", "the tile, counted from the contiguous dimension", MINOR),
    *numbered("minor_tiles", "log count", "tiles, counted from the contiguous dimension", MINOR),
    Feature("tiles", "log1p count", "each tile costs a start"),
    Feature(
        "waste", "log ratio", "elements of all tiles over the tensor's: work beyond the borders"
    ),
    Feature("waste_minor", "log ratio", "the same along the contiguous dimension"),
    Feature("waste_second", "log ratio", "the same along the second minor dimension"),
    Feature("lanes_waste", "log ratio", "the tile padded to 128 lanes over itself"),
    Feature("sublanes_waste", "log ratio", "the tile padded to 8 sublanes over itself"),
    Feature("tile_volume", "log1p elements", "elements of a tile"),
)
REUSE = (
    Feature("intensity", "log ratio", "multiply-adds of a tile over the elements it touches"),
    Feature("footprint", "log elements", "elements that a tile touches, as a matrix product"),
    Feature("right_footprint", "log elements", "elements of the right operand in it"),
    Feature("left_footprint", "log elements", "elements of the left operand in it"),
    Feature("steps", "log count", "tiles times blocks of a sum"),
    Feature("step", "log terms", "terms in a block of a sum"),
)
FEATURES = (*CONFIGURATION, *FIT, *REUSE, *loops.FEATURES, *traffic.FEATURES, *KERNEL_FEATURES)


def _describe_kernel(graph: Graph, tiling: Tiling) -> dict[str, float]:
    sizes = graph.node_features[tiling.node, vocabulary.SHAPE_DIMENSIONS].astype(np.float64)
    window = graph.node_features[:, vocabulary.WINDOW_SIZE].max(axis=0)
    elements, size = num_elements(graph), num_bytes(graph)
    parameters = graph.node_opcodes == OPCODE_IDS["parameter"]
    operations = num_operations(graph).sum()
    moved = size[parameters].sum() + size[tiling.node]
    values = {f"output_size_{slot}": float(np.log1p(sizes[slot])) for slot in range(MAX_RANK)}
    values |= {f"window_{slot}": float(window[slot]) for slot in range(WINDOWS)}
    return values | {
        "output_rank": float(tensor_ranks(graph)[tiling.node]),
        "output_elements": float(np.log(elements[tiling.node])),
        "largest_elements": float(np.log(elements.max())),
        "parameter_bytes": float(np.log1p(size[parameters].sum())),
        "contracted_size": float(np.log(contracted_size(graph).max())),
        "operations": float(np.log(operations)),
        "intensity_kernel": float(np.log(operations / moved)),
        "nodes": float(np.log(graph.num_nodes)),
        "in_registers": float(tiling.in_registers),
    }


def _count_opcodes(graph: Graph) -> dict[str, float]:
    counts = np.bincount(graph.node_opcodes, minlength=vocabulary.NUM_OPCODES)
    named = {f"count_{name}": float(counts[OPCODE_IDS[name]]) for name in COUNTED}
    return named | {"count_other": float(counts.sum() - sum(named.values()))}


def _aggregate(graph: Graph) -> dict[str, float]:
    size = num_bytes(graph)
    left = np.ones(graph.num_nodes, bool)
    masks = {}
    for group, names in GROUPS.items():
        ids = [OPCODE_IDS[name] for name in names if name in OPCODE_IDS]
        masks[group] = np.isin(graph.node_opcodes, ids)
        left &= ~masks[group]
    columns = {}
    for group, mask in {**masks, OTHER: left}.items():
        sizes = size[mask] if mask.any() else np.zeros(1)
        for how, value in (("sum", sizes.sum()), ("mean", sizes.mean()), ("max", sizes.max())):
            columns[f"{group}_{how}"] = float(np.log1p(value))
    return columns


def tile_rows(graph: Graph) -> np.ndarray:
    """Return the columns FEATURES (configs, columns) float32, one row for each configuration."""
    graph = inline_fusions(graph)
    tiling, nest = find_tiling(graph), loops.find_nest(graph)
    fit = _fit(graph, tiling)
    logs = np.log1p(np.maximum(graph.tiles.astype(np.float64), 0))
    columns = {
        **{feature.name: logs[:, column] for column, feature in enumerate(CONFIGURATION)},
        **fit,
        **_reuse(tiling, fit["minor_0"]),
        **loops.describe_loops(graph, nest),
        **traffic.describe_traffic(graph, nest),
        **_describe_kernel(graph, tiling),
        **_count_opcodes(graph),
        **_aggregate(graph),
    }
    return as_rows(columns, FEATURES, graph.num_configs)


def _fit(graph: Graph, tiling: Tiling) -> dict[str, np.ndarray]:
    """Return the columns FIT: how the tile fits the tiled tensor."""
    sizes, tiles = tiling.extents[:MAX_RANK], tiling.tiles[:, :MAX_RANK]
    counts = tiling.counts[:, :MAX_RANK]
    # Multiply by the inverse instead of dividing: trained models depend on this rounding.
    inverse = 1 / sizes
    wastes = counts * tiles * inverse
    shares, logs = np.log(tiles * inverse), np.log(counts)
    columns = {
        **{f"share_{slot}": shares[:, slot] for slot in range(MAX_RANK)},
        **{f"tiles_{slot}": logs[:, slot] for slot in range(MAX_RANK)},
        "tiles": np.log1p(counts.prod(axis=1)),
        "waste": np.log(wastes.prod(axis=1)),
        "tile_volume": np.log1p(tiles.prod(axis=1)),
    }
    given = graph.tiles[:, TILE_BLOCKS["output"]] > 0
    never = np.zeros(len(tiles))
    for distance in range(MINOR):
        slot = tiling.rank - 1 - distance
        minor, count = (np.log1p(tiles[:, slot]), logs[:, slot]) if slot >= 0 else (never, never)
        columns[f"minor_{distance}"] = np.where(given[:, max(slot, 0)], minor, 0.0)
        columns[f"minor_tiles_{distance}"] = count
    for slot, unit, waste, padding in (
        (tiling.rank - 1, LANES, "waste_minor", "lanes_waste"),
        (tiling.rank - 2, SUBLANES, "waste_second", "sublanes_waste"),
    ):
        known = slot >= 0
        columns[waste] = np.log(wastes[:, slot]) if known else never
        columns[padding] = _pad(tiles[:, slot], unit) if known else never
    return columns


def _pad(tile: np.ndarray, unit: int) -> np.ndarray:
    """Return log(tile rounded up to a multiple of `unit` / tile): (configs,)."""
    return np.log(np.ceil(tile / unit) * unit / tile)


def _reuse(tiling: Tiling, minor: np.ndarray) -> dict[str, np.ndarray]:
    """Return the columns REUSE, which treat a tile as a matrix product (rows, step) x (step,
    columns): footprint = rows * columns + rows * step + columns * step. `minor`: (configs,) log1p
    of the tile's size along the contiguous dimension."""
    volume, tiles = (part[:, :MAX_RANK].prod(axis=1) for part in (tiling.tiles, tiling.counts))
    # sizes multiplied over all loops that sum: of a dot or reduce, and along convolution weights
    step, reductions = (part[:, REDUCTION:].prod(axis=1) for part in (tiling.tiles, tiling.counts))
    columns = np.maximum(np.exp(minor) - 1, 1)
    rows, step = np.maximum(volume / columns, 1), np.maximum(step, 1)
    footprint = rows * columns + rows * step + columns * step
    return {
        "intensity": np.log(rows * columns * step / footprint),
        "footprint": np.log(footprint),
        "right_footprint": np.log(columns * step),
        "left_footprint": np.log(rows * step),
        "steps": np.log(tiles * reductions),
        "step": np.log(step),
    }
