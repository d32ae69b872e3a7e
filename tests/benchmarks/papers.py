"""Every published system on the same data, with the same time: one table, one plot.

    make papers      .venv/bin/python -m tests.benchmarks.papers DATA --seconds 6

A net is fitted for so many seconds on one thread, once for each budget: short fits show how long an
epoch takes, and what is done once, and as many epochs are run as fill the time, at least one; our
layout net is done before, for longer it would learn by heart. Tile nets, which learn from fifteen
times as many graphs, get four times as long. Trees and linear models take what they take. Scores
are out of fold, by architecture; nothing is stopped early but trees. What a fit costs is measured
alone.
"""

import os
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import as_completed
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import polars as pl
import typer
from rich.console import Console

from solution.data.folders import find_files
from solution.domain.collection import LAYOUT, TILE
from solution.domain.graph import Graph
from solution.domain.metrics import list_mle, ordered_pair_accuracy, top_k_slowdown
from solution.features.preparation import Preparation
from solution.models.base import Ranker, RankerSettings
from solution.store.preparing import prepare_store
from solution.store.store import Store
from solution.system.cost import measure
from solution.system.processes import one_thread, open_pool
from solution.system.progress import track
from solution.training.fold_scores import fit_without, held_out, score_graphs
from solution.training.plan import Plan, make_plan
from tests.benchmarks.paper_report import show_costs, show_orders, show_scores, write_report
from tests.benchmarks.paper_systems import LAYOUT_SYSTEMS, TILE_SYSTEMS, System
from tests.benchmarks.timed_fits import FitTimes, count_epochs, time_fits, unwrap, with_epochs

FOLDS = 2
KINDS = ((LAYOUT_SYSTEMS, LAYOUT, 1), (TILE_SYSTEMS, TILE, 4))  # how many times as long


@dataclass(frozen=True)
class Job:
    """One fit."""

    name: str
    collection: str
    fold: int
    seed: int
    budget: float  # seconds
    epochs: int  # that fill it; 0: the fit takes what it takes

    @property
    def system(self) -> System:
        """What is fitted."""
        return (TILE_SYSTEMS if self.collection in TILE else LAYOUT_SYSTEMS)[self.name]


def standardised_list_mle(scores: np.ndarray, runtimes: np.ndarray) -> float:
    """ListMLE of standardised scores, for those of different systems have different scales."""
    return list_mle((scores - scores.mean()) / max(float(scores.std()), 1e-9), runtimes)


def top_5_slowdown(scores: np.ndarray, runtimes: np.ndarray) -> float:
    """What the best of the five first costs, over the best of all."""
    return top_k_slowdown(scores, runtimes, 5)


MEASURES = {
    "OPA": ordered_pair_accuracy,
    "ListMLE": standardised_list_mle,
    "slowdown": top_5_slowdown,
}
_plans: dict[bool, Plan]  # of a worker process; True: of whole graphs


def begin(stores: dict[bool, Path]) -> None:
    """Open the stores in a worker process; each has one thread."""
    global _plans
    os.environ["OMP_NUM_THREADS"] = "1"
    _plans = {
        whole: make_plan(Store.open(store), "architecture", FOLDS)
        for whole, store in stores.items()
    }


def plan_of(settings: RankerSettings) -> Plan:
    """The plan with the nodes that the system looks at."""
    return _plans[settings.needed_hops is None]


def learned(settings: RankerSettings, collection: str, fold: int) -> list[Graph]:
    """The graphs of all other folds."""
    plan = plan_of(settings)
    return list(plan.load(plan.training(collection, fold)))


def time_system(name: str, collection: str) -> FitTimes:
    """What fits of a net take."""
    settings = Job(name, collection, 0, 0, 0.0, 0).system.settings()
    return time_fits(settings, learned(settings, collection, 0))


def fit(job: Job) -> tuple[Ranker, float]:
    """The ranker that has not seen the fold, and how long it was fitted."""
    settings = job.system.settings()
    with one_thread():
        if not job.epochs:
            started = time.perf_counter()
            ranker = fit_without(settings, plan_of(settings), (job.collection,), job.fold, job.seed)
            return ranker, time.perf_counter() - started
        graphs = learned(settings, job.collection, job.fold)
        ranker = with_epochs(settings, job.epochs).build(job.seed)
        started = time.perf_counter()
        ranker.fit(graphs, [])
        return ranker, time.perf_counter() - started


def score(job: Job) -> list[dict[str, Any]]:
    """A row for each graph of the fold."""
    ranker, seconds = fit(job)
    graphs = list(held_out(plan_of(job.system.settings()), job.collection, job.fold))
    values = score_graphs(ranker, graphs, MEASURES.values())
    common = {"system": job.name, "collection": job.collection, "seed": job.seed}
    common |= {"budget": job.budget, "seconds": seconds, "epochs": count_epochs(ranker)}
    return [
        {**common, "graph": graph.name, **dict(zip(("score", *MEASURES), row, strict=True))}
        for graph, row in zip(graphs, values.tolist(), strict=True)
    ]


