"""Find copies of a graph under another name: folders do not show them, but they distort scores."""

import polars as pl

from solution.system.wording import count

KEYS = ("collection", "split", "graph")


def find_equal_graphs(graphs: pl.DataFrame) -> list[str]:
    """Return a sentence with the number of copies and an example; an empty list if all differ.

    Args:
        graphs: with the columns collection, split, graph and source, as a store has them.
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
