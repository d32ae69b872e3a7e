"""Compare how fast searches find good configurations, replayed on tables of known runtimes.

    python -m benchmarks.choosing RUN DATA OUT [--tpu FOLDER] [--products FOLDER]

RUN is a run on DATA: a program's prior scores come from models that have not seen it. With --tpu
also real TPU kernels, with --products tiles of `fastslow collect tile`; each is scored by the
default recipe's models, trained on all other kernels of its folder. These scores, and the results
of every optimizer, seed and collection, are files below OUT; existing files are not computed again.
At the end: the mean regret by measurements, with intervals over programs, and a picture.
"""

import argparse
import functools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from rich.console import Console

from benchmarks.bootstrap import bootstrap_mean
from benchmarks.policy_search import list_compared
from benchmarks.replay import OURS, replay_seeds
from benchmarks.tile_models import read_tiles
from ensembles import DEFAULT_RECIPE
from ensembles.recipe import choose_recipe, find_recipe
from ensembles.votes import merge_votes
from solution.choosing.offline import Table, make_table
from solution.data.folders import find_files
from solution.data.npz import read_graph
from solution.domain.graph import Graph
from solution.experiments.base import find_experiment
from solution.runs.folder import Run
from solution.system.files import replace_file
from solution.system.processes import one_thread
from solution.system.progress import track
from solution.system.terminal import make_table as make_console_table

SHOWN = (1, 2, 4, 8, 16, 32, 64, 128)
WITH_INTERVAL = (4, 8, 16)
MOST, SEEDS = 128, 20
# relative to the best: after how many measurements 90% of searches are this close
REACHES = (0.01, 0.03)
COLUMNS, LEAST_DRAWN = 3, 1e-2  # panels per row; least regret drawn, in %
SINGLE = 16  # with at most this many programs, each is also shown alone
TILES = "tile:xla"
FOLDS = 5  # folds of the products
FULL_PRODUCT = 60  # tiles of a product whose collection was complete
console = Console(width=170)


@dataclass(frozen=True, eq=False)
class Scored:
    """A table of runtimes with prior scores."""

    table: Table
    scores: np.ndarray  # (members,)


def main(arguments: argparse.Namespace) -> None:
    """Compute what is missing, and print all results."""
    readers = {"cpugraphs": functools.partial(read_run, arguments.run, arguments.data)}
    if arguments.tpu:
        readers["tpu"] = functools.partial(read_tpu, arguments.tpu, arguments.out / "tpu")
    if arguments.products:
        place = arguments.out / "products"
        readers["products"] = functools.partial(read_products, arguments.products, place)
    for source, reader in readers.items():
        if source not in (arguments.source or readers):
            continue
        groups = group(reader())
        for collection, scored in groups.items():
            place = arguments.out / source / collection.replace(":", "-")
            for method in arguments.method or list_compared():
                run_method(place, method, scored, arguments)
        for collection, scored in groups.items():
            place = arguments.out / source / collection.replace(":", "-")
            show(f"{source} {collection}", place, len(scored))
            if len(scored) <= SINGLE:
                show_programs(place, scored)
    draw_all(arguments.out)


def read_run(folder: Path, data: Path) -> list[Scored]:
    """Return the labelled programs of a run, with the out-of-fold ranking by its recipe."""
    run = Run.existing(folder)
    ranking = pl.read_parquet(run.ranking(choose_recipe(run, None).name, "out_of_fold"))
    found = ranking.partition_by("collection", "graph", as_dict=True)
    scored = []
    with track(find_files(data), "tables") as files:
        for file in files:
            graph = read_graph(file.path, file.collection)
            own = found.get(graph.key)
            if own is not None and graph.runtimes is not None and len(own) == graph.num_configs:
                table = make_table(graph)
                scored.append(Scored(table, own.sort("config")["score"].to_numpy()[table.first]))
    return scored


def read_tpu(folder: Path, place: Path) -> list[Scored]:
    """Return real kernels with different tiles, each scored by models trained on the others."""
    graphs = [graph for graph in read_tiles(folder) if len(graph.distinct.first) > 1]
    return hold_out(graphs, len(graphs), place)


def read_products(folder: Path, place: Path) -> list[Scored]:
    """Return collected products, each scored by models trained on the other folds."""
    graphs = [graph for graph in read_tiles(folder) if graph.num_configs >= FULL_PRODUCT]
    return hold_out(graphs, FOLDS, place)


def hold_out(graphs: Sequence[Graph], folds: int, place: Path) -> list[Scored]:
    """Return the default recipe's scores of each fold by models of the others, kept below
    `place`."""
    paths = [place / "scores" / f"{graph.name}.npy" for graph in graphs]
    with track(list(range(folds)), "models of the other folds") as todo:
        for fold in todo:
            held = range(fold, len(graphs), folds)
            if all(paths[number].exists() for number in held):
                continue
            others = [graph for number, graph in enumerate(graphs) if number % folds != fold]
            for number, scores in zip(
                held, score_by(others, [graphs[number] for number in held]), strict=True
            ):
                with replace_file(paths[number]) as temporary, temporary.open("wb") as stream:
                    np.save(stream, scores, allow_pickle=False)
    tables = [make_table(graph) for graph in graphs]
    return [
        Scored(table, np.load(path, allow_pickle=False)[table.first])
        for table, path in zip(tables, paths, strict=True)
    ]


