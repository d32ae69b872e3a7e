"""Graphs that are there twice under different names, which no folder shows and scores suffer by."""

import polars as pl

from solution.system.wording import count

KEYS = ("collection", "split", "graph")


def find_equal_graphs(graphs: pl.DataFrame) -> list[str]:
    """A sentence with how many graphs have equal files and with two of them; none where all differ.

    Args:
        graphs: collection, split, graph, source: as a store has them.
    """
    equal = graphs.filter(pl.col("source").is_duplicated())
    if equal.is_empty():
        return []
    first = equal.filter(source=equal["source"][0])
    shown = " and ".join(" ".join(row) for row in first.select(KEYS).head(2).iter_rows())
    copies = len(equal) - equal["source"].n_unique()
    verb = "is a copy" if copies == 1 else "are copies"
    return [
        f"{count(copies, 'graph')} {verb} of others under another name, such as {shown}. Scores "
        "mean less where a model has seen the copy of what it is scored on."
    ]
