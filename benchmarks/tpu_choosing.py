"""Compare how fast searches find what a TPU's compiler estimates to be fast, on known estimates.

    python -m benchmarks.tpu_choosing FOLDER [--model EXPERIMENT]

FOLDER is the --out of `fastslow collect layout --target tpu:...`; nothing is compiled. Regret is
the best estimate so far over the best of the table, less 1. The model of "ours" is a bundle
(default: the bundled one), or with --model an experiment's ranker, trained on the estimates of the
other folds: a fold holds whole families of programs out, or with --folds N every N-th program.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from benchmarks.bootstrap import bootstrap_mean
from benchmarks.replay import ALONE, LABELS, ORDER, OURS, PROCESS, list_methods, replay_seeds
from solution.choosing.offline import Table, make_table
from solution.data.folders import find_files
from solution.data.npz import read_graph
from solution.domain.graph import Graph
from solution.experiments.base import find_experiment
from solution.features.padding import repair_padding
from solution.serving.bundle import load_bundle
from solution.system.processes import one_thread
from solution.system.terminal import say

SHOWN, MOST = (1, 4, 8, 16, 32), 32
CLOSE = 0.01  # regret below which a search has found a good configuration
METHODS = (OURS, ALONE, LABELS[ORDER], "random", "genetic", "tpe", LABELS[PROCESS])


def main() -> None:
    """Replay every search on all tables, and print the mean regret."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--with", dest="bundle", type=Path, help="a bundle that guides the search")
    parser.add_argument("--model", help="an experiment whose ranker guides the search")
    parser.add_argument("--folds", type=int, default=0, help="hold out every N-th program instead")
    parser.add_argument("--seeds", type=int, default=20)
    options = parser.parse_args()
    graphs = read_graphs(options.folder)
    tables = [make_table(graph) for graph in graphs]
    if options.model:
        scores = score_by_others(graphs, options.model, options.folds)
    else:
        bundle = load_bundle(options.bundle) if options.bundle else load_bundle()
        scores = [bundle.rank(graph).scores for graph in graphs]
        say(f"Led by {bundle.describe()}")
    show(tables, [score[table.first] for table, score in zip(tables, scores, strict=True)], options)


def read_graphs(folder: Path) -> list[Graph]:
    """Return the graphs of layouts below a folder that have more than one distinct estimate."""
    files = [file for file in find_files(folder) if file.collection.kind == "layout"]
    graphs = [repair_padding(read_graph(file.path, file.collection)) for file in files]
    return [g for g in graphs if g.runtimes is not None and g.runtimes.max() > g.runtimes.min()]


def score_by_others(graphs: Sequence[Graph], name: str, folds: int) -> list[np.ndarray]:
    """Return scores (configs,) of each graph by models that have not seen its fold."""
    experiment = find_experiment(name)
    families = [graph.name.rpartition("_")[0] for graph in graphs]
    fold = [n % folds for n in range(len(graphs))] if folds else families
    scores: dict[int, np.ndarray] = {}
    for held in dict.fromkeys(fold):
        others = [graph for graph, one in zip(graphs, fold, strict=True) if one != held]
        model = experiment.ranker.build(experiment.seeds[0]).fit(others, [])
        for number, one in enumerate(fold):
            if one == held:
                scores[number] = np.asarray(model.predict(graphs[number]))
        say(f"{name}, without {held}: trained on {len(others)} programs")
    return [scores[number] for number in range(len(graphs))]


def show(
    tables: Sequence[Table], scores: Sequence[np.ndarray], options: argparse.Namespace
) -> None:
    """Print a row per search: mean regret in % with a 95% interval over programs."""
    distinct = np.mean([len(np.unique(table.runtimes)) for table in tables])
    say(
        f"{len(tables)} programs, {np.mean([len(t.runtimes) for t in tables]):.1f} configurations "
        f"each, {distinct:.1f} different estimates; {options.seeds} seeds. Regret in % of the "
        "best estimate, 95% interval over programs; the last column: mean number of compilations "
        f"until within {CLOSE:.0%}."
    )
    say(f"| search | {' | '.join(map(str, SHOWN))} | within {CLOSE:.0%} |")
    say("|---" * (len(SHOWN) + 2) + "|")
    builds = list_methods()
    for method in METHODS:
        with one_thread():
            curves = np.stack([
                replay_seeds(table, own, builds[method], range(options.seeds), MOST)
                for table, own in zip(tables, scores, strict=True)
            ])  # fmt: skip
        means = curves.mean(axis=1)  # (tables, MOST): means over seeds
        cells = []
        for count in SHOWN:
            mean = bootstrap_mean(100 * means[:, count - 1], 999)
            cells.append(f"{mean.value:.2f} ({mean.low:.2f} to {mean.high:.2f})")
        until = 1 + (curves > CLOSE).sum(axis=2).mean()
        say(f"| {method} | {' | '.join(cells)} | {until:.1f} |")


if __name__ == "__main__":
    main()
