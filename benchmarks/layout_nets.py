"""Compare our layout net with TGraph, the winners' net: accuracy and speed.

    make bench-layout SHARED=folder      the measured CPU graphs, and TPU files beside them
    .venv/bin/python -m benchmarks.layout_nets DATA --seconds 10 --seeds 3

In every fold both nets are fitted one after the other in the same process with one thread, for the
same time: one epoch is timed, then as many are run as fill the time, but at most the number in the
net's settings; ours then finishes earlier than TGraph.
"""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import polars as pl
import torch
import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from benchmarks.layout_speed import WIDTH, Settings, bench_speed, choose_timed
from benchmarks.timed_fits import count_epochs, fit_for
from ensembles.statistics import mean_over_collections
from solution.data.folders import find_files
from solution.data.npz import read_graph
from solution.domain.collection import LAYOUT, XLA
from solution.domain.graph import Graph
from solution.domain.metrics import kendall_tau
from solution.features.preparation import Preparation
from solution.models.base import Ranker, RankerSettings
from solution.models.layout.cost_net import CostNetSettings
from solution.models.layout.layout_gnn import LayoutGnnSettings
from solution.papers.tgraph import TGraphSettings
from solution.papers.wrappers import SublistAverage
from solution.store.preparing import prepare_store
from solution.store.store import Store
from solution.system.processes import open_pool
from solution.system.progress import track
from solution.system.terminal import make_table
from solution.training.fold_scores import fit_without
from solution.training.plan import Plan, make_plan

FOLDS = 5
# Tau between two timings of the same configurations, from the data's README, for training graphs:
# about the score of a perfect model.
CEILINGS = dict(zip(LAYOUT, (0.66, 0.84, 0.64, 0.90), strict=True))
STEPS_OF_ONE = 16  # steps per epoch on a single graph
TPU = {"alexnet_train_batch_32": 5000, "unet3d": 600}  # training configurations
NETS: dict[str, Settings] = {"ours": LayoutGnnSettings(), "TGraph": TGraphSettings()}
TPU_NETS: dict[str, RankerSettings] = {
    **NETS,
    "costs, a CPU's rules": CostNetSettings(backend="cpu"),
    "costs, a TPU's rules": CostNetSettings(backend="tpu"),
}


@dataclass(frozen=True)
class Job:
    """One fold of one collection."""

    store: Path
    collection: str
    fold: int
    seed: int
    seconds: float


def predict(net: str, ranker: Ranker, graph: Graph) -> np.ndarray:
    """Predict; TGraph's scores depend on the list, so they are averaged over lists of training
    length."""
    averaged = SublistAverage(ranker, 64, times=4, seed=0) if net == "TGraph" else ranker
    return averaged.predict(graph)


def score_fold(job: Job) -> list[dict[str, Any]]:
    """Fit both nets without the fold and score its graphs."""
    plan = _plan(job.store)
    learned = list(plan.load(plan.training(job.collection, job.fold)))
    kept = plan.held_out(job.collection, job.fold)
    held_out = plan.load(kept)
    rows = []
    for name, settings in NETS.items():
        started = time.perf_counter()
        ranker = fit_for(settings, learned, job.seconds, job.seed)
        took = time.perf_counter() - started
        for graph, group in zip(held_out, kept["group"], strict=True):
            tau = kendall_tau(predict(name, ranker, graph), graph.runtimes)
            rows.append(
                {"net": name, "collection": job.collection, "graph": graph.name, "seed": job.seed}
                | {"group": group, "tau": tau, "seconds": took, "epochs": count_epochs(ranker)}
            )
    return rows


def _plan(store: Path) -> Plan:
    return make_plan(Store.open(store), "architecture", FOLDS)


def bench_accuracy(store: Path, seeds: int, seconds: float, processes: int) -> pl.DataFrame:
    """Return net, collection, graph, seed, group, tau, seconds, epochs; a row per graph."""
    jobs = [
        Job(store, collection, fold, seed, seconds)
        for seed in range(seeds)
        for collection in LAYOUT
        for fold in range(FOLDS)
    ]
    with open_pool(processes, torch.set_num_threads, 1) as pool, track(jobs, "Folds") as tracked:
        running = [pool.submit(score_fold, job) for job in jobs]
        return pl.DataFrame([row for _, done in zip(tracked, running, strict=True)
                             for row in done.result()])  # fmt: skip


def show_accuracy(scores: pl.DataFrame) -> Table:
    """Print each collection's taus, and the paired difference with its interval over programs."""
    table = _table("Out-of-fold Kendall's tau at equal time, mean over seeds")
    for name in ("Collection", "Graphs", "TGraph", "Ours", "Repeated", "Difference (95%)",
                 "Epochs"):  # fmt: skip
        table.add_column(name, justify="left" if name == "Collection" else "right", no_wrap=True)
    graphs = (
        scores.group_by("collection", "graph", "group", "net")
        .agg(pl.col("tau").mean())
        .pivot("net", index=["collection", "graph", "group"], values="tau")
        .sort("collection", "graph")
    )
    epochs = scores.group_by("collection", "net").agg(pl.col("epochs").mean())
    for collection in LAYOUT:
        own = graphs.filter(pl.col("collection") == collection)
        difference = mean_over_collections(_subtract(own))
        run = dict(epochs.filter(collection=collection).select("net", "epochs").iter_rows())
        table.add_row(
            collection, str(len(own)), f"{own['TGraph'].mean():.3f}", f"{own['ours'].mean():.3f}",
            f"{CEILINGS[collection]:.2f}",
            f"{difference:+.3f}", f"{run['TGraph']:.0f} / {run['ours']:.0f}",
        )  # fmt: skip
    mean = mean_over_collections(_subtract(graphs))
    table.add_row("mean (bar: +0.050)", "", "", "", "", f"{mean:+.3f}", "")
    return table


