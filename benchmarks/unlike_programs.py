"""Score rankers on programs unlike all training programs, and simple rules without learning.

    python -m benchmarks.unlike_programs CPUGRAPHS COLLECTED --seeds 3

Every ranker is trained on all labelled layout programs of one folder, and ranks those of the
other; architectures in both are left out. The rules learn nothing. *Copied bytes* are the bytes
that a configuration copies according to our rules of layout assignment. *By stride* weights each
byte by the distance between reads. *What is slow* adds short loops, two-step reductions and slow
products. *At once* gives less weight to operations that a library fuses with a reduction; it is the
prior of the cost net. *Arguments free* ignores copies of arguments. Kendall's tau, means with 95%
intervals over programs.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Annotated

import numpy as np
import polars as pl
import typer

from benchmarks.added_programs import open_layouts
from benchmarks.bootstrap import bootstrap_mean
from benchmarks.propagation import count_copied
from ensembles.recipe import find_recipe
from ensembles.votes import average, scale
from solution.data.folders import find_files
from solution.data.npz import read_graph
from solution.domain.collection import LAYOUT
from solution.domain.graph import Graph
from solution.domain.metrics import kendall_tau
from solution.experiments.base import find_experiment
from solution.features.preparation import repair_padding
from solution.features.propagation.propagation import Propagation
from solution.features.propagation.state_table import state_tables
from solution.models.layout.known_costs import weigh_states
from solution.system.progress import track
from solution.system.terminal import output
from solution.training.fit import split_training
from solution.training.folds import NO_FOLD
from solution.training.plan import Plan
from tests.made.costs import sum_costs

RANKERS = ("layout_lightgbm_001", "layout_gnn_001", "layout_cost_net_001")
WEIGHTS = find_recipe("best").members
MERGED = {name: weight for name, weight in WEIGHTS.items() if name in RANKERS}
Scores = dict[tuple[str, str], np.ndarray]  # by collection and graph: (configs,)


def read_unlike(folder: Path, plan: Plan) -> list[Graph]:
    """Return the labelled layout graphs whose architectures are not in the training data."""
    known = set(plan.graphs.filter(pl.col("labelled"))["architecture"].to_list())
    files = [file for file in find_files(folder) if file.collection.kind == "layout"]
    graphs = [read_graph(f.path, f.collection) for f in files if f.split != "test"]
    return [repair_padding(graph) for graph in graphs if graph.architecture not in known]


def predict(name: str, plan: Plan, graphs: Sequence[Graph], seeds: int) -> Scores:
    """Return an experiment's scores of graphs, averaged over seeds."""
    experiment = find_experiment(name)
    settings, found = experiment.ranker, defaultdict(list)
    groups = sorted({experiment.learns_from(name) for name in LAYOUT})
    with track(list(product(groups, range(seeds))), name) as tracked:
        for group, seed in tracked:
            fit_on, validate_on = split_training(plan, group, NO_FOLD, seed)
            ranker = settings.build(seed)
            ranker.fit(plan.load(fit_on, settings), plan.load(validate_on, settings))
            for graph in graphs:
                if graph.collection.name in group:
                    scores = ranker.predict(settings.preparation.prune(graph))
                    found[graph.collection.name, graph.name].append(scores)
    return {key: average(scores, "z_score") for key, scores in found.items()}


def count_known(graphs: Sequence[Graph]) -> dict[str, Scores]:
    """Return the scores of the rules that need no training."""
    found: dict[str, Scores] = defaultdict(dict)
    for graph in graphs:
        known = weigh_states(graph, state_tables("cpu")(graph))
        copied = known.copying + known.arguments
        costs = {
            "by stride": copied,
            "what is slow": copied + known.slowed,
            "at once": known.total + known.arguments,
            "arguments free": known.total,
        }
        key = graph.collection.name, graph.name
        propagation = Propagation(graph)
        copied_bytes = count_copied(propagation, propagation.number())
        found["copied bytes"][key] = copied_bytes[graph.layouts.rows]
        for name, each in costs.items():
            found[name][key] = sum_costs(graph, each)
    return dict(found)


def tabulate(columns: Mapping[str, Scores], graphs: Sequence[Graph]) -> pl.DataFrame:
    """Return the mean tau of each collection and of all, with an interval over programs."""
    taus = pl.DataFrame(
        [
            {"collection": graph.collection.name}
            | {
                name: kendall_tau(scores[graph.collection.name, graph.name], runtimes)
                for name, scores in columns.items()
            }
            for graph in graphs
            if (runtimes := graph.runtimes) is not None
        ]
    ).sort("collection")
    rows = []
    for part in (*taus.partition_by("collection", maintain_order=True), taus):
        means = {name: f"{bootstrap_mean(part[name].to_numpy()):.3f}" for name in columns}
        name = "all" if part is taus else part["collection"][0]
        rows.append({"collection": name, "programs": len(part), **means})
    return pl.DataFrame(rows)


def main(
    data: Annotated[Path, typer.Argument(help="What is learned from.")],
    other: Annotated[Path, typer.Argument(help="What is ranked.")],
    out: Path = Path("build/unlike"),
    ranker: Annotated[list[str], typer.Option(help="Experiments.")] = list(RANKERS),  # noqa: B006, B008
    seeds: int = 1,
) -> None:
    """Fit all rankers, and print the table."""
    plan = open_layouts(data, out / "store")
    graphs = read_unlike(other, plan)
    columns = count_known(graphs)
    columns |= {name: predict(name, plan, graphs, seeds) for name in ranker}
    if set(MERGED) <= set(columns):
        columns["both nets"] = {
            key: sum(
                weight * scale(columns[name][key], "z_score") for name, weight in MERGED.items()
            )
            for key in columns["copied bytes"]
        }
    with pl.Config(tbl_cols=-1, tbl_width_chars=200, fmt_str_lengths=40):
        output.print(tabulate(columns, graphs))


if __name__ == "__main__":
    typer.run(main)
