"""Measure LightGBM on layouts, and the cost of tables and trees with a million rows.

    python -m benchmarks.lightgbm_models ../shared/data build/benchmarks [scores | million]

Out of fold on the measured CPU graphs (folds by architecture, three seeds), compared with the same
trees on simply aggregated features: node features averaged over the graph, which are the same for
all its configurations, and these with the configuration's numbers averaged over the nodes; and with
the LightGBM study's features and protocol, for which it reports a tau of 0.004.
"""

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter, process_time

import lightgbm
import numpy as np

from benchmarks.memory import memory, run_apart
from benchmarks.out_of_fold_scores import open_plan, score_out_of_fold
from benchmarks.programs import draw_candidates, draw_configs, make_program
from solution.domain.codebook import Codebook
from solution.domain.collection import LAYOUT, TILE, collection
from solution.domain.graph import Graph
from solution.domain.vocabulary import TILE_BLOCKS
from solution.experiments.base import find_experiment
from solution.features.layout import layout_table
from solution.features.nodes import numeric_features
from solution.features.preparation import Preparation
from solution.features.tile.tile_table import FEATURES, tile_rows
from solution.models.base import RankerSettings
from solution.models.trees.boosted_trees import GraphRows
from solution.models.trees.lightgbm_ranker import LightGBMRanker, LightGBMSettings
from solution.system.progress import track
from solution.system.terminal import make_table, output
from solution.training.plan import IS_LABELLED

KINDS = (
    "layout_study_linear_001",
    "layout_study_lightgbm_001",
    "layout_lightgbm_001",
    "layout_pointwise_001",
    "linear_ridge_001",
)
ROWS, CONFIGS = 1_000_000, 1842  # on average, a tile graph of the competition has 1,842 tiles
# of a layout graph; 347 is the competition's mean
NODES, CONFIGURABLE, LAYOUTS = 10_000, 347, 40_000


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


def main(shared: Path, place: Path, part: str | None) -> None:
    """Print both parts, or the named one."""
    if part in (None, "scores"):
        measure_scores(shared / "cpugraphs", place)
    if part in (None, "million"):
        measure_million(shared / "cpugraphs", place)


def measure_scores(data: Path, place: Path) -> None:
    """Measure Kendall's tau out of fold, with 95% bootstrap intervals over graphs."""
    plan = open_plan(data, place / "cpugraphs")
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


def measure_million(data: Path, place: Path) -> None:
    """Measure each kind in a separate process, for its memory."""
    for kind in CHILDREN:
        show_steps(kind, run_apart(__spec__.name, str(data), str(place), kind))


def show_steps(kind: str, result: dict) -> None:
    """Print a table of the cost of each step of a process."""
    table = make_table(f"{kind}: {result['rows']:,} rows of {result['columns']} columns")
    for header in ("step", "seconds", "processor seconds", "peak memory so far (MB)"):
        table.add_column(header, justify="right")
    for step in result["steps"]:
        name, seconds, processor, megabytes = step
        table.add_row(name, f"{seconds:.1f}", f"{processor:.1f}", f"{megabytes:,.0f}")
    output.print(table)


