"""Collect a training set of programs for a TPU v3, with the compiler's estimates as labels.

    python -m benchmarks.tpu_training_set FOLDER                    # 600 programs: hours, two cores
    python -m benchmarks.tpu_training_set FOLDER --programs 44      # the first ones of it
    python -m benchmarks.tpu_training_set FOLDER --only-show        # tables of what there is

Five programs of six are small (solution.collecting.families), the sixth is a model of realistic
size (benchmarks.tpu_models); the families of each come in turn. Even rounds of the families are
searched at random, odd ones from the compiler's choice, so the set has the competition's four
layout collections. Programs in solution/data/estimated are not collected again: what this adds in
FOLDER/set/npz can be moved there. An interrupted run resumes with the same command. Prints
programs, architectures, configurations and the spread of estimates by family. With the extra `tpu`.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console

import solution
from benchmarks import tpu_models
from solution.collecting import families as small_models
from solution.collecting.collect import Settings
from solution.collecting.program_space import LAYOUTS
from solution.collecting.records import Destination
from solution.collecting.session import collect_programs
from solution.collecting.target import parse_target
from solution.data.npz import read_graph
from solution.domain.collection import collection
from solution.domain.graph import Graph
from solution.programs.child import Limits
from solution.system.files import make_folder, write_bytes
from solution.system.terminal import make_table, say

SMALL = 5  # small programs for each one of realistic size, which takes five times as long
TOGETHER = 36  # programs that share processes, which take seconds to start
SEARCHES = ("random", "default")
KEPT = Path(solution.__file__).parent / "data" / "estimated"
HEADERS = (
    *("collection", "family", "programs", "architectures", "nodes", "configurations"),
    *("different estimates", "slowest over fastest"),
)


def main(
    folder: Path,
    programs: Annotated[int, typer.Option(help="Over all families.")] = 600,
    configs: Annotated[int, typer.Option(help="Of each, with the compiler's choice.")] = 21,
    minutes: Annotated[float, typer.Option(help="Of each program, on average.")] = 3.0,
    target: str = "tpu:v3",
    *,
    only_show: Annotated[bool, typer.Option("--only-show")] = False,
) -> None:
    """Collect what is missing, and print the table."""
    if not only_show:
        collect(folder, programs, configs, minutes, target)
    show_families([KEPT, folder / "set"])


def collect(folder: Path, programs: int, configs: int, minutes: float, target: str) -> None:
    """Collect the programs, TOGETHER at a time; one that fails is named and left out. A program
    that takes longer than its share of the minutes has fewer configurations."""
    machine = parse_target(target)
    settings = Settings(configs=configs, limits=Limits(600, 8192), target=machine)
    make_folder(folder / "programs")
    for first in range(0, programs, TOGETHER):
        batches: dict[tuple[str, str], list[Path]] = defaultdict(list)
        for number in range(first, min(first + TOGETHER, programs)):
            drawn = draw_program(number)
            kept = f"npz/layout/{drawn.source}/{drawn.search}/train/{drawn.name}.npz"
            if (KEPT / kept).is_file():
                continue
            path = folder / "programs" / f"{drawn.name}.py"
            write_bytes(drawn.text.encode(), path)
            batches[drawn.source, drawn.search].append(path)
        for (source, search), paths in batches.items():
            out = Destination(folder / "set", f"layout:{source}:{search}", "train")
            make_space = partial(
                machine.make_space, kind=LAYOUTS, varies_fastest=search == "default"
            )
            share = minutes * len(paths)
            for finished in collect_programs(paths, make_space, out, settings, share):
                if finished.defect:
                    say(f"{finished.name} is left out: {finished.defect}")


@dataclass(frozen=True)
class Drawn:
    """A program of the set."""

    name: str
    source: str  # xla or nlp
    search: str  # random or default
    text: str  # of its Python file


def draw_program(number: int) -> Drawn:
    """Return the program with a number, always the same one."""
    round_, rest = divmod(number, SMALL + 1)
    models: Any = small_models if rest < SMALL else tpu_models
    place, size = (round_ * SMALL + rest, "small") if rest < SMALL else (round_, "full")
    kinds = {family: kind for kind, families in models.FAMILIES.items() for family in families}
    turn, family = place // len(kinds), list(kinds)[place % len(kinds)]
    generator = np.random.default_rng([turn, *f"{size}-{family}".encode()])
    families: Any = (family,) if models is small_models else family
    text = models.write_file(models.draw_settings(families, generator))
    return Drawn(f"{size}-{family}_{turn:03}", kinds[family], SEARCHES[turn % 2], text)


def show_families(folders: Sequence[Path]) -> None:
    """Print a row for each collection and family of the graphs in all folders."""
    table = make_table("Estimates of a compiler by program: medians, or sums over programs")
    for header in HEADERS:
        table.add_column(header)
    found: dict[tuple[str, str], list[Graph]] = defaultdict(list)
    paths = [path for folder in folders for path in folder.glob("npz/layout/*/*/train/*.npz")]
    for path in sorted(paths):
        name = f"layout:{path.parts[-4]}:{path.parts[-3]}"
        found[name, path.stem.split("_")[0]].append(read_graph(path, collection(name)))
    for (name, family), graphs in sorted(found.items()):
        times = [graph.runtimes for graph in graphs if graph.runtimes is not None]
        table.add_row(
            name,
            family,
            str(len(graphs)),
            str(len({graph.architecture for graph in graphs})),
            f"{np.median([graph.num_nodes for graph in graphs]):.0f}",
            str(sum(graph.num_configs for graph in graphs)),
            f"{np.median([len(np.unique(one)) for one in times]):.0f}",
            f"{np.median([one.max() / one.min() for one in times]):.2f}",
        )
    Console(width=120).print(table)


if __name__ == "__main__":
    typer.run(main)
