"""Score the tile models on measured CPU kernels, and on real TPU kernels.

    python -m benchmarks.tile_models ../shared/data build/benchmarks [NAME ...]

Out of fold on the CPU kernels (folds by architecture, three seeds); leave one kernel out on the TPU
kernels, compared with a random order, the largest tile first, and the compiler's single choice.
On both, without a model: fewest cycles first (solution.features.tile.traffic), whose six numbers
were chosen on the CPU kernels.
NAME is an experiment; by default all of ours that rank tiles. `make papers` compares the published.
"""

import os
import sys
from pathlib import Path

import numpy as np
import polars as pl
from rich.console import Console

from benchmarks.bootstrap import bootstrap_mean
from benchmarks.out_of_fold_scores import (
    SEEDS,
    metrics,
    open_plan,
    score_out_of_fold,
    top_1_slowdown,
)
from ensembles.votes import average
from solution import papers
from solution.data.folders import find_files
from solution.data.npz import read_graph
from solution.domain.collection import TILE
from solution.domain.graph import Graph
from solution.domain.metrics import Mean, top_k_score
from solution.experiments.base import find_experiment, list_experiments
from solution.features.preparation import repair_padding
from solution.features.table import feature_table
from solution.features.tile.fusions import inline_fusions
from solution.features.tile.tiling import find_tiling
from solution.models.base import RankerSettings
from solution.system.processes import count_cores, open_pool
from solution.system.progress import track
from solution.system.terminal import make_table
from solution.training.plan import IS_LABELLED, Plan

RANDOM_ORDERS = 200
console = Console(width=160)  # a table row is one line, also in a file


def main(shared: Path, place: Path, names: list[str]) -> None:
    """Print both tables."""
    chosen = names or list_own()
    measure_cpu(shared / "cpugraphs", place, chosen)
    measure_tpu(shared / "tpu", chosen)


def list_own() -> list[str]:
    """Return the tile experiments that are not published systems."""
    experiments = [find_experiment(name) for name in list_experiments()]
    return [
        experiment.name
        for experiment in experiments
        if TILE[0] in experiment.collections
        and not type(experiment.ranker).__module__.startswith(papers.__name__)
    ]


def measure_cpu(data: Path, place: Path, names: list[str]) -> None:
    """Measure out-of-fold scores with 95% bootstrap intervals over kernels."""
    plan = open_plan(data, place / "cpugraphs")
    found = {}
    for name in names:
        found[name] = score_out_of_fold(find_experiment(name).ranker, plan, TILE[0])
        console.print(name, *found[name].by_seed("top-5 score").round(4))
    score = score_cycles(plan)
    console.print(f"Fewest cycles first, by six numbers chosen on these kernels: {score:.4f}")
    own = {name: scores.values["top-5 score"].mean(axis=0) for name, scores in found.items()}
    best = max(own.values(), key=np.mean)
    table = make_table("CPU kernels out of fold, mean of 3 seeds (95% interval over kernels)")
    for header in ("experiment", *metrics("tile"), "behind the best", "seeds"):
        table.add_column(header)
    for name, scores in found.items():
        means = [scores.mean(metric) for metric in metrics("tile")]
        means.append(bootstrap_mean(best - own[name]))
        cells = [f"{mean:.4f}" for mean in means]
        seeds = " ".join(f"{value:.4f}" for value in scores.by_seed("top-5 score"))
        table.add_row(name, *cells, seeds)
    console.print(table)


def score_cycles(plan: Plan) -> Mean:
    """Return the top-5 score of the order by fewest cycles."""
    rows = plan.graphs.filter(IS_LABELLED, pl.col("collection") == TILE[0])
    scores = [
        top_k_score(fewest_cycles(graph), np.asarray(graph.runtimes), 5)
        for graph in plan.load(rows)
    ]
    return bootstrap_mean(np.array(scores))


