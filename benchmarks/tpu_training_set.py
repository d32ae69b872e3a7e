"""Collect a training set of programs for a TPU v3, with the compiler's estimates as labels.

    python -m benchmarks.tpu_training_set FOLDER                    # 600 programs: a day, two cores
    python -m benchmarks.tpu_training_set FOLDER --programs 44      # the first ones of it
    python -m benchmarks.tpu_training_set FOLDER --only-show        # tables of existing results

Programs are models of realistic size (benchmarks.tpu_models), the families in turn. Even
rounds of the families are searched at random, odd ones from the compiler's choice, so the set has
the competition's four layout collections. An interrupted run resumes with the same command. Prints
programs, architectures, configurations and the spread of estimates by family. With the extra `tpu`.
"""

from collections import defaultdict
from functools import partial
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from rich.console import Console

from benchmarks.tpu_models import FAMILIES, draw_settings, write_file
from solution.collecting.collect import Settings
from solution.collecting.program_space import LAYOUTS
from solution.collecting.records import Destination
from solution.collecting.session import collect_programs
from solution.collecting.target import parse_target
from solution.data.npz import read_graph
from solution.domain.collection import collection
from solution.domain.graph import Graph
from solution.programs.child import Limits
from solution.system.errors import InputError
from solution.system.files import make_folder, replace_file
from solution.system.terminal import make_table, say

MINUTES = 7 * 24 * 60.0
KIND_OF = {family: kind for kind, families in FAMILIES.items() for family in families}
SEARCHES = ("random", "default")
HEADERS = (
    *("collection", "family", "programs", "architectures", "nodes", "configurations"),
    *("different estimates", "slowest over fastest"),
)


def main(
    folder: Path,
    programs: Annotated[int, typer.Option(help="Over all families.")] = 600,
    configs: Annotated[int, typer.Option(help="Of each, with the compiler's choice.")] = 21,
    target: str = "tpu:v3",
    *,
    only_show: Annotated[bool, typer.Option("--only-show")] = False,
) -> None:
    """Collect what is missing, and print the table."""
    if not only_show:
        collect(folder, programs, configs, target)
    show_families(folder / "set")


def collect(folder: Path, programs: int, configs: int, target: str) -> None:
    """Collect one program after the other; a program that fails is named and left out."""
    machine = parse_target(target)
    settings = Settings(configs=configs, limits=Limits(600, 8192), target=machine)
    make_folder(folder / "programs")
    for number in range(programs):
        turn, family = number // len(KIND_OF), list(KIND_OF)[number % len(KIND_OF)]
        search = SEARCHES[turn % 2]
        out = Destination(folder / "set", f"layout:{KIND_OF[family]}:{search}", "train")
        make_space = partial(machine.make_space, kind=LAYOUTS, varies_fastest=search == "default")
        path = folder / "programs" / f"{family}_{turn:03}.py"
        drawn = draw_settings(family, np.random.default_rng([turn, *family.encode()]))
        with replace_file(path) as temporary:
            temporary.write_text(write_file(drawn), encoding="utf-8")
        try:
            collect_programs([path], make_space, out, settings, MINUTES)
        except InputError as error:
            say(f"{path.stem} is left out: {error}")


def show_families(folder: Path) -> None:
    """Print a row for each collection and family."""
    table = make_table("Estimates of a compiler by program: medians, or sums over programs")
    for header in HEADERS:
        table.add_column(header)
    found: dict[tuple[str, str], list[Graph]] = defaultdict(list)
    for path in sorted(folder.glob("npz/layout/*/*/train/*.npz")):
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