def run_layout(data: Path, place: Path) -> None:
    """Build the table of synthetic programs of real size; print a JSON object."""
    graphs = -(-ROWS // LAYOUTS)
    table = np.empty((graphs * LAYOUTS, len(layout_table.FEATURES)), np.float32)
    steps = [_measure("before", (0.0, 0.0))]
    spent = np.zeros(2)  # without the time to make the programs
    with track(range(graphs), "Tables") as numbers:
        for number in numbers:
            graph = make_up(number)
            begun = _now()
            rows = layout_table.layout_rows(graph)
            table[number * LAYOUTS : (number + 1) * LAYOUTS] = rows
            spent += _now() - begun
    name = f"feature table, {CONFIGURABLE} configurable nodes"
    steps.append(_measure(name, spent))
    print(json.dumps({"rows": len(table), "columns": table.shape[1], "steps": steps}))


def make_up(seed: int) -> Graph:
    """Return a synthetic program with LAYOUTS configurations of CONFIGURABLE nodes."""
    program = make_program(seed, NODES, 2 * NODES, CONFIGURABLE)
    candidates = draw_candidates(seed, program)
    starts = np.cumsum([0, *(len(choices) for choices in candidates.layouts)])
    codes = draw_configs(seed, candidates, LAYOUTS).astype(np.uint16)
    graph = Graph(
        f"program_{seed}",
        collection(LAYOUT[0]),
        program.features,
        program.opcodes,
        program.edges,
        program.configurable,
        Codebook(np.concatenate(candidates.layouts), starts, codes, np.arange(LAYOUTS)),
        None,
    )
    return Preparation(1)(graph)


def run_tile(data: Path, place: Path) -> None:
    """Build the table and train on it; print a JSON object."""
    plan = open_plan(data, place / "cpugraphs")
    kernels = list(plan.load(plan.rows(TILE[0], IS_LABELLED)))
    graphs = -(-ROWS // CONFIGS)
    table = np.empty((graphs * CONFIGS, len(FEATURES)), np.float32)
    runtimes = []
    steps = [_measure("before", (0.0, 0.0))]
    begun = _now()
    with track(range(graphs), "Tables") as numbers:
        for number in numbers:
            graph = enlarge(kernels[number % len(kernels)], number)
            table[number * CONFIGS : (number + 1) * CONFIGS] = tile_rows(graph)
            runtimes.append(np.asarray(graph.runtimes))
    steps.append(_measure("feature table", _now() - begun))
    begun = _now()
    settings = LightGBMSettings(max_configs=CONFIGS)
    ranker = settings.build(seed=0)
    parts = np.split(table, graphs)
    learned = ranker.make_table(
        [GraphRows(*rows, TILE[0]) for rows in zip(parts, runtimes, strict=True)]
    )
    del table, parts
    parameters = settings.parameters(0, learned.features.size)
    lightgbm.train(parameters, ranker.make_dataset(learned), settings.rounds)
    steps.append(_measure(f"lambdarank, {settings.rounds} rounds", _now() - begun))
    print(json.dumps({"rows": graphs * CONFIGS, "columns": len(FEATURES), "steps": steps}))


def enlarge(graph: Graph, seed: int) -> Graph:
    """Return the kernel with CONFIGS synthetic configurations: scaled at random, with made-up
    runtimes."""
    generator = np.random.default_rng(seed)
    chosen = generator.integers(0, graph.num_configs, CONFIGS)
    tiles = graph.tiles[chosen].copy()
    for block in TILE_BLOCKS.values():
        own = tiles[:, block]
        smaller = np.ceil(own[:, :6] * generator.uniform(0.3, 1, (CONFIGS, 6)))
        own[:, :6] = smaller
        own[:, 6] = smaller.sum(axis=1)
        own[:, 7] = np.where(smaller > 0, smaller, 1).prod(axis=1) * (smaller.max(axis=1) > 0)
    runtimes = np.asarray(graph.runtimes)[chosen] * generator.uniform(0.9, 1.1, CONFIGS)
    return Graph(
        graph.name,
        graph.collection,
        graph.node_features,
        graph.node_opcodes,
        graph.edges,
        graph.configurable,
        tiles,
        runtimes,
    )


def _now() -> np.ndarray:
    """Return wall-clock seconds and processor seconds."""
    return np.array([perf_counter(), process_time()])


def _measure(name: str, spent: Sequence[float] | np.ndarray) -> tuple[str, float, float, float]:
    seconds, busy = map(float, spent)
    peak = memory("VmHWM")
    print(f"{name}: {seconds:.1f} s, {busy:.1f} s of processors, {peak:,.0f} MB", file=sys.stderr)
    return name, seconds, busy, peak


CHILDREN = {"layout": run_layout, "tile": run_tile}

if __name__ == "__main__":
    run = CHILDREN.get(sys.argv[3]) if sys.argv[3:] else None
    if run is not None:
        run(Path(sys.argv[1]), Path(sys.argv[2]))
    else:
        main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3] if sys.argv[3:] else None)
