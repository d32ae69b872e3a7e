"""Measure how often intervals contain the truth, and how often equal rankers are called different.

Simulated with the code that makes every table and verdict: programs are drawn from a world
whose true mean is known, each a group of one to four graphs that score alike, and scored.

    python -m benchmarks.intervals [--draws 10000] [--run runs/sample]

Worlds: normal; skewed (a lognormal tail below a common best score, as for tiles); and, with --run,
the programs of that run, resampled, so that their scores count as the whole population.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from rich.table import Table

from ensembles.merge import score_run
from ensembles.recipe import choose_recipe
from ensembles.statistics import CollectionScores, estimate_mean, read_scores
from solution.runs.folder import Run
from solution.system.terminal import make_table, output

GROUPS = (5, 8, 11, 12, 20, 40)
MOST_GRAPHS = 4  # maximum of a group: the sizes of a program
ALIKE = 0.9  # share of a score's variance that the graphs of a group have in common
AT_ONCE = 500  # worlds with the same group sizes, each as a member of one table

World = Callable[[np.random.Generator, np.ndarray, int], np.ndarray]


def draw_normal(generator: np.random.Generator, sizes: np.ndarray, worlds: int) -> np.ndarray:
    """Draw scores (graphs, worlds) around 0; sizes (groups,) are graphs per group."""
    shared = generator.normal(size=(len(sizes), worlds)).repeat(sizes, axis=0)
    alone = generator.normal(size=shared.shape)
    return np.sqrt(ALIKE) * shared + np.sqrt(1 - ALIKE) * alone


def draw_skewed(generator: np.random.Generator, sizes: np.ndarray, worlds: int) -> np.ndarray:
    """Draw scores with a lognormal lower tail (deviation 0.5 of logarithms) and mean 0."""
    scores = np.exp(0.5 * draw_normal(generator, sizes, worlds))
    return np.exp(0.125) - scores


def draw_worlds(
    world: World, groups: int, draws: int, generator: np.random.Generator
) -> Iterator[CollectionScores]:
    """Yield tables of scores with a world per member; every table has new group sizes."""
    for _ in range(-(-draws // AT_ONCE)):
        sizes = generator.integers(1, MOST_GRAPHS + 1, groups)
        names = [f"{group:04}" for group in np.arange(groups).repeat(sizes)]
        scores = world(generator, sizes, AT_ONCE)
        members = [str(number) for number in range(AT_ONCE)]
        yield CollectionScores("tile:xla", names, names, members, scores)


def measure_coverage(world: World, groups: int, draws: int, seed: int = 0) -> float:
    """Return the share of intervals that contain the true mean, 0."""
    generator = np.random.default_rng(seed)
    found = [estimate_mean([own]) for own in draw_worlds(world, groups, draws, generator)]
    return float(np.mean([(one.low <= 0) & (one.high >= 0) for one in found]))


def measure_false_verdicts(world: World, groups: int, draws: int, seed: int = 1) -> float:
    """Return the share of pairs of equal rankers of which one is called better."""
    generator = np.random.default_rng(seed)

    def differ(generator: np.random.Generator, sizes: np.ndarray, worlds: int) -> np.ndarray:
        return world(generator, sizes, worlds) - world(generator, sizes, worlds)

    found = [estimate_mean([own]) for own in draw_worlds(differ, groups, draws, generator)]
    return float(np.mean([(one.low > 0) | (one.high < 0) for one in found]))


def measure_run(part: CollectionScores, member: str, draws: int, seed: int = 2) -> float:
    """Return the coverage if the groups of a run are resampled.

    The truth is the mean over all its graphs.
    """
    generator = np.random.default_rng(seed)
    scores = part.scores[:, part.members.index(member)]
    own = {name: [] for name in dict.fromkeys(part.groups)}
    for name, score in zip(part.groups, scores, strict=True):
        own[name].append(score)
    values, held = list(own.values()), []
    for _ in range(draws):
        chosen = [values[number] for number in generator.integers(len(values), size=len(values))]
        names = [str(place) for place, group in enumerate(chosen) for _ in group]
        drawn = np.concatenate(chosen)[:, None]
        found = estimate_mean([CollectionScores(part.collection, names, names, ["m"], drawn)])
        held.append(found.low[0] <= scores.mean() <= found.high[0])
    return float(np.mean(held))


def tabulate(draws: int) -> Table:
    """Return coverage and false verdicts by the number of groups."""
    table = make_table(
        f"Nominal 95% intervals, {draws:,} draws, groups of 1 to {MOST_GRAPHS} graphs"
    )
    for name in ("Groups", "holds: normal", "holds: skewed", "better: normal", "better: skewed"):
        table.add_column(name, justify="right", no_wrap=True)
    for groups in GROUPS:
        shares = [
            measure(world, groups, draws)
            for measure in (measure_coverage, measure_false_verdicts)
            for world in (draw_normal, draw_skewed)
        ]
        table.add_row(str(groups), *(f"{share:.1%}" for share in shares))
    return table


def main(
    draws: Annotated[int, typer.Option(min=100)] = 10_000,
    run: Annotated[Path | None, typer.Option(help="A run folder.")] = None,
) -> None:
    """Print how often intervals contain the truth, and how often equal rankers are called
    different."""
    output.print(tabulate(draws))
    if run is not None:
        opened = Run.existing(run)
        recipe = choose_recipe(opened, None)
        for part in read_scores(score_run(opened, recipe).table):
            share = measure_run(part, recipe.label, min(draws, 2000))
            groups = len(set(part.groups))
            output.print(f"{part.collection}, {groups} groups of the run drawn again: {share:.1%}")


if __name__ == "__main__":
    typer.run(main)
