"""Divide the labelled graphs into folds, once.

There are three schemes. `family` keeps relatives together (solution.domain.families), so a fold
measures how a model does on kinds of programs that it has never seen. `architecture` keeps graphs
with the same structure together: a model may have seen the same program at another depth. `graph`
only keeps copies of one graph together. This is the competition's situation: most test graphs share
their structure with a training graph.

The graphs of one source (xla, nlp, tile) are divided together. So a program that is in both layout
collections of a source has the same fold in both, and a model can train on both without leaking.
"""

from collections import defaultdict
from typing import Literal

import numpy as np
import polars as pl

from solution.domain.collection import COLLECTIONS
from solution.domain.dividing import divide_groups, random_position
from solution.runs.job import NO_FOLD as NO_FOLD  # also the fold of unlabelled graphs

Scheme = Literal["family", "architecture", "graph"]
SOURCES = {collection.name: collection.source for collection in COLLECTIONS}


def assign_folds(graphs: pl.DataFrame, scheme: Scheme, num_folds: int, seed: int) -> pl.DataFrame:
    """Return `graphs` with two more columns: `group`, which names the graphs that stay in one fold
    (see solution.domain.dividing), and `fold`, 0 ... num_folds - 1, or NO_FOLD if unlabelled.
    `graphs` needs the columns collection, labelled and one with the name of the scheme."""
    grouped = graphs.with_columns(
        (pl.col("collection").replace_strict(SOURCES) + "/" + pl.col(scheme)).alias("group")
    )
    members: dict[str, list[str]] = defaultdict(list)
    for name, group, labelled in grouped.select("collection", "group", "labelled").iter_rows():
        if labelled:
            members[group].append(name)
    folds = divide_groups(members, num_folds, seed)
    fold = pl.col("group").replace_strict(folds, default=NO_FOLD, return_dtype=pl.Int16())
    return grouped.with_columns(
        pl.when("labelled").then(fold).otherwise(pl.lit(NO_FOLD, pl.Int16())).alias("fold")
    )


def split_inner(groups: list[str], share: float, seed: int) -> np.ndarray:
    """Return a mask (graphs,) of the inner validation graphs: whole groups, with about `share` of
    the graphs and at most half. With fewer than three groups no graph is chosen. `groups`: the
    group of each graph."""
    distinct = sorted(set(groups), key=lambda group: random_position(group, seed))
    mask = np.zeros(len(groups), bool)
    if len(distinct) < 3:
        return mask
    for group in distinct:
        if mask.sum() >= share * len(groups):
            break
        candidate = mask | (np.array(groups) == group)
        if candidate.sum() <= max(1, len(groups) // 2):  # never more than half of the graphs
            mask = candidate
    return mask
