"""Process prediction files that are larger than memory, a few whole graphs at a time.

An experiment has 31 million predictions for the whole competition. Prediction files are sorted by
collection and graph, so the rows of the same graphs can be read from several files together, and
results are written batch by batch.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import polars as pl
from polars.io.plugins import register_io_source

from solution.system.errors import InputError
from solution.system.files import replace_file
from solution.system.refusals import raise_full
from solution.system.sealing import check_any_seal, replace_sealed

GRAPH = ["collection", "graph"]
BATCH_ROWS = 1 << 20  # rows per batch, of all files together
ROW_GROUP = 1 << 18  # rows per row group, which a reader must decode as a whole


def read_by_graphs(
    paths: Mapping[str, Path], max_rows: int = BATCH_ROWS
) -> Iterator[tuple[str, dict[str, pl.DataFrame]]]:
    """Read several sorted files together, batch by batch; every row is read exactly once.

    Args:
        paths: prediction files by name.
        max_rows: approximate number of rows in a batch, of all files together.

    Yields:
        A collection and, by name, a frame with each file's rows of the same few graphs. Files
        without that collection are left out; a frame may be empty.

    Raises:
        InputError: a file is damaged, or not sorted by collection and graph.
    """
    counts = {name: _count_rows(path) for name, path in paths.items()}
    if not counts:
        return
    rows = pl.col("rows").sum()
    graphs = pl.concat(counts.values()).group_by(GRAPH).agg(rows).sort(GRAPH)
    for (collection,), part in graphs.group_by("collection", maintain_order=True):
        present = [n for n, c in counts.items() if c["collection"].is_in([collection]).any()]
        # a batch: consecutive graphs with about max_rows rows
        batches = part.group_by(pl.col("rows").cum_sum() // max_rows, maintain_order=True)
        for _, batch in batches:
            wanted = batch.select(GRAPH)
            yield (
                str(collection),
                {name: _read_graphs(paths[name], counts[name], wanted) for name in present},
            )


def write_batches(
    batches: Iterable[pl.DataFrame], schema: pl.Schema, path: Path, *, sealed: bool = True
) -> None:
    """Write the batches in order to one Parquet file, atomically. `sealed`: also write the file's
    checksum beside it, because the file will be read again."""
    failure: list[Exception] = []

    def source(*_: Any) -> Iterator[pl.DataFrame]:
        try:
            for batch in batches:
                yield batch.match_to_schema(schema)
        # polars wraps this error, so keep it to raise the original below
        except Exception as error:
            failure.append(error)
            raise

    replace = replace_sealed if sealed else replace_file
    with replace(path) as temporary, writing(path):
        try:
            register_io_source(source, schema=schema).sink_parquet(
                temporary, compression="zstd", row_group_size=ROW_GROUP, statistics=False
            )
        except Exception:
            with suppress(IndexError):
                raise failure[0] from None
            raise


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn errors of polars in the block, such as a full disk, into messages that name the file."""
    try:
        yield
    except pl.exceptions.PolarsError as error:
        raise_full(error, path)
        raise InputError(
            f"{path}: cannot be written ({error}). Make room if the disk is full, or choose "
            "another place."
        ) from error


@contextmanager
def reading(path: Path, expected: str) -> Iterator[None]:
    """Turn errors of polars about an unreadable file into an InputError that names it. A damaged
    file may also make polars panic, and PanicException is no subclass of Exception. `expected`:
    what the file should be, such as "a file of predictions"."""
    try:
        yield
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError) as error:
        raise InputError(f"{path}: expected {expected}, but: {error}") from error


def _count_rows(path: Path) -> pl.DataFrame:
    """Return a row for each graph of a file: collection, graph, rows, offset. `rows` is the number
    of the graph's rows, `offset` the position of the first."""
    if not path.is_file():
        raise InputError(f"{path}: there is no such file. Make it with `fastslow run`.")
    check_any_seal(path)
    with reading(path, "a file of predictions"):
        counted = (
            pl.scan_parquet(path, glob=False)
            .group_by(GRAPH)
            .agg(pl.len().cast(pl.Int64).alias("rows"))
        )
        counts = counted.collect(engine="streaming").sort(GRAPH)
    return counts.with_columns((pl.col("rows").cum_sum() - pl.col("rows")).alias("offset"))


def _read_graphs(path: Path, counts: pl.DataFrame, wanted: pl.DataFrame) -> pl.DataFrame:
    """Return the rows of the `wanted` graphs; raise InputError if the file is not sorted. `counts`:
    the result of `_count_rows`."""
    part = counts.join(wanted, on=GRAPH, how="semi", maintain_order="left")
    offset, length = (part["offset"][0], int(part["rows"].sum())) if len(part) else (0, 0)
    with reading(path, "a file of predictions"):
        frame = pl.scan_parquet(path, glob=False).slice(offset, length).collect()
    found = frame.select(GRAPH).with_columns(pl.struct(GRAPH).rle_id().alias("run")).unique("run")
    if not found.sort("run").select(GRAPH).equals(part.select(GRAPH)):
        raise InputError(
            f"{path}: expected rows sorted by collection and graph, found another order. Write it "
            "with solution.domain.predictions.write."
        )
    return frame
