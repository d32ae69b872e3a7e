"""Decide what a run trains on and predicts, before anything is trained.

The graphs come from a prepared store. The folds are drawn here once; they are saved with the run
and never drawn again.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from solution.domain.collection import collection
from solution.domain.dividing import choose_configs
from solution.domain.families import find_families
from solution.domain.graph import list_estimates
from solution.domain.predictions import RANKING_SCHEMA, REQUEST_KEYS
from solution.features.preparation import Preparation
from solution.models.base import RankerSettings
from solution.store.graph_file import AS_IT_IS, GraphCache, LazyGraphs
from solution.store.store import Store
from solution.training.folds import NO_FOLD, SOURCES, Scheme, assign_folds

IS_LABELLED = pl.col("fold") != NO_FOLD
IS_TEST = pl.col("split") == "test"
# maximum number of labelled graphs, and of test graphs, per collection in a quick look
QUICK_LABELLED, QUICK_TEST = 8, 3


@dataclass(frozen=True)
class Plan:
    """The graphs of a run and their folds."""

    # a row per graph: the store's columns, `group`, `fold`, and `family` if folds are by family
    graphs: pl.DataFrame
    store: Store
    cache: GraphCache = field(default_factory=GraphCache)

    @property
    def sample_submission(self) -> Path | None:
        return self.store.sample_submission

    def rows(self, collection: str, *conditions: pl.Expr) -> pl.DataFrame:
        """Return the rows of the collection that satisfy the conditions."""
        return self.graphs.filter(pl.col("collection") == collection, *conditions)

    def held_out(self, collection: str, fold: int) -> pl.DataFrame:
        """Return the rows of the labelled graphs in the fold."""
        return self.rows(collection, IS_LABELLED, pl.col("fold") == fold)

    def training(self, collection: str, fold: int) -> pl.DataFrame:
        """Return the rows of the labelled graphs in all folds except `fold`."""
        return self.rows(collection, IS_LABELLED, pl.col("fold") != fold)

    def load(self, rows: pl.DataFrame, ranker: RankerSettings | None = None) -> LazyGraphs:
        """Return the graphs of `rows` in order, prepared for the `ranker`, or as stored."""
        return self.store.load(rows, self.cache, self._prune(ranker))

    def _prune(self, ranker: RankerSettings | None) -> Preparation:
        """Return the preparation to apply to a stored graph before the ranker gets it."""
        if ranker is None:
            return Preparation(None)
        if ranker.needed_hops == self.store.preparation.get("hops"):
            return replace(ranker.preparation, hops=None)
        return ranker.preparation

    def folds(self, collection: str) -> list[int]:
        """Return the folds that can be held out; none if all labelled graphs are in one fold."""
        found = sorted(self.rows(collection, IS_LABELLED)["fold"].unique().to_list())
        return found if len(found) > 1 else []

    def labels(self) -> pl.DataFrame:
        """Return collection, graph, config and runtime of every configuration to predict out of
        fold."""
        frames = []
        for name in self.graphs["collection"].unique(maintain_order=True):
            if self.folds(name):
                for graph in self.load(self.rows(name, IS_LABELLED)):
                    configs = choose_configs(graph.key, graph.num_configs)
                    if graph.runtimes is not None:
                        frames.append(_keyed(graph.key, configs, graph.runtimes[configs]))
        return pl.concat(frames) if frames else _keyed(("", ""), np.empty(0), np.empty(0))

    def test_questions(self, collection: str) -> pl.DataFrame:
        """Return collection, graph and config for every configuration of every test graph."""
        test = self.rows(collection, IS_TEST)
        return test.select(
            "collection", "graph", pl.int_ranges(0, "configs", dtype=pl.Int32()).alias("config")
        ).explode("config")

    def settings(self) -> dict[str, Any]:
        """Return settings that identify the run's data: the number of graphs, a hash of their rows,
        the version of the preparation. They do not depend on how many nodes the store keeps."""
        # the scheme and the number of folds are not included: they are separate settings
        drawn = [name for name in ("checksum", "group", "fold", "family") if name in self.graphs]
        if not list_estimates(self.graphs["label_source"]):
            # left out if all labels are measured, so that older runs keep their hash
            drawn.append("label_source")
        content = self.graphs.drop(drawn).write_csv()
        digest = hashlib.sha256(content.encode()).hexdigest()[:16]
        version = self.store.preparation.get("version")
        return {"graphs": len(self.graphs), "data": digest, "version": version}


def make_plan(
    store: Store,
    scheme: Scheme,
    num_folds: int,
    *,
    limit: bool = False,
    collections: Sequence[str] = (),
) -> Plan:
    """Draw the folds and return the plan. `limit`: take few graphs, for a quick look.
    `collections`: take only these (empty: all). Raises InputError if one of them is unknown."""
    graphs = store.graphs
    if collections:
        graphs = graphs.filter(
            pl.col("collection").is_in([collection(n).name for n in collections])
        )
    if limit:
        graphs = graphs[choose_few(graphs["collection"].to_list(), graphs["split"].to_list())]
    if scheme == "family":
        graphs = _add_families(graphs, store)
    return Plan(assign_folds(graphs, scheme, num_folds, seed=0), store)


def _add_families(graphs: pl.DataFrame, store: Store) -> pl.DataFrame:
    """Return the graphs with the column `family`; it is empty for unlabelled graphs. Families are
    found for each source (xla, nlp, tile) separately."""
    families = dict.fromkeys(graphs.select("collection", "graph").iter_rows(), "")
    labelled = graphs.filter("labelled")
    source = pl.col("collection").replace_strict(SOURCES)
    for _, rows in labelled.group_by(source, maintain_order=True):
        loaded = store.load(rows, GraphCache(0), AS_IT_IS)
        found = find_families(
            [*rows["graph"]], [*rows["architecture"]], partial(_read_opcodes, loaded)
        )
        families |= zip(rows.select("collection", "graph").iter_rows(), found, strict=True)
    return graphs.with_columns(pl.Series("family", [*families.values()], pl.String))


def _read_opcodes(graphs: LazyGraphs, row: int) -> np.ndarray:
    return graphs[row].node_opcodes


def choose_few(collections: Sequence[str], splits: Sequence[str]) -> list[int]:
    """Return the indices of a few graphs of each collection, evenly spread."""
    chosen: list[int] = []
    kinds = [(name, split == "test") for name, split in zip(collections, splits, strict=True)]
    for name in dict.fromkeys(collections):
        for is_test, count in ((False, QUICK_LABELLED), (True, QUICK_TEST)):
            part = [position for position, kind in enumerate(kinds) if kind == (name, is_test)]
            if part:
                spread = np.unique(np.linspace(0, len(part) - 1, count).astype(int))
                chosen += [part[index] for index in spread]
    return chosen


def _keyed(key: tuple[str, str], configs: np.ndarray, runtimes: np.ndarray) -> pl.DataFrame:
    schema = pl.Schema({name: RANKING_SCHEMA[name] for name in REQUEST_KEYS})
    schema["runtime"] = pl.Float64()
    frame = pl.DataFrame({"config": configs, "runtime": runtimes}).with_columns(
        pl.lit(key[0]).alias("collection"), pl.lit(key[1]).alias("graph")
    )
    return frame.select(*REQUEST_KEYS, "runtime").cast(schema)
