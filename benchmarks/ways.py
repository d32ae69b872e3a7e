"""Run one variant at full scale in a separate process, to measure its time and memory.

    .venv/bin/python -m benchmarks.ways FOLDER NAME     prints seconds, megabytes and facts

Every variant of ours has an obvious counterpart for comparison.
"""

import dataclasses
import json
import shutil
import sys
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.memory import memory

BLOCK = 8 << 20
MANY_CONFIGS = Path("stress/npz/layout/xla/random/train/many_configs.npz")
MANY_NODES = Path("stress/npz/layout/xla/random/test/many_nodes.npz")
STORED = Path("store-of-one/graphs/layout/xla/random/train/many_configs.safetensors")
SAMPLED, STEPS = 64, 200  # configurations per training step; timed steps
CHOSEN = 50  # configurations predicted by the obvious variant
EXPERIMENTS = 5


def inflate(folder: Path) -> dict[str, Any]:
    """Only inflate the configurations, with zipfile like np.load."""
    archive = zipfile.ZipFile(folder / MANY_CONFIGS)
    with archive, archive.open("node_config_feat.npy") as member:
        while member.read(BLOCK):
            pass
    return {}


def load(folder: Path) -> dict[str, Any]:
    """Load the configurations with np.load."""
    with np.load(folder / MANY_CONFIGS) as arrays:
        configs = arrays["node_config_feat"]
    return {"bytes": configs.nbytes}


def prepare(folder: Path) -> dict[str, Any]:
    """Prepare the file."""
    from solution.data.folders import find_files
    from solution.features.preparation import Preparation
    from solution.store.preparing import prepare_store

    store = folder / "store-of-one"
    shutil.rmtree(store, ignore_errors=True)
    start, used = time.perf_counter(), time.process_time()
    prepared = prepare_store(find_files(folder / MANY_CONFIGS), store, Preparation())
    return {"bytes": prepared.size} | _elapsed(start, used)


def train_step(folder: Path) -> dict[str, Any]:
    """Read the layouts of a training step's configurations from the store."""
    from solution.store.graph_file import read_prepared

    book = read_prepared(folder / STORED).layouts
    book.codes.sum()  # the first access reads the pages
    generator, seconds = np.random.default_rng(0), []
    for _ in range(STEPS):
        rows = generator.choice(len(book.codes), SAMPLED, replace=False)
        start = time.perf_counter()
        book.pairs(rows)
        seconds.append(time.perf_counter() - start)
    return {"step": float(np.median(seconds)), "worst": float(np.quantile(seconds, 0.99))}


def load_step(folder: Path) -> dict[str, Any]:
    """Load the file and take a training step's configurations, like a data loader per graph."""
    start = time.perf_counter()
    with np.load(folder / MANY_CONFIGS) as arrays:
        rows = np.random.default_rng(0).choice(100_040, SAMPLED, replace=False)
        arrays["node_config_feat"][rows]
    return {"step": time.perf_counter() - start}


def predict(folder: Path) -> dict[str, Any]:
    """Predict all configurations of the largest test graph with the layout net."""
    return _predict(folder, "neighbourhood", None)


def predict_whole(folder: Path) -> dict[str, Any]:
    """Predict some of them on the whole graph, without pruning."""
    return _predict(folder, "nothing", CHOSEN)


def _predict(folder: Path, pruning: str, limit: int | None) -> dict[str, Any]:
    from solution.data.npz import read_graph
    from solution.domain.collection import collection
    from solution.features.preparation import Preparation
    from solution.models.layout.layout_gnn import LayoutGnnSettings
    from solution.models.nets.training_settings import TrainingSettings
    from tests.made.graphs import make_layout_graph

    settings = LayoutGnnSettings(pruning=pruning, training=TrainingSettings(epochs=1))
    ranker = settings.build(0).fit([make_layout_graph(seed) for seed in range(2)], [])
    graph = read_graph(folder / MANY_NODES, collection("layout:xla:random"))
    asked = graph if limit is None else graph.select(np.arange(limit))
    start = time.perf_counter()
    ranker.predict(Preparation(settings.hops)(asked))
    return {"predicting": time.perf_counter() - start, "configs": asked.num_configs}


def train_many_configs(folder: Path) -> dict[str, Any]:
    """Train the layout net for an epoch on the file with the most configurations."""
    return _train(folder / MANY_CONFIGS)


def train_many_nodes(folder: Path) -> dict[str, Any]:
    """Train the layout net for an epoch on the graph with the most nodes."""
    return _train(folder / MANY_NODES)


def _train(file: Path) -> dict[str, Any]:
    from solution.data.npz import read_graph
    from solution.domain.collection import collection
    from solution.features.preparation import Preparation
    from solution.models.layout.layout_gnn import LayoutGnnSettings

    graph = Preparation(1)(read_graph(file, collection("layout:xla:random")))
    runtimes = np.random.default_rng(0).random(graph.num_configs) + 1.0  # test files have none
    labelled = dataclasses.replace(graph, runtimes=runtimes)
    settings = LayoutGnnSettings()
    training = dataclasses.replace(settings.training, epochs=1)
    dataclasses.replace(settings, training=training).build(0).fit(4 * [labelled], [])
    return {}


def merge(folder: Path) -> dict[str, Any]:
    """Rank-average the experiments' prediction files by streaming."""
    from ensembles.merge import merge_files
    from ensembles.recipe import Recipe
    from solution.domain.predictions import RANKING_SCHEMA
    from solution.system.parquet import write_batches

    paths = {
        f"member_{number}": folder / f"member_{number}.parquet" for number in range(EXPERIMENTS)
    }
    recipe = Recipe(name="all", members=dict.fromkeys(paths, 1.0))
    write_batches(merge_files(paths, recipe), RANKING_SCHEMA, folder / "merged.parquet")
    return {}


def merge_whole(folder: Path) -> dict[str, Any]:
    """Rank-average in memory: read everything, rank over the groups, average."""
    import polars as pl

    key = ["collection", "graph"]
    paths = [folder / f"member_{number}.parquet" for number in range(EXPERIMENTS)]
    model = [*key, "fold", "seed", "member"]
    everything = pl.concat(
        pl.read_parquet(path).with_columns(member=pl.lit(path.stem)) for path in paths
    )
    rank = pl.col("score").rank("average").over(model) / pl.len().over(model)
    merged = everything.with_columns(score=rank).group_by(*key, "config").agg(pl.mean("score"))
    merged.sort(*key, "config").write_parquet(folder / "merged-whole.parquet")
    return {}


WAYS: dict[str, Callable[[Path], dict[str, Any]]] = {
    way.__name__: way
    for way in (
        inflate, load, prepare, train_step, load_step, predict, predict_whole, merge, merge_whole,
        train_many_configs, train_many_nodes,
    )
}  # fmt: skip


def _elapsed(start: float, used: float) -> dict[str, float]:
    return {
        "seconds": time.perf_counter() - start,
        "processor": time.process_time() - used,
    }


def main() -> None:
    folder, name = Path(sys.argv[1]), sys.argv[2]
    start, used = time.perf_counter(), time.process_time()
    facts = WAYS[name](folder)
    # facts override the time: a variant may exclude its imports
    facts = _elapsed(start, used) | facts
    print(json.dumps(facts | {"megabytes": memory("VmHWM")}))


if __name__ == "__main__":
    main()
