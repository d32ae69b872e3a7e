"""Whether members rank the same configurations, and what is done about gaps."""

from collections.abc import Mapping

import polars as pl

from solution.domain.predictions import REQUEST_KEYS
from solution.system.errors import InputError
from solution.system.parquet import GRAPH


def check_aligned(members: Mapping[str, pl.DataFrame]) -> None:
    """Refuse members of different configurations.

    Args:
        members: by name, frames of RANKING_SCHEMA, sorted by their keys.

    Raises:
        InputError: a member lacks predictions that others have; the message says which.
    """
    keys = {name: frame.select(REQUEST_KEYS) for name, frame in members.items()}
    first = next(iter(keys.values()))
    if all(other.equals(first) for other in keys.values()):
        return
    wanted = pl.concat(keys.values()).unique()
    for name, own in sorted(keys.items()):
        missing = wanted.join(own, on=REQUEST_KEYS, how="anti").sort(REQUEST_KEYS)
        if len(missing):
            lacks = missing.row(0, named=True)
            raise InputError(
                f"{name} has no prediction for {lacks['collection']}:{lacks['graph']}, "
                f"configuration {lacks['config']}, and {len(missing) - 1} more that other members "
                "have. Make its predictions again, take it out of the recipe, or let the recipe "
                'allow_missing = ["graphs"].'
            )


def split_by_presence(
    members: Mapping[str, pl.DataFrame],
) -> list[dict[str, pl.DataFrame]]:
    """Divide the graphs by which members rank all of their configurations.

    Ranks in a part of a graph mean something else than ranks in the whole, so a member counts in a
    graph only where it has every configuration that any member has.

    Args:
        members: by name, frames of RANKING_SCHEMA, sorted by their keys.

    Returns:
        For each set of members, what they say of the graphs that exactly they rank whole. Graphs
        that no member ranks whole are not there.
    """
    wanted = pl.concat([frame.select(REQUEST_KEYS) for frame in members.values()]).unique()
    sizes = wanted.group_by(GRAPH).agg(pl.len().alias("configs"))
    counts = [
        frame.group_by(GRAPH).agg(pl.len().alias("configs")).join(sizes, on=[*GRAPH, "configs"])
        .select(*GRAPH, pl.lit(name).alias("member"))
        for name, frame in sorted(members.items())
    ]  # fmt: skip
    present = pl.concat(counts).group_by(GRAPH).agg(pl.col("member").sort())
    return [
        {
            name: members[name].join(graphs, on=GRAPH, how="semi").sort(REQUEST_KEYS)
            for name in names
        }
        for (names,), graphs in present.sort(GRAPH).group_by("member", maintain_order=True)
    ]
