"""Compare how fast searches find what a TPU's compiler estimates to be fast, on known estimates.

    python -m benchmarks.tpu_choosing FOLDER [--model EXPERIMENT]

FOLDER is the --out of `fastslow collect layout --target tpu:...`; nothing is compiled. Regret is
the best estimate so far over the best of the table, less 1; the default's is known from the start,
as in `fastslow choose`. "Ours" is led as there by what copies and padding cost under a TPU's layout
rules; or by a bundle; or with --model by an experiment's ranker, trained on the estimates of the
other folds: a fold holds whole families of programs out, or with --folds N every N-th program.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from benchmarks.bootstrap import bootstrap_mean
from benchmarks.replay import ALONE, LABELS, ORDER, OURS, PROCESS, list_methods, replay_seeds
from solution.choosing.guided import COPIES_DOUBT, Beliefs
from solution.choosing.offline import Lookup, Table, make_table
from solution.collecting.tpu.ranking import BACKEND
from solution.data.folders import find_files
from solution.data.npz import read_graph
from solution.domain.graph import Graph
from solution.experiments.base import find_experiment
from solution.features.preparation import repair_padding
from solution.models.layout.known_costs import add_known_costs
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
    if options.model:
        scores = score_by_others(graphs, options.model, options.folds)
    elif options.bundle:
        bundle = load_bundle(options.bundle)
        rankings = [bundle.rank(graph) for graph in graphs]
        known = sum(ranking.known for ranking in rankings)
        say(f"Led by {bundle.describe()} {known} programs that it has learned from are left out.")
        graphs = [g for g, ranking in zip(graphs, rankings, strict=True) if not ranking.known]
        scores = [ranking.scores for ranking in rankings if not ranking.known]
    else:
        scores = [add_known_costs(graph, BACKEND) for graph in graphs]
    tables = [make_table(graph) for graph in graphs]
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
    """Print a row per search: mean regret in % with a 95% interval over programs.

    Programs whose default is the best of the table are left out: nothing is to be found there.
    """
    gains = np.array([find_gain(table) for table in tables])
    some = np.flatnonzero(gains > 1)
    distinct = np.mean([len(np.unique(tables[n].runtimes)) for n in some])
    say(
        f"{len(some)} of {len(tables)} programs have something better than the default, by "
        f"{100 * (np.exp(np.log(gains[some]).mean()) - 1):.1f}% (geometric mean of their default's "
        f"estimate over the best). They have {distinct:.1f} different estimates on average; "
        f"{options.seeds} seeds. Regret in % of the best estimate after so many compilations "
        "beside the default's, 95% interval over programs; last column: compilations until within "
        f"{CLOSE:.0%}, mean."
    )
    say(f"| search | {' | '.join(map(str, SHOWN))} | within {CLOSE:.0%} |")
    say("|---" * (len(SHOWN) + 2) + "|")
    is_led_by_rules = not (options.model or options.bundle)
    builds = list_methods(Beliefs("copies", COPIES_DOUBT) if is_led_by_rules else None)
    for method in METHODS:
        with one_thread():
            curves = np.array([
                replay_seeds(
                    tables[n], scores[n], builds[method], range(options.seeds), MOST,
                    knows_default=True,
                )
                for n in some
            ])  # fmt: skip
        means = curves.mean(axis=1)  # (tables, MOST): means over seeds
        cells = []
        for count in SHOWN:
            mean = bootstrap_mean(100 * means[:, count - 1], 999)
            cells.append(f"{mean.value:.2f} ({mean.low:.2f} to {mean.high:.2f})")
        until = 1 + (curves > CLOSE).sum(axis=2).mean()
        say(f"| {method} | {' | '.join(cells)} | {until:.1f} |")


def find_gain(table: Table) -> float:
    """Return the default's estimate over the best of the table."""
    return float(Lookup(table).measure(table.space.default[None])[0].time / table.runtimes.min())


if __name__ == "__main__":
    main()
