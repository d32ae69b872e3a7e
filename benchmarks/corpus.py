"""Write a synthetic collection, of any size, for stress tests of the pipeline.

    .venv/bin/python -m benchmarks.corpus FOLDER layout:xla:random               full size
    .venv/bin/python -m benchmarks.corpus FOLDER tile:xla --graphs 0.01 --configs 0.1

Counts of graphs, nodes and configurations are drawn from published statistics of the real
collections (competition notebooks; medians, minima and maxima; unknown ones are taken from the
sister collection).
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from benchmarks.programs import (
    NEAR,
    RANDOM,
    draw_candidates,
    draw_configs,
    make_program,
    write_layout_file,
    write_tile_file,
)
from solution.domain.collection import BY_NAME, SPLITS
from solution.domain.collection import collection as find_collection
from solution.system.progress import track


@dataclass(frozen=True)
class Spread:
    """Minimum, median and maximum of a count."""

    low: int
    median: int
    high: int

    def draw(self, generator: np.random.Generator, scale: float = 1.0) -> int:
        """Draw a log-normal count with this median, cut to the bounds, times `scale`."""
        sigma = np.log(self.high / self.median) / 2
        value = np.clip(generator.lognormal(np.log(self.median), sigma), self.low, self.high)
        return max(2, round(scale * value))


@dataclass(frozen=True)
class Facts:
    """Known statistics of a collection."""

    graphs: tuple[int, int, int]  # train, valid, test
    nodes: Spread
    configs: Spread
    configurable: Spread
    distinct: float = 1.0  # distinct configurations, as a share of all
    edges: float = 1.7  # per node
    changed: float = RANDOM  # share of the layouts that a configuration sets at random


FACTS = {
    "layout:xla:default": Facts(
        (61, 7, 8), Spread(372, 10_092, 43_615), Spread(1_159, 10_528, 100_040),
        Spread(20, 346, 2_244), distinct=0.56, changed=NEAR,
    ),
    "layout:xla:random": Facts(
        (69, 7, 8), Spread(372, 10_449, 43_615), Spread(20, 8_368, 100_040), Spread(20, 346, 2_244)
    ),
    "layout:nlp:default": Facts(
        (198, 20, 17), Spread(876, 3_296, 21_919), Spread(11_168, 67_832, 100_040),
        Spread(56, 120, 848), changed=NEAR,
    ),
    "layout:nlp:random": Facts(
        (207, 20, 17), Spread(876, 3_296, 21_919), Spread(11_098, 67_000, 100_040),
        Spread(56, 120, 848),
    ),
    "tile:xla": Facts(
        (5_709, 676, 844), Spread(2, 39, 500), Spread(2, 1_200, 15_000), Spread(1, 1, 1), edges=1.1
    ),
}  # fmt: skip
TEST_CONFIGS = (1_000, 1_001)  # configurations of a layout graph; few graphs have the latter
SISTERS = 3  # number of graphs with one structure


def count_graphs(name: str, share: float, least: int = 1) -> dict[str, int]:
    """Return the number of graphs of each split for a share of the collection.

    Args:
        least: of the training split; the other splits have at least one graph.
    """
    counts = zip(SPLITS, FACTS[name].graphs, strict=True)
    return {
        split: max(least if split == "train" else 1, round(share * count))
        for split, count in counts
    }


def write_corpus(
    folder: Path,
    name: str,
    graphs: float = 1.0,
    configs: float = 1.0,
    seed: int = 0,
    least: int = 1,
) -> list[Path]:
    """Write the collection `name`, with these shares of its graphs and configurations.

    Args:
        least: graphs to train on.
    """
    facts, paths = FACTS[name], []
    counts = count_graphs(name, graphs, least)
    wanted = [(split, number) for split, count in counts.items() for number in range(count)]
    with track(wanted, f"Writing {name}") as tracked:
        for index, (split, number) in enumerate(tracked):
            path = folder / "npz" / find_collection(name).folder / split / f"{split}_{number}.npz"
            if find_collection(name).kind == "tile":
                generator = np.random.default_rng([seed, index])
                nodes, count = facts.nodes.draw(generator), facts.configs.draw(generator, configs)
                write_tile_file(path, index, nodes, count, labelled=split != "test")
            else:
                _write_layout(path, facts, configs, seed=seed, index=index)
            paths.append(path)
    return paths


def _write_layout(path: Path, facts: Facts, scale: float, *, seed: int, index: int) -> None:
    structure = np.random.default_rng([seed, index // SISTERS])
    nodes = facts.nodes.draw(structure)
    configurable = min(facts.configurable.draw(structure), nodes // 3)
    program = make_program(index // SISTERS, nodes, round(facts.edges * nodes), configurable)
    generator = np.random.default_rng([seed, index, 1])
    is_test = path.parent.name == "test"
    count = facts.configs.draw(generator, scale)
    if is_test:
        count = max(2, round(scale * TEST_CONFIGS[generator.random() < 0.1]))
    distinct = max(1, round(facts.distinct * count))
    candidates = draw_candidates(index, program)
    chosen = draw_configs(index, candidates, count, distinct, facts.changed)
    write_layout_file(path, program, candidates, chosen, labelled=not is_test)


def main(
    folder: Path,
    collection: Annotated[str, typer.Argument(help=", ".join(BY_NAME))],
    graphs: Annotated[float, typer.Option(help="Share of the graphs.")] = 1.0,
    configs: Annotated[float, typer.Option(help="Share of the configurations.")] = 1.0,
    seed: int = 0,
) -> None:
    paths = write_corpus(folder, find_collection(collection).name, graphs, configs, seed)
    size = sum(path.stat().st_size for path in paths)
    print(f"{len(paths)} files, {size / 2**20:,.1f} MB below {folder}")


if __name__ == "__main__":
    typer.run(main)