def measure_tpu(data: Path, names: list[str]) -> None:
    """Leave one kernel out; kernels whose tiles all look the same are dropped."""
    if not data.is_dir():
        console.print(f"{data}: there is no such folder, so no real TPU kernel is ranked.")
        return
    graphs = [graph for graph in read_tiles(data) if len(graph.distinct.first) > 1]
    large = [i for i, graph in enumerate(graphs) if graph.num_configs > 5]
    table = make_table(f"{len(graphs)} TPU kernels, each ranked by models of the others")
    for header in ("ranking", "top-1 score", "top-5 score", "kernels with over 5 tiles"):
        table.add_column(header)
    # The compiler's single tile: runtimes are relative to the default's.
    own = np.array([2 - 1 / np.min(graph.runtimes) for graph in graphs])
    default, default_of_large = (f"{bootstrap_mean(part):.3f}" for part in (own, own[large]))
    table.add_row("the compiler's default", default, default, default_of_large)
    rankings = {
        "random order": [random_scores(graph) for graph in graphs],
        "largest tile first": [[-tile_volume(graph)] for graph in graphs],
        "fewest cycles first": [[fewest_cycles(graph)] for graph in graphs],
        **{
            name: leave_one_out(find_experiment(name).ranker, graphs)
            for name in names
            if name != "nothing_001"  # in these files the default stands first
        },
    }
    several = {name: found for name, found in rankings.items() if len(found[0]) == len(SEEDS)}
    for name, found in several.items():  # average over seeds, as an experiment does
        rankings[f"{name}, seeds averaged"] = [[average(orders, "z_score")] for orders in found]
    for name, orders in rankings.items():
        top_1 = _mean(graphs, orders, 1)
        top_5 = _mean(graphs, orders, 5)
        rest = _mean([graphs[i] for i in large], [orders[i] for i in large], 5)
        table.add_row(name, top_1, top_5, rest)
    console.print(table)


def read_tiles(data: Path) -> list[Graph]:
    """Return the labelled kernels below a folder."""
    files = [f for f in find_files(data) if f.collection.name == TILE[0]]
    graphs = [repair_padding(read_graph(f.path, f.collection)) for f in files]
    return [graph for graph in graphs if graph.runtimes is not None]


def random_scores(graph: Graph) -> list[np.ndarray]:
    generator = np.random.default_rng(0)
    return [generator.random(graph.num_configs) for _ in range(RANDOM_ORDERS)]


def tile_volume(graph: Graph) -> np.ndarray:
    """Return the elements (configs,) of each tile of the output."""
    return find_tiling(inline_fusions(graph)).tiles.prod(axis=1)


def fewest_cycles(graph: Graph) -> np.ndarray:
    """Return each configuration's estimated cycles (configs,), without a model."""
    return feature_table(graph)["cycles"].to_numpy()


def leave_one_out(settings: RankerSettings, graphs: list[Graph]) -> list[list[np.ndarray]]:
    """Return each graph's scores by models of all others, one per seed; each fit runs on one core.

    Without early stopping, because there are too few kernels for a validation set.
    """
    with open_pool(count_cores(), _begin, graphs) as pool:
        done = [
            [pool.submit(_score_without, settings, place, seed) for seed in SEEDS]
            for place in range(len(graphs))
        ]
        with track(done, type(settings).__name__) as todo:
            return [[one.result() for one in own] for own in todo]


_graphs: list[Graph]  # of a worker process


def _begin(graphs: list[Graph]) -> None:
    global _graphs
    os.environ["OMP_NUM_THREADS"] = "1"
    _graphs = graphs


def _score_without(settings: RankerSettings, place: int, seed: int) -> np.ndarray:
    others = [*_graphs[:place], *_graphs[place + 1 :]]
    return settings.build(seed).fit(others, []).predict(_graphs[place])


def _mean(graphs: list[Graph], orders: list[list[np.ndarray]], k: int) -> str:
    scores = []
    for graph, own in zip(graphs, orders, strict=True):
        runtimes = np.asarray(graph.runtimes)
        metric = [
            1 - top_1_slowdown(order, runtimes) if k == 1 else top_k_score(order, runtimes, k)
            for order in own
        ]
        scores.append(float(np.mean(metric)))
    return f"{bootstrap_mean(np.array(scores)):.3f}"


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:])
