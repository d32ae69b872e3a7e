"""A row for each configuration of a tile graph: the tile, the kernel, and how they fit.

The table feeds LightGBM as it is and the tile net after scaling. Tile sizes mean little alone; they
are set against the tensor that they cut up: how many tiles, how much is wasted at the borders, how
much work there is for each byte that is moved, what stays in the caches. Bounds that count register
tiles of a TPU are turned into elements first (solution.features.tile.tiling).
"""

from collections.abc import Iterable

import numpy as np
import polars as pl

from solution.domain.graph import Graph
from solution.domain.vocabulary import LANES, MAX_RANK, SUBLANES
from solution.features.column import Feature, numbered
from solution.features.tile import kernel_totals as kernel
from solution.features.tile import loops, traffic
from solution.features.tile.fusions import inline_fusions
from solution.features.tile.tiling import REDUCTION, Tiling, find_tiling

MINOR = 3  # dimensions that are told from the contiguous one, whatever the rank

_BLOCKS = {
    "kernel": "the tile of a convolution's kernel",
    "output": "the tile of the tensor that is cut",
    "input": "the tile of the input; its first bound is the step of a sum",
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
    Feature("waste", "log ratio", "what the tiles cover over the tensor: work on the borders"),
    Feature("waste_minor", "log ratio", "the same along the contiguous dimension"),
    Feature("waste_second", "log ratio", "the same along the next one"),
    Feature("lanes_waste", "log ratio", "the tile padded to 128 lanes over itself"),
    Feature("sublanes_waste", "log ratio", "the tile padded to 8 sublanes over itself"),
    Feature("tile_volume", "log1p elements", "what a tile holds"),
)
REUSE = (
    Feature("intensity", "log ratio", "multiply-adds of a tile over what they read and write"),
    Feature("footprint", "log elements", "what the product behind a tile touches"),
    Feature("right_footprint", "log elements", "the part of it that the right operand has"),
    Feature("left_footprint", "log elements", "the part of it that the left operand has"),
    Feature("steps", "log count", "tiles times steps of a sum"),
    Feature("step", "log terms", "terms of a sum that are taken at once"),
)
FEATURES = (*CONFIGURATION, *FIT, *REUSE, *loops.FEATURES, *traffic.FEATURES, *kernel.FEATURES)


def tile_table(graph: Graph) -> pl.DataFrame:
    """Float32 columns FEATURES, a row for each configuration in order."""
    graph = inline_fusions(graph)
    tiling = find_tiling(graph)
    raw = pl.DataFrame(graph.tiles.astype(np.float64), schema=[f.name for f in CONFIGURATION])
    tiles = pl.DataFrame(tiling.tiles[:, :MAX_RANK], schema=_tile_names())
    frame = pl.concat([raw, tiles], how="horizontal").lazy()
    frame = frame.with_columns(*_fit(tiling)).with_columns(*_reuse())
    logs = [*(f.name for f in CONFIGURATION), "tiles", "tile_volume"]
    frame = frame.with_columns(pl.col(name).clip(0).log1p() for name in logs)
    described = {
        **loops.describe_loops(graph),
        **traffic.describe_traffic(graph),
        **kernel.describe_kernel(graph),
    }
    vectors = {name: value for name, value in described.items() if isinstance(value, np.ndarray)}
    numbers = [pl.lit(value).alias(n) for n, value in described.items() if n not in vectors]
    frame = pl.concat([frame, pl.LazyFrame(vectors)], how="horizontal").with_columns(*numbers)
    return frame.select(pl.col(f.name).cast(pl.Float32()) for f in FEATURES).collect()


def _tile_names() -> list[str]:
    return [f"tile_{slot}" for slot in range(MAX_RANK)]


def _fit(tiling: Tiling) -> Iterable[pl.Expr]:
    """How the tile fits the tensor that it cuts and the kernel window."""
    counts, wastes = [], []
    for slot in range(MAX_RANK):
        size = float(tiling.extents[slot])
        tile = pl.col(f"tile_{slot}")
        counts.append((size / tile).ceil())
        wastes.append(counts[-1] * tile / size)
        yield (tile / size).log().alias(f"share_{slot}")
        yield counts[-1].log().alias(f"tiles_{slot}")
    for distance in range(MINOR):
        slot = tiling.rank - 1 - distance
        known = slot >= 0
        tile = pl.col(f"tile_{slot}") if known else pl.lit(0.0)
        given = pl.col(f"output_{slot}") > 0 if known else pl.lit(value=False)
        yield pl.when(given).then(tile.log1p()).otherwise(0.0).alias(f"minor_{distance}")
        yield (counts[slot].log() if known else pl.lit(0.0)).alias(f"minor_tiles_{distance}")
    yield _product(counts).alias("tiles")
    yield _product(wastes).log().alias("waste")
    for distance, (name, unit) in enumerate((("lanes", LANES), ("sublanes", SUBLANES))):
        slot = tiling.rank - 1 - distance
        tile = pl.col(f"tile_{slot}") if slot >= 0 else pl.lit(float(unit))
        yield ((tile / unit).ceil() * unit / tile).log().alias(f"{name}_waste")
        waste = wastes[slot].log() if slot >= 0 else pl.lit(0.0)
        yield waste.alias(("waste_minor", "waste_second")[distance])
    yield _product([pl.col(name) for name in _tile_names()]).alias("tile_volume")
    yield from _sum(tiling)


def _sum(tiling: Tiling) -> Iterable[pl.Expr]:
    """The loops of the sum behind an element: of a dot or reduce, over a convolution's kernel."""
    step, count = (part[:, REDUCTION:].prod(axis=1) for part in (tiling.tiles, tiling.counts))
    yield pl.lit(pl.Series(count)).alias("reductions")
    yield pl.lit(pl.Series(step)).alias("step")


def _reuse() -> Iterable[pl.Expr]:
    """Arithmetic intensity of a tile seen as a matrix product: rows x columns x step."""
    columns = (pl.col("minor_0").exp() - 1).clip(1)  # minor_0 is log1p of the tile
    rows = (pl.col("tile_volume") / columns).clip(1)
    step = pl.col("step").clip(1)
    footprint = rows * columns + rows * step + columns * step
    yield (rows * columns * step / footprint).log().alias("intensity")
    yield footprint.log().alias("footprint")
    yield (columns * step).log().alias("right_footprint")
    yield (rows * step).log().alias("left_footprint")
    yield (pl.col("tiles") * pl.col("reductions")).log().alias("steps")
    yield step.log().alias("step")


def _product(factors: list[pl.Expr]) -> pl.Expr:
    result = factors[0]
    for factor in factors[1:]:
        result = result * factor
    return result