def cost(name: str, collection: str) -> dict[str, Any]:
    """An epoch of a net, or a whole fit, in a process that does nothing else."""
    job = Job(name, collection, 0, 0, 0.0, 0)
    settings = job.system.settings()
    if is_net(job.system):
        settings = with_epochs(settings, 1)
    plan = plan_of(settings)
    with one_thread(), measure() as spent:
        ranker = fit_without(settings, plan, (collection,), 0, 0)
        graphs = list(held_out(plan, collection, 0))
        started = time.perf_counter()
        for graph in graphs:
            ranker.predict(graph)
        scored = sum(graph.num_configs for graph in graphs) / (time.perf_counter() - started)
    net = getattr(unwrap(ranker), "net_", None)
    parameters = sum(p.numel() for p in net.parameters()) if net is not None else None
    return {
        "system": name,
        "kind": "tile" if collection in TILE else "layout",
        "parameters": parameters,
        "configs_per_second": scored,
        "megabytes": spent.peak_megabytes,
    }


def is_net(system: System) -> bool:
    """Whether it is trained in epochs."""
    return hasattr(unwrap(system.settings()), "training")


def list_jobs(
    budgets: Sequence[float], seed: int, times: Mapping[tuple[str, str], FitTimes]
) -> list[Job]:
    """All fits with one seed."""
    jobs = []
    for systems, collections, longer in KINDS:
        for name, collection in product(systems, collections):
            found = times.get((name, collection))
            for seconds in budgets if found else [0.0]:
                epochs = found.epochs_in(longer * seconds) if found else 0
                if systems[name].own_epochs:
                    epochs = min(epochs, count_epochs(systems[name].settings().build(0)))
                jobs += [
                    Job(name, collection, fold, seed, longer * seconds, epochs)
                    for fold in range(FOLDS)
                ]
    return jobs


def measure_costs(stores: dict[bool, Path]) -> pl.DataFrame:
    """system, kind, parameters, configs_per_second (predicting), megabytes."""
    rows = []
    asked = [(name, collections[-1]) for systems, collections, _ in KINDS for name in systems]
    with track(asked, "Costs") as tracked:
        for name, collection in tracked:
            with open_pool(1, begin, stores) as pool:
                rows.append(pool.submit(cost, name, collection).result())
    return pl.DataFrame(rows, infer_schema_length=None)


def measure_times(stores: dict[bool, Path], workers: int) -> dict[tuple[str, str], FitTimes]:
    """What fits of each net take, by its name and the collection."""
    asked = [
        (name, collection)
        for systems, collections, _ in KINDS
        for name, collection in product(systems, collections)
        if is_net(systems[name])
    ]
    with open_pool(workers, begin, stores) as pool, track(asked, "Epochs") as tracked:
        running = [pool.submit(time_system, *key) for key in asked]
        return {key: done.result() for key, done in zip(tracked, running, strict=True)}


def measure_scores(jobs: Sequence[Job], stores: dict[bool, Path], workers: int) -> pl.DataFrame:
    """system, collection, seed, budget, seconds, epochs, graph, score and MEASURES."""
    with open_pool(workers, begin, stores) as pool, track(jobs, "Fits") as tracked:
        running = [pool.submit(score, job) for job in jobs]
        found = zip(tracked, as_completed(running), strict=True)
        return pl.DataFrame([row for _, done in found for row in done.result()])


def main(
    data: Annotated[Path, typer.Argument(help="The measured CPU graphs.")],
    seconds: Annotated[list[float], typer.Option(help="Of a fit; may be repeated.")] = [6.0],  # noqa: B006
    seeds: int = 3,
    workers: int = 2,
    out: Annotated[Path, typer.Option()] = Path("build/papers"),
    report: Annotated[Path, typer.Option(help="Where the table and the plot go.")] = Path(),
    again: Annotated[bool, typer.Option(help="Measure, or only report what was.")] = True,
) -> None:
    """Measure, print, and write the report."""
    out.mkdir(parents=True, exist_ok=True)
    if again:
        files, kinds = find_files(data), {True: Preparation(None), False: Preparation(1)}
        stores = {
            whole: prepare_store(files, out / ("whole" if whole else "pruned"), how).folder
            for whole, how in kinds.items()
        }
        measure_costs(stores).write_parquet(out / "costs.parquet")
        times = measure_times(stores, workers)
        for seed in range(seeds):
            found = measure_scores(list_jobs(seconds, seed, times), stores, workers)
            found.write_parquet(out / f"scores-{seed}.parquet")
    costs = pl.read_parquet(out / "costs.parquet")
    scores = pl.concat(pl.read_parquet(out / f"scores-{seed}.parquet") for seed in range(seeds))
    console = Console(width=140)
    for table in (*show_scores(scores), show_orders(scores), show_costs(costs)):
        console.print(table)
    write_report(scores, costs, report)


if __name__ == "__main__":
    typer.run(main)
