"""What propagated copies and layouts are worth as columns: trees with and without, out of fold.

    python -m benchmarks.propagated_columns ../shared/data/cpugraphs build/propagated

The folds, seeds and inner splits are those of `fastslow run`; differences are paired by graph, with
intervals over graphs. Every fit leaves a file, so the benchmark can be stopped and goes on.
"""

import argparse
import json
from pathlib import Path

import numpy as np

from benchmarks.bootstrap import bootstrap_mean
from solution.data.folders import find_files
from solution.domain.collection import LAYOUT
from solution.features.preparation import Preparation
from solution.models.base import RankerSettings
from solution.models.trees.lightgbm_ranker import LightGBMSettings
from solution.models.trees.propagated_ranker import PropagatedTreeSettings
from solution.store.preparing import prepare_store
from solution.system.files import write_json
from solution.system.terminal import say
from solution.training.fold_scores import fit_without, held_out, score_graphs
from solution.training.plan import Plan, make_plan

RANKERS: dict[str, RankerSettings] = {
    "without": LightGBMSettings(), "with": PropagatedTreeSettings()
}  # fmt: skip


def score_fold(plan: Plan, name: str, kind: str, fold: int, seed: int, folder: Path) -> np.ndarray:
    """Tau (graphs,) of the graphs of a fold, by a ranker that has not seen them."""
    path = folder / f"{name.replace(':', '-')}_{kind}_{fold}_{seed}.json"
    if not path.exists():
        settings = RANKERS[kind]
        ranker = fit_without(settings, plan, (name,), fold, seed)
        scores = score_graphs(ranker, held_out(plan, name, fold, settings))[:, 0]
        write_json({"tau": scores.tolist()}, path)
    return np.array(json.loads(path.read_text(encoding="utf-8"))["tau"])


def score_seeds(plan: Plan, name: str, kind: str, seeds: int, folder: Path) -> np.ndarray:
    """The mean tau (graphs,) over seeds of all labelled graphs of a collection."""
    by_seed = [
        np.concatenate(
            [score_fold(plan, name, kind, fold, seed, folder) for fold in plan.folds(name)]
        )
        for seed in range(seeds)
    ]
    return np.asarray(np.mean(by_seed, axis=0))


def main() -> None:
    """Fit what is missing, then say the differences."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--collections", nargs="+", default=list(LAYOUT))
    given = parser.parse_args()
    store = prepare_store(find_files(given.data), given.folder / "store", Preparation(None))
    plan = make_plan(store, "architecture", 5)
    for name in given.collections:
        found = {kind: score_seeds(plan, name, kind, given.seeds, given.folder) for kind in RANKERS}
        gain = bootstrap_mean(found["with"] - found["without"])
        say(
            f"{name}: without {found['without'].mean():.3f}, with {found['with'].mean():.3f}; "
            f"difference {gain:+.3f}, {len(found['with'])} graphs, {given.seeds} seeds"
        )


if __name__ == "__main__":
    main()
