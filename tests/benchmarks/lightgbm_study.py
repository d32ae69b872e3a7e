"""The protocol of the LightGBM study: random splits over kernels, slowdown of the best of k tiles.

    python -m tests.benchmarks.lightgbm_study ../shared/data build/benchmarks [SPLITS]

Least squares, lasso, ridge and LightGBM, each on mean node features to predict the runtime, as
published, and on our tile table to predict the rank. 80/20 and 90/10 over kernels, and 80/20 over
architectures: at random, a kernel is tested whose sisters at other sizes were learned from. On real
TPU kernels, of which there are 13, each is ranked by models of the others.
"""

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from sklearn.model_selection import GroupShuffleSplit

from solution.collection import TILE
from solution.data.plan import IS_LABELLED
from solution.experiments.base import find_experiment
from solution.graph import Graph
from solution.metrics import bootstrap_mean, ordered_pair_accuracy, top_k_slowdown
from solution.models.base import RankerSettings
from solution.progress import track
from solution.terminal import make_table, output
from tests.benchmarks.out_of_fold_scores import open_plan
from tests.benchmarks.tile_models import measure_tpu

PUBLISHED = "tile_study_lightgbm_001"
RANKERS = (
    "nothing_001",
    "tile_study_linear_001",
    "tile_study_lasso_001",
    "tile_study_ridge_001",
    PUBLISHED,
    "linear_ordinary_001",
    "linear_lasso_001",
    "linear_ridge_001",
    "tile_pointwise_001",
)
INNER = 0.1  # of the learned kernels, to stop trees early by
TOPS = (1, 5, 10)


@dataclass(frozen=True)
class Protocol:
    """How the kernels are divided, again and again."""

    name: str
    test_share: float
    by_architecture: bool


PROTOCOLS = (
    Protocol("80/20 over kernels", 0.2, by_architecture=False),
    Protocol("90/10 over kernels", 0.1, by_architecture=False),
    Protocol("80/20 over architectures", 0.2, by_architecture=True),
)


def main(shared: Path, place: Path, splits: int) -> None:
    """Print a table a protocol, then that of the TPU kernels."""
    plan = open_plan(shared / "cpugraphs", place / "cpugraphs")
    kernels = list(plan.load(plan.rows(TILE[0], IS_LABELLED)))
    for protocol in PROTOCOLS:
        measure(protocol, kernels, splits)
    measure_tpu(shared / "tpu", [name for name in RANKERS if name != "nothing_001"])


def measure(protocol: Protocol, kernels: Sequence[Graph], splits: int) -> None:
    """Slowdowns over all splits; the interval is over kernels, the spread over splits."""
    values: dict[str, list[np.ndarray]] = {name: [] for name in RANKERS}
    todo = [(seed, name) for seed in range(splits) for name in RANKERS]
    parts = [divide(protocol, kernels, seed) for seed in range(splits)]
    with track(todo, protocol.name) as tracked:
        for seed, name in tracked:
            train, test = parts[seed]
            values[name].append(score(find_experiment(name).ranker, train, test, seed))
    table = make_table(f"{protocol.name}, {splits} splits: slowdown (95% interval over kernels)")
    for header in ("ranker", *(f"top-{k}" for k in TOPS), "OPA", "top-5, by split", "published"):
        table.add_column(header)
    best = np.concatenate(values[PUBLISHED])[:, 1]
    for name, own in values.items():
        rows = np.concatenate(own)
        means = [bootstrap_mean(column) for column in rows.T]
        cells = [f"{100 * m.value:.1f}% ({100 * m.low:.1f} to {100 * m.high:.1f})" for m in means]
        pairs = f"{means[-1].value:.3f}"
        by_split = " ".join(f"{100 * part[:, 1].mean():.1f}" for part in own)
        difference = bootstrap_mean(rows[:, 1] - best)
        worse = f"{100 * difference.low:+.1f} to {100 * difference.high:+.1f}"
        table.add_row(name, *cells[: len(TOPS)], pairs, by_split, worse)
    table.columns[-1].header = "top-5 less published LightGBM's"
    output.print(table)


def divide(
    protocol: Protocol, kernels: Sequence[Graph], seed: int
) -> tuple[list[Graph], list[Graph]]:
    """What is learned from, and what is tested on."""
    learned, tested = next(_splits(protocol, kernels, seed))
    return [kernels[place] for place in learned], [kernels[place] for place in tested]


def _splits(
    protocol: Protocol, kernels: Sequence[Graph], seed: int
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    key: Callable[[Graph], str] = (
        (lambda graph: graph.architecture) if protocol.by_architecture else (lambda g: g.name)
    )
    groups = [key(graph) for graph in kernels]
    splitter = GroupShuffleSplit(n_splits=1, test_size=protocol.test_share, random_state=seed)
    return splitter.split(groups, groups=groups)


def score(
    settings: RankerSettings, train: Sequence[Graph], test: Sequence[Graph], seed: int
) -> np.ndarray:
    """Slowdowns of TOPS and ordered pair accuracy (kernels, 4) of a model of `train`."""
    order = np.random.default_rng(seed).permutation(len(train))
    held = round(INNER * len(train))
    inner, rest = [train[k] for k in order[:held]], [train[k] for k in order[held:]]
    ranker = settings.build(seed).fit(rest, inner)
    rows = []
    for graph in test:
        scores, runtimes = ranker.predict(graph), np.asarray(graph.runtimes)
        slowdowns = [top_k_slowdown(scores, runtimes, k) for k in TOPS]
        rows.append([*slowdowns, ordered_pair_accuracy(scores, runtimes)])
    return np.array(rows)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]) if sys.argv[3:] else 5)