def score_by(others: Sequence[Graph], held: Sequence[Graph]) -> list[np.ndarray]:
    """Return the default recipe's scores (configs,) of each held-out graph, trained on `others`.

    There is no early stopping, because there are too few kernels for a validation set.
    """
    recipe = find_recipe(DEFAULT_RECIPE)
    weights = recipe.weights(TILES)
    votes: list[dict[str, list[np.ndarray]]] = [{} for _ in held]
    for name in weights:
        experiment = find_experiment(name)
        if TILES in experiment.collections:
            models = [experiment.ranker.build(seed).fit(others, []) for seed in experiment.seeds]
            for own, graph in zip(votes, held, strict=True):
                own[name] = [np.asarray(model.predict(graph)) for model in models]
    return [merge_votes(own, weights, recipe.method) for own in votes]


def group(scored: Sequence[Scored]) -> dict[str, list[Scored]]:
    """Group the tables by collection."""
    names = dict.fromkeys(one.table.collection for one in scored)
    return {name: [one for one in scored if one.table.collection == name] for name in names}


def run_method(
    place: Path, method: str, scored: Sequence[Scored], arguments: argparse.Namespace
) -> None:
    """Replay one optimizer on all tables of a collection; a file per seed has (tables, MOST)
    regrets."""
    build = list_compared()[method]
    folder = _folder(place, method)
    for seed in range(arguments.seeds):
        path = folder / f"seed-{seed}.npy"
        if path.exists():
            continue
        # One thread: for matrices of tens of rows, threads would mostly wait for each other.
        with one_thread(), track(list(scored), f"{method}, seed {seed}") as todo:
            curves = [replay_seeds(one.table, one.scores, build, [seed], MOST)[0] for one in todo]
        with replace_file(path) as temporary, temporary.open("wb") as stream:
            np.save(stream, np.stack(curves), allow_pickle=False)


def show(title: str, place: Path, programs: int) -> None:
    """Print a row per optimizer: mean regret in %."""
    table = make_console_table(
        f"{title}, {programs} programs: mean regret in % after measurements",
        "In brackets: 95% interval over programs. Within: measurements after which 90% of searches "
        "are so close to the best.",
    )
    for header in ("search", "seeds", *map(str, SHOWN), *(f"within {r:.0%}" for r in REACHES)):
        table.add_column(header, justify="left" if header == "search" else "right")
    for method in list_compared():
        curves = read_curves(_folder(place, method))
        if curves is None:
            continue
        own = 100 * curves.mean(axis=0)  # (tables, MOST)
        cells = [_cell(own[:, count - 1], detailed=count in WITH_INTERVAL) for count in SHOWN]
        table.add_row(method, str(len(curves)), *cells, *(_reach(curves, r) for r in REACHES))
    console.print(table)


def draw_all(out: Path) -> None:
    """Draw the mean regret by measurements of all replayed optimizers."""
    places = [place for place in sorted(out.glob("*/*")) if any(place.glob("*/seed-*.npy"))]
    rows = -(-len(places) // COLUMNS)
    figure = Figure(figsize=(12, 3.2 * rows), layout="constrained")
    panels = figure.subplots(rows, COLUMNS, squeeze=False).ravel()
    for axes, place in zip(panels, places, strict=False):
        _draw(axes, place)
    for axes in panels[len(places) :]:
        axes.set_axis_off()
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=6)
    figure.savefig(out / "regret.png", dpi=80)
    console.print(f"Picture: {out / 'regret.png'}")


def _draw(axes: Axes, place: Path) -> None:
    for number, method in enumerate(list_compared()):
        curves = read_curves(_folder(place, method))
        if curves is not None:
            regret = np.maximum(100 * curves.mean(axis=(0, 1)), LEAST_DRAWN)
            axes.plot(
                np.arange(1, MOST + 1), regret, label=method, color=f"C{number % 10}",
                linewidth=2.5 if method == OURS else 1.2, linestyle="-" if number < 10 else "--",
            )  # fmt: skip
    title = f"{place.parent.name}, {place.name.replace('-', ':')}"
    axes.set(xscale="log", yscale="log", xlabel="measurements", ylabel="regret, %", title=title)


def read_curves(folder: Path) -> np.ndarray | None:
    """Return curves (seeds, tables, MOST), or None if there are none."""
    paths = sorted(folder.glob("seed-*.npy"))
    return np.stack([np.load(path, allow_pickle=False) for path in paths]) if paths else None


def _cell(values: np.ndarray, *, detailed: bool) -> str:
    if not detailed:
        return f"{values.mean():.2f}"
    mean = bootstrap_mean(values, 999)
    return f"{mean.value:.2f} [{mean.low:.2f}, {mean.high:.2f}]"


def _reach(curves: np.ndarray, share: float) -> str:
    reached = (curves <= share).mean(axis=tuple(range(curves.ndim - 1))) >= 0.9
    return str(int(np.argmax(reached)) + 1) if reached.any() else f"over {MOST}"


def show_programs(place: Path, scored: Sequence[Scored]) -> None:
    """Print, by program, after how many measurements 90% of the seeds are within 1% of the best."""
    table = make_console_table("Measurements until 90% of seeds are within 1% of the best")
    found = {name: read_curves(_folder(place, name)) for name in list_compared()}
    done = {name: curves for name, curves in found.items() if curves is not None}
    for header in ("program", "tiles", *done):
        table.add_column(header, justify="left" if header == "program" else "right")
    for number, one in enumerate(scored):
        cells = [_reach(curves[:, number], REACHES[0]) for curves in done.values()]
        table.add_row(one.table.name, str(len(one.table.runtimes)), *cells)
    console.print(table)


def _folder(place: Path, method: str) -> Path:
    return place / method.replace(", ", "-").replace(" ", "-")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path)
    parser.add_argument("data", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--tpu", type=Path)
    parser.add_argument("--products", type=Path)
    parser.add_argument("--source", action="append", choices=["cpugraphs", "tpu", "products"])
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--method", action="append", choices=list(list_compared()))
    main(parser.parse_args())
