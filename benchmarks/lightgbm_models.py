"""Measure LightGBM on layouts.

    python -m benchmarks.lightgbm_models ../shared/data build/benchmarks

Out of fold on the measured CPU graphs (folds by architecture, three seeds), compared with the same
trees on simply aggregated features: node features averaged over the graph, which are the same for
all its configurations, and these with the configuration's numbers averaged over the nodes; and with
the LightGBM study's features and protocol, for which it reports a tau of 0.004.
"""

import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.out_of_fold_scores import open_plan, score_out_of_fold
from solution.domain.collection import LAYOUT
from solution.domain.graph import Graph
from solution.experiments.base import find_experiment
from solution.features.nodes import numeric_features
from solution.models.base import RankerSettings
from solution.models.trees.lightgbm_ranker import LightGBMRanker, LightGBMSettings
from solution.system.terminal import make_table, output

KINDS = (
    "layout_study_linear_001",
    "layout_study_lightgbm_001",
    "layout_lightgbm_001",
    "layout_pointwise_001",
    "linear_ridge_001",
)


@dataclass(frozen=True)
class AggregatedSettings(LightGBMSettings):
    """Lambdarank on aggregated features."""

    with_configurations: bool = True

    def build(self, seed: int) -> "AggregatedRanker":
        return AggregatedRanker(self, seed)


class AggregatedRanker(LightGBMRanker):
    """Return sum, mean and maximum of node features; the mean of the configuration's 18 numbers."""

    def rows_of(self, graph: Graph) -> np.ndarray:
        nodes = numeric_features(graph)
        own = np.concatenate([nodes.sum(axis=0), nodes.mean(axis=0), nodes.max(axis=0)])
        rows = np.tile(own, (len(graph.distinct.first), 1))
        if not self.settings.with_configurations:
            return rows.astype(np.float32)
        means = [
            graph.layouts.layouts[graph.layouts.pairs(slice(row, row + 1))].mean(axis=(0, 1))
            for row in range(len(graph.layouts.codes))
        ]
        return np.concatenate([rows, np.array(means)], axis=1).astype(np.float32)


def main(shared: Path, place: Path) -> None:
    """Measure Kendall's tau out of fold, with 95% bootstrap intervals over graphs."""
    plan = open_plan(shared / "cpugraphs", place / "cpugraphs")
    rankers: dict[str, RankerSettings] = {
        "node features, aggregated": AggregatedSettings(with_configurations=False),
        "and configurations, averaged": AggregatedSettings(),
        **{name: find_experiment(name).ranker for name in KINDS},
    }
    table = make_table("Tau out of fold, mean of 3 seeds (95% interval over graphs)")
    for header in ("ranker", *LAYOUT):
        table.add_column(header)
    for name, settings in rankers.items():
        means = [score_out_of_fold(settings, plan, collection).mean("tau") for collection in LAYOUT]
        cells = [f"{mean:.3f}" for mean in means]
        table.add_row(name, *cells)
        output.print(name, *cells)
    output.print(table)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
