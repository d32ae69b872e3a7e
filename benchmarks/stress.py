"""Write files with the extreme sizes of the competition's data.

    .venv/bin/python -m benchmarks.stress FOLDER            all of them: minutes, 250 MB
    .venv/bin/python -m benchmarks.stress FOLDER --only tiny_tile

FOLDER has the structure of the competition's download, so it can be checked, prepared and run.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from benchmarks.programs import (
    draw_candidates,
    draw_configs,
    make_program,
    write_layout_file,
    write_tile_file,
)
from solution.system.progress import track

XLA = "npz/layout/xla/random"


def layout(
    nodes: int,
    edges: int,
    configurable: int,
    configs: int,
    *,
    distinct: int | None = None,
    isolated: int = 0,
    labelled: bool = True,
) -> Callable[[Path], None]:
    """Return a function that writes a layout file of this size."""

    def write(path: Path) -> None:
        program = make_program(1, nodes, edges, configurable, isolated=isolated)
        candidates = draw_candidates(2, program)
        chosen = draw_configs(3, candidates, configs, distinct)
        write_layout_file(path, program, candidates, chosen, labelled=labelled)

    return write


def _tile(nodes: int, configs: int) -> Callable[[Path], None]:
    return lambda path: write_tile_file(path, 4, nodes, configs, labelled=True)


FILES: dict[str, Callable[[Path], None]] = {
    f"{XLA}/train/many_configs.npz": layout(12_911, 22_000, 344, 100_040),
    f"{XLA}/train/few_distinct.npz": layout(3_000, 5_000, 40, 100_040, distinct=48),
    f"{XLA}/train/all_identical.npz": layout(500, 800, 26, 20, distinct=1),
    f"{XLA}/train/isolated_nodes.npz": layout(372, 500, 26, 500, isolated=60),
    f"{XLA}/test/many_nodes.npz": layout(43_615, 73_881, 2_244, 1_001, labelled=False),
    f"{XLA}/test/usual_1.npz": layout(500, 800, 40, 1_000, labelled=False),
    f"{XLA}/test/usual_2.npz": layout(700, 900, 40, 1_000, labelled=False),
    "npz/tile/xla/train/tiny_tile.npz": _tile(2, 266),
}


def write_stress_files(folder: Path, only: str | None = None) -> list[Path]:
    """Write missing files; `only` names one."""
    wanted = {folder / name: write for name, write in FILES.items()}
    wanted = {path: write for path, write in wanted.items() if only in (None, path.stem)}
    if not wanted:
        raise typer.BadParameter(f"there is no {only}")
    with track(list(wanted.items()), "Writing files") as tracked:
        for path, write in tracked:
            if not path.is_file():
                temporary = path.with_name(f".{path.name}")  # hidden files are not read as data
                write(temporary)
                temporary.rename(path)
    return list(wanted)


def main(folder: Path, only: Annotated[str | None, typer.Option()] = None) -> None:
    for path in write_stress_files(folder, only):
        print(path)


if __name__ == "__main__":
    typer.run(main)