def _subtract(graphs: pl.DataFrame) -> pl.DataFrame:
    gain = pl.col("ours") - pl.col("TGraph")
    return graphs.select("collection", "graph", "group", score=gain)


def bench_transfer(store: Path, data: Path, seeds: int) -> Table:
    """Train on the CPU's programs only, and rank the configurations of real TPU programs."""
    table = _table("Real TPU v3 programs: tau of our net that learned from CPU programs alone")
    for name in ("Program", "Configurations", "Tau"):
        table.add_column(name, justify="left" if name == "Program" else "right", no_wrap=True)
    files = {file.path.stem: file for file in find_files(data)}
    net = LayoutGnnSettings()
    rankers = [fit_without(net, _plan(store), XLA, 0, seed) for seed in range(seeds)]
    for program in TPU:
        graph = net.preparation(read_graph(files[program].path, files[program].collection))
        taus = [kendall_tau(ranker.predict(graph), graph.runtimes) for ranker in rankers]
        table.add_row(program, f"{graph.num_configs:,}", _spread(np.array(taus)))
    return table


def bench_tpu(data: Path, seeds: int, seconds: float) -> Table:
    """Train on some configurations of a real TPU program, and rank the others."""
    table = _table(
        f"Real TPU v3 programs: tau on the configurations not learned from, {seconds:.0f} s"
    )
    for name in ("Program", "Learned", "Others", "Net", "Tau", "Over TGraph's"):
        left = name in ("Program", "Net")
        table.add_column(name, justify="left" if left else "right", no_wrap=True)
    files = {file.path.stem: file for file in find_files(data)}
    for program, count in TPU.items():
        graph = read_graph(files[program].path, files[program].collection)
        taus = {
            name: np.array([_rank_others(name, net, graph, count, seconds, seed)
                            for seed in range(seeds)])
            for name, net in TPU_NETS.items()
        }  # fmt: skip
        for name, own in taus.items():
            over = (own / taus["TGraph"]).mean()
            table.add_row(
                program, f"{count:,}", f"{graph.num_configs - count:,}", name, _spread(own),
                f"{over:.3f}" + (" (bar: 0.97)" if name == "ours" else ""),
            )  # fmt: skip
    return table


def _rank_others(
    name: str, net: RankerSettings, graph: Graph, count: int, seconds: float, seed: int
) -> float:
    """Return tau on the configurations outside the `count` training ones."""
    prepared = net.preparation(graph)
    order = np.random.default_rng(seed).permutation(graph.num_configs)
    learned, others = prepared.select(order[:count]), prepared.select(order[count:])
    ranker = fit_for(net, [learned] * STEPS_OF_ONE, seconds, seed)
    return kendall_tau(predict(name, ranker, others), others.runtimes)


def _spread(values: np.ndarray) -> str:
    return f"{values.mean():.3f} ({values.min():.3f} to {values.max():.3f})"


def _table(title: str) -> Table:
    return make_table(Text(title))


def main(
    data: Annotated[Path, typer.Argument(help="The measured CPU graphs.")],
    tpu: Annotated[Path | None, typer.Option(help="Real TPU files.")] = None,
    out: Annotated[Path, typer.Option()] = Path("build/layout-nets"),
    seconds: Annotated[float, typer.Option(help="A fit may take, on one thread.")] = 10.0,
    seeds: int = 3,
    processes: int = 2,
    only: Annotated[str, typer.Option(help="accuracy, speed, transfer or tpu.")] = "",
) -> None:
    """Print the tables one after the other."""
    console = Console(width=120)
    out.mkdir(parents=True, exist_ok=True)
    store = prepare_store(find_files(data), out / "store", Preparation(1)).folder
    if only in ("", "speed"):
        timed = choose_timed(_plan(store), tpu)
        for rounds in (LayoutGnnSettings().rounds, (WIDTH, WIDTH)):
            console.print(bench_speed(LayoutGnnSettings(rounds=rounds), TGraphSettings(), timed))
    if only in ("", "accuracy"):
        scores = bench_accuracy(store, seeds, seconds, processes)
        scores.write_csv(out / "scores.csv")
        console.print(show_accuracy(scores))
    if only in ("", "transfer") and tpu is not None:
        console.print(bench_transfer(store, tpu, seeds))
    if only in ("", "tpu") and tpu is not None:
        console.print(bench_tpu(tpu, seeds, 3 * seconds))


if __name__ == "__main__":
    typer.run(main)
