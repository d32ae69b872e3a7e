"""Compare every published system on the same data, with the same time: one table, one plot.

    make papers      .venv/bin/python -m benchmarks.papers DATA --seconds 6

A net is fitted for the given seconds on one thread, once for each budget. Short fits measure the
time of an epoch and the fixed cost; then as many epochs are run as fill the time, at least one. Our
layout net runs its own epochs, which take less. Tile nets, which learn from fifteen times as many
graphs, get four times as long. Trees and linear models train to the end. Nets with attention
among all nodes are scored on fewer configurations (benchmarks.claims.configs_of). Scores are
out of fold, with structures held out and, in other fits, with families; only trees stop early. The
cost of a fit is measured with nothing else running. Finished fits are kept in build/papers and not
repeated.
"""

import time
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Annotated, Any

import polars as pl
import typer
from rich.console import Console

from benchmarks.claims import fit_of
from benchmarks.paper_report import show_costs, show_orders, show_scores, write_report
from benchmarks.paper_systems import LAYOUT_SYSTEMS, TILE_SYSTEMS, System
from benchmarks.parts import (
    FOLDS,
    Fit,
    Fitting,
    begin,
    compute,
    keep,
    prepare,
    stops_early,
)
from benchmarks.timed_fits import unwrap, with_epochs
from solution.commands.options import ClusterAddress, ExecutorOption, make_executor
from solution.domain.collection import LAYOUT, TILE
from solution.system.memory import measure
from solution.system.processes import one_thread, open_pool
from solution.system.progress import track
from solution.training.fold_scores import fit_without, held_out
from solution.training.folds import Scheme

# the last number multiplies the seconds
KINDS = ((LAYOUT_SYSTEMS, LAYOUT, 1), (TILE_SYSTEMS, TILE, 4))


def list_fits(budgets: Sequence[float], seeds: int, folds: int = FOLDS) -> list[Fit]:
    """Return every system, collection, scheme, fold and seed; fits without a time limit only once.

    Of the folds by family all are held out: the few families of one fold give no interval.
    """
    held: dict[Scheme, int] = {"architecture": folds, "family": FOLDS}
    return [
        fit_of(name, systems[name], collection, fold, seed, longer * seconds, "last", scheme)
        for seed, (scheme, most) in product(range(seeds), held.items())
        for systems, collections, longer in KINDS
        for name, collection, fold in product(systems, collections, range(most))
        for seconds in (budgets if stops_early(systems[name].settings()) else [0.0])
    ]


def cost(work: Fitting, name: str, collection: str) -> dict[str, Any]:
    """Measure an epoch of a net, or a whole fit of another model, in a separate process."""
    settings = find_system(name, collection).settings()
    if hasattr(unwrap(settings), "training"):
        settings = with_epochs(settings, 1)
    plan = work.plan_of(settings)
    with one_thread(), measure() as spent:
        ranker = fit_without(settings, plan, (collection,), 0, 0)
        graphs = list(held_out(plan, collection, 0, settings))
        started = time.process_time()
        for graph in graphs:
            ranker.predict(graph)
        scored = sum(graph.num_configs for graph in graphs) / (time.process_time() - started)
    net = getattr(unwrap(ranker), "net_", None)
    parameters = sum(p.numel() for p in net.parameters()) if net is not None else None
    return {
        "system": name,
        "kind": "tile" if collection in TILE else "layout",
        "parameters": parameters,
        "configs_per_second": scored,
        "megabytes": spent.peak_megabytes,
    }


def find_system(name: str, collection: str) -> System:
    """Return the system of that name for the collection; layout and tile systems may share a
    name."""
    return (TILE_SYSTEMS if collection in TILE else LAYOUT_SYSTEMS)[name]


def measure_costs(stores: dict[bool, Path]) -> pl.DataFrame:
    """Return system, kind, parameters, configs_per_second (predicting), megabytes."""
    rows = []
    asked = [(name, collections[-1]) for systems, collections, _ in KINDS for name in systems]
    with track(asked, "Costs") as tracked:
        for name, collection in tracked:
            with open_pool(1, begin) as pool:
                rows.append(pool.submit(cost, Fitting(stores), name, collection).result())
    return pl.DataFrame(rows, infer_schema_length=None)


def main(
    data: Annotated[Path, typer.Argument(help="The measured CPU graphs.")],
    seconds: Annotated[list[float], typer.Option(help="Of a fit; may be repeated.")] = [6.0],  # noqa: B006
    seeds: int = 3,
    folds: Annotated[int, typer.Option(help="By architecture: one or both.")] = FOLDS,
    workers: int = 2,
    executor: ExecutorOption = "local",
    address: ClusterAddress = None,
    out: Annotated[Path, typer.Option()] = Path("build/papers"),
    report: Annotated[Path, typer.Option(help="Where the table and the plot go.")] = Path(),
) -> None:
    """Measure what is missing, print, and write the report."""
    stores = prepare(data, out)
    known = out / "costs.parquet"
    if not known.exists():
        keep(measure_costs(stores), known)
    costs = pl.read_parquet(known)
    done_on = make_executor(executor, address, workers)
    scores = compute(list_fits(seconds, seeds, folds), stores, out / "parts", done_on, "Fits")
    console = Console(width=140)
    for table in (*show_scores(scores), show_orders(scores), show_costs(costs)):
        console.print(table)
    write_report(scores, costs, report)


if __name__ == "__main__":
    typer.run(main)
