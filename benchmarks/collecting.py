"""Measure what each value of each compile option does to a program's time, on drawn programs.

python -m benchmarks.collecting options FOLDER
"""

import argparse
import time
from pathlib import Path

import numpy as np
import polars as pl

from benchmarks.collected_sample import draw_drafts
from solution.collecting.child import Compile
from solution.collecting.cpu import Builder, make_pass
from solution.collecting.journal import SOUND, Journal
from solution.collecting.loaded import Loaded
from solution.collecting.program_space import OPTIONS, make_collected_space
from solution.collecting.timing import summarise
from solution.domain.vocabulary import OPTION_CHOICES, OPTION_NAMES
from solution.programs.child import Child, Limits, choose_core
from solution.programs.program import Program, read_programs
from solution.system.terminal import output

LIMITS = Limits(seconds=120)
PASSES = 16


def read_drafts(collection: str, count: int, folder: Path, child: Child) -> list[Program]:
    """Return the first programs of the training sample."""
    programs = []
    for draft, _ in zip(draw_drafts(collection), range(count), strict=False):
        path = folder / f"{draft.name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(draft.text, encoding="utf-8")
        programs += read_programs(path, child)
    return programs


def make_passes(
    child: Child, program: Program, executables: dict[str, bytes], journal: Journal
) -> None:
    """Time executables in PASSES passes."""
    loaded, generator = Loaded(child, program.arguments, print), np.random.default_rng(0)
    for name, executable in executables.items():
        loaded.add(name, executable)
    for _ in range(PASSES):
        make_pass(loaded, journal, generator)


def measure_options(folder: Path, count: int) -> pl.DataFrame:
    """Measure each value's time relative to the compiler's default, and an identical build's."""
    core, table = choose_core(), []
    with Child(LIMITS, core) as compiling, Child(LIMITS, core) as timing:
        for program in read_drafts("layout:xla:random", count, folder, compiling):
            builder, space = Builder(compiling, program), make_collected_space(program, OPTIONS)
            executables = {"own": builder.open().executable, "again": builder.open().executable}
            for name, values in choices_alone():
                status, _, made = builder.build(Compile(*space.prepare(values)))
                if status == SOUND:
                    executables[name] = made.executable
            journal = Journal(folder / "log" / program.name, {"time": time.time_ns()})
            make_passes(timing, program, executables, journal)
            outcome = summarise(journal.repeats, "cpu")
            times = dict(zip(outcome.configs, outcome.nanoseconds, strict=True))
            own = {name: value / times["own"] for name, value in times.items()}
            table.append({"program": program.name, **own})
    return pl.DataFrame(table).transpose(include_header=True, column_names="program")


def choices_alone() -> list[tuple[str, np.ndarray]]:
    """Return each value other than the compiler's default, with all other parameters at the
    default."""
    return [
        (f"{option}={choices[choice]}", np.eye(len(OPTION_NAMES), dtype=np.int8)[place] * choice)
        for place, (option, choices) in enumerate(OPTION_CHOICES.items())
        for choice in range(1, len(choices))
    ]


def main() -> None:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["options"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--count", type=int, default=8, help="Programs.")
    given = parser.parse_args()
    with pl.Config(tbl_rows=-1, tbl_cols=-1):
        table = measure_options(given.folder, given.count)
        output.print(table)
        output.print(table.select(pl.selectors.numeric().median()))


if __name__ == "__main__":
    main()
