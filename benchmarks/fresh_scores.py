"""Score models on the fresh set: programs that nothing was trained or chosen on.

    python -m benchmarks.fresh_scores solution/data/fresh runs/sample solution/serving/default.zip

Every graph of the folder is ranked by each run or bundle. Prints the scores by collection with 95%
intervals over structures, and how often k, the number of configurations to measure, sufficed.
Raises an error for a layout graph of a structure that the models have learned from. Tile graphs are
products of matrices of new sizes, a structure that all models know; each counts as another one.
"""

import argparse
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import polars as pl
from rich.console import Console
from rich.progress import track
from rich.table import Table

from ensembles.statistics import mean_of_all, means_by_member, show_interval
from solution import load_bundle, load_run, read_graph
from solution.data.folders import find_files
from solution.domain.collection import LAYOUT, NAMES, TILE
from solution.domain.graph import Graph
from solution.domain.metrics import Mean, score_ranking
from solution.runs.folder import RECORD
from solution.serving.bundle import Bundle
from solution.serving.calibration import REGRET, find_steps, needed
from solution.system.errors import InputError

NOTHING = "do nothing"  # the configurations in the order of the file
SCHEMA = {"collection": pl.String, "graph": pl.String, "group": pl.String, "member": pl.String,
          "score": pl.Float64, "configs": pl.Int64, "k": pl.Int64, "needed": pl.Int64}  # fmt: skip


def score_models(folder: Path, models: Mapping[str, Bundle]) -> pl.DataFrame:
    """Return a row for each labelled graph and model, with the columns of SCHEMA.

    group is the graph's structure; member is the model; k is null if none was given; needed is the
    smallest k that would have sufficed.
    """
    rows = []
    for file in track(find_files(folder), "ranking"):
        graph = read_graph(file.path)
        if graph.runtimes is not None:
            group = file.name if file.collection.name in TILE else graph.architecture
            for member, *numbers in _score_graph(file.collection.name, graph, models):
                rows.append((file.collection.name, file.name, group, member, *numbers))
    return pl.DataFrame(rows, SCHEMA, orient="row")


def _score_graph(
    name: str, graph: Graph, models: Mapping[str, Bundle]
) -> Iterator[tuple[str, float, int, int | None, int | None]]:
    """Yield a row of each model: its name, score, configurations, k, needed k."""
    assert graph.runtimes is not None
    count = graph.num_configs
    yield NOTHING, score_ranking(name, np.arange(count), graph.runtimes), count, None, None
    for member, bundle in models.items():
        ranking = bundle.rank(graph)
        if ranking.known and name in LAYOUT:
            raise InputError(f"{member} has learned from a program with the structure of {graph}.")
        score = score_ranking(name, ranking.scores, graph.runtimes)
        k = needed(find_steps(ranking.order, graph.runtimes), REGRET)
        yield member, score, count, ranking.measure, k


def show_scores(scores: pl.DataFrame) -> Table:
    """Return a table with a row per collection, and a column per model."""
    members = scores["member"].unique(maintain_order=True).to_list()
    means = means_by_member(scores)
    table = Table(title="Scores of the fresh set (95% over structures)", title_justify="left")
    for column in ("collection", "graphs", *members):
        table.add_column(column, justify="left" if column == "collection" else "right")
    for name in NAMES:
        found = {member: means[name, member] for member in members if (name, member) in means}
        if found:
            graphs = str(next(iter(found.values())).graphs)
            table.add_row(name, graphs, *(_show(found.get(member)) for member in members))
    whole = [mean_of_all(scores.filter(pl.col("member") == member)) for member in members]
    table.add_row("mean of the five", "", *map(_show, whole))
    return table


def _show(mean: Mean | None) -> str:
    return "" if mean is None else f"{mean.value:.3f} ({show_interval(mean)})"


def show_promises(scores: pl.DataFrame) -> Table:
    """Return a table with how often k was given, and how often it sufficed."""
    table = Table(title=f"k: within {REGRET:.0%} of the best", title_justify="left")
    for column in ("model", "collection", "graphs", "answered", "kept", "mean k", "of"):
        table.add_column(column, justify="left" if column in ("model", "collection") else "right")
    asked = scores.filter(pl.col("member") != NOTHING)
    for (member, name), own in asked.group_by("member", "collection", maintain_order=True):
        given = own.drop_nulls("k")
        kept = (given["needed"] <= given["k"]).sum()
        means = [f"{given[column].mean():.1f}" if len(given) else "" for column in ("k", "configs")]
        table.add_row(str(member), str(name), str(len(own)), str(len(given)), str(kept), *means)
    return table


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("folder", type=Path)
    parser.add_argument("models", nargs="+", type=Path, help="runs, or bundles as zip files")
    options = parser.parse_args()
    models = {
        str(path): load_run(path) if (path / RECORD).is_file() else load_bundle(path)
        for path in options.models
    }
    scores = score_models(options.folder, models)
    console = Console(width=120)
    console.print(show_scores(scores))
    console.print(show_promises(scores))


if __name__ == "__main__":
    main()
