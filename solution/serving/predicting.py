"""Predict the test split of a data set with a bundle, for a submission."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

import numpy as np
import polars as pl

from solution.data import folders
from solution.data.npz import read_graph
from solution.data.parallel_files import map_files
from solution.domain.predictions import RANKING_SCHEMA, make_frame
from solution.serving.bundle import Bundle, load_bundle
from solution.store.graph_file import read_prepared
from solution.store.store import Store, is_store
from solution.system.errors import InputError
from solution.system.progress import warn
from solution.system.terminal import say

# minimum bytes of graph files per worker process, because each takes seconds to import libraries
BYTES_WORTH_A_WORKER = 16 << 20


@dataclass(frozen=True)
class Predicted:
    """The ranked test graphs of a data set."""

    ranking: pl.DataFrame  # columns of RANKING_SCHEMA
    graphs: pl.DataFrame  # a row per graph: collection, graph, split, configs
    sample_submission: Path | None  # path of sample_submission.csv with the data; None: missing


def predict_test_split(bundle: Path, data: Path, workers: int | None = None) -> Predicted:
    """Rank every test graph of a prepared store or folder of npz files by the scores of
    `Bundle.rank`, which equal the packed run's scores. `workers`: number of processes; by default
    one per core, or none for small files. Raises InputError if there is no test graph, or one is
    unreadable or cannot be ranked."""
    seals: Mapping[Path, str] = {}  # a folder of npz files has no checksums
    if is_store(data):
        store = Store.open(data)
        seals, sample = store.seals(), store.sample_submission
        found = [file for path in seals if (file := folders.parse_path(path)) is not None]
    else:
        found, sample = folders.find_files(data), folders.choose_sample(data)
        for words in [*folders.find_left_out(data), *folders.describe_other_samples(data)]:
            warn(words)
    files = [file for file in found if file.split == "test"]
    if not files:
        raise InputError(f"{data}: has no graph of the test split, so there is none to predict.")
    _open.cache_clear()
    opened = _open(bundle)
    for name in sorted({file.collection.name for file in files}):
        opened.choose(name)
    if opened.caveat:
        say(opened.caveat)
    rank = partial(_rank, bundle=bundle, seals=seals)
    ranked = map_files(rank, files, "Predicting the test split", workers, BYTES_WORTH_A_WORKER)
    rows = [
        (file.collection.name, file.name, file.split, len(frame))
        for file, frame in zip(files, ranked, strict=True)
    ]
    graphs = pl.DataFrame(rows, ["collection", "graph", "split", "configs"], orient="row")
    return Predicted(pl.concat(ranked), graphs, sample)


@cache
def _open(bundle: Path) -> Bundle:
    """Load the bundle once per process."""
    return load_bundle(bundle)


def _rank(file: folders.GraphFile, *, bundle: Path, seals: Mapping[Path, str]) -> pl.DataFrame:
    """Return the ranking of one graph, a frame of RANKING_SCHEMA."""
    if file.path in seals:
        graph = read_prepared(file.path, seals[file.path])
    else:
        graph = read_graph(file.path, file.collection)
    scores = _open(bundle).rank(graph).scores
    frame = make_frame(graph.key, np.arange(len(scores)), scores, fold=0, seed=0)
    return frame.select(RANKING_SCHEMA.names())
