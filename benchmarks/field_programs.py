"""Count how many dumps of real models can be read, and time reading and drawing configurations.

    python -m benchmarks.field_programs FOLDER

FOLDER has text dumps of XLA, at any depth, such as perf_tools/hlo_eval_tools of the repository
ROCm/xla. Each is read as by `fastslow rank`, and configurations are drawn; nothing is compiled.
Files are counted that have left-out constants, tensors of more than six dimensions, or several
devices.
"""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from solution.domain.graph import Graph, find_longer
from solution.features.candidates import make_candidates
from solution.programs.child import Child, Limits
from solution.programs.program import make_graph, read_programs
from solution.system.errors import InputError
from solution.system.progress import track
from solution.system.terminal import make_table, output

COLLECTION = "layout:xla:random"
SUFFIXES = (".txt", ".hlo", ".mlir", ".pb")


@dataclass
class Group:
    """Statistics of the dumps of one folder."""

    files: int = 0
    read: int = 0
    nodes: int = 0
    largest: int = 0
    longer: int = 0  # files with a tensor of more than six dimensions
    left_out: int = 0  # files with left-out constants
    divided: int = 0  # files for several devices
    seconds: float = 0.0
    slowest: float = 0.0

    def add(self, graphs: list[Graph], notes: list[str], seconds: float) -> None:
        """Count a file that was read."""
        self.read += 1
        self.nodes += sum(graph.num_nodes for graph in graphs)
        self.largest = max([self.largest, *(graph.num_nodes for graph in graphs)])
        self.longer += any(find_longer(graph.node_features).any() for graph in graphs)
        self.left_out += any("left out" in words for words in notes)
        self.divided += any("partitions" in words for words in notes)
        self.seconds += seconds
        self.slowest = max(self.slowest, seconds)


def main(
    folder: Annotated[Path, typer.Argument(help="With dumps of XLA.")],
    configs: Annotated[int, typer.Option(min=1, help="Of each program.")] = 100,
) -> None:
    """Read every dump of a folder, and print a row for each of its folders."""
    files = sorted(path for path in folder.rglob("*") if path.suffix in SUFFIXES)
    groups: dict[str, Group] = {}
    defects = []
    with Child(Limits(seconds=180)) as child, track(files, "Reading") as tracked:
        for path in tracked:
            group = groups.setdefault(path.relative_to(folder).parts[0], Group())
            group.files += 1
            begin = time.perf_counter()
            try:
                programs = list(read_programs(path, child, runs=False))
                graphs = [make_candidates(make_graph(p, COLLECTION), configs) for p in programs]
            except InputError as error:
                defects.append(str(error))
                continue
            notes = [words for program in programs for words in program.notes]
            group.add(graphs, notes, time.perf_counter() - begin)
    show(groups)
    for defect in defects:
        output.print(defect)


def show(groups: dict[str, Group]) -> None:
    """Print a row per group, and the share of all files that were read."""
    table = make_table("Dumps that are read", "Rank > 6, left out, divided: files with such.")
    for name in ("Folder", "Read", "Nodes", "Largest", "Rank > 6", "Left out", "Divided",
                 "Seconds", "Slowest"):  # fmt: skip
        table.add_column(name, justify="left" if name == "Folder" else "right")
    for name, group in groups.items():
        table.add_row(
            name, f"{group.read} of {group.files}", f"{group.nodes:,}", f"{group.largest:,}",
            str(group.longer), str(group.left_out), str(group.divided), f"{group.seconds:.0f}",
            f"{group.slowest:.1f}",
        )  # fmt: skip
    read, files = (sum(getattr(g, name) for g in groups.values()) for name in ("read", "files"))
    table.add_row("all", f"{read} of {files}")
    output.print(table)


if __name__ == "__main__":
    typer.run(main)
