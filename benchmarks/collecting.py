"""Measure collecting: its cost, its repeatability, and the effect of compile options.

python -m benchmarks.collecting noise FOLDER     # our passes against a naive loop
python -m benchmarks.collecting tiles FOLDER --count 40
python -m benchmarks.collecting options FOLDER   # each value alone, on drawn programs
python -m benchmarks.collecting costs FOLDER     # of the data collected there
python -m benchmarks.collecting twice FOLDER     # now, and again an hour later; their agreement
"""

import argparse
import time
from pathlib import Path

import numpy as np
import polars as pl

from benchmarks.collected_sample import draw_drafts
from solution.collecting.child import Compile, Load, Open, Run
from solution.collecting.collect import ProgramCollection, Settings
from solution.collecting.cpu import Builder, Workers, make_pass
from solution.collecting.journal import (
    CANDIDATE_FILE,
    CANDIDATES,
    REPEAT_FILE,
    SOUND,
    STATE,
    Journal,
    read_log,
    read_state,
)
from solution.collecting.loaded import Loaded
from solution.collecting.program_space import LAYOUTS, OPTIONS, TILES, make_collected_space
from solution.collecting.records import Destination
from solution.collecting.space import draw_new
from solution.collecting.timing import SCHEMA, summarise
from solution.domain.metrics import kendall_tau
from solution.domain.vocabulary import OPTION_CHOICES, OPTION_NAMES
from solution.programs.child import Child, Limits, choose_core
from solution.programs.program import Program, read_programs
from solution.system.terminal import output, say

LIMITS = Limits(seconds=120)
RUNS = 16  # runs of the naive loop
APART = 3600.0  # seconds between two collections of the same programs


def read_drafts(collection: str, count: int, folder: Path, child: Child) -> list[Program]:
    """Return the first programs of the training sample."""
    programs = []
    for draft, _ in zip(draw_drafts(collection), range(count), strict=False):
        path = folder / f"{draft.name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(draft.text, encoding="utf-8")
        programs += read_programs(path, child)
    return programs


def measure_noise(folder: Path, count: int) -> pl.DataFrame:
    """Measure the repeat tau of the same executables: by our passes, and by an unpinned loop."""
    rows, core = [], choose_core()
    with Child(LIMITS, core) as compiling, Child(LIMITS, core) as timing, Child(LIMITS) as naive:
        for program in read_drafts("layout:xla:random", count, folder, compiling):
            executables = build_some(program, compiling, 40)
            journal = Journal(folder / "log" / program.name, {"time": time.time_ns()})
            make_passes(timing, program, executables, journal)
            ours = [summarise(journal.repeats, clock).tau for clock in ("cpu", "wall")]
            rows.append((program.name, *ours, time_naively(naive, program, executables)))
    return pl.DataFrame(rows, ["program", "CPU time", "clock", "naive loop"], orient="row")


def make_passes(
    child: Child, program: Program, executables: dict[str, bytes], journal: Journal
) -> None:
    """Time executables in 16 passes."""
    loaded, generator = Loaded(child, program.arguments, print), np.random.default_rng(0)
    for name, executable in executables.items():
        loaded.add(name, executable)
    for _ in range(16):
        make_pass(loaded, journal, generator)


def build_some(program: Program, child: Child, count: int) -> dict[str, bytes]:
    """Return correct executables of random layouts, by name."""
    builder, space = Builder(child, program), make_collected_space(program, LAYOUTS)
    drawn = draw_new(space, np.random.default_rng(0), count, set())
    built = [builder.build(Compile(*space.prepare(config))) for config in drawn]
    return {str(k): made.executable for k, (status, _, made) in enumerate(built) if status == SOUND}


def time_naively(child: Child, program: Program, executables: dict[str, bytes]) -> float:
    """Return Kendall's tau between two timings by a loop over the programs."""
    child.ask(Open(b"", program.arguments))
    for name, executable in executables.items():
        child.ask(Load(name, executable))
    twice = [[child.ask(Run(n, RUNS)).wall.min() for n in executables] for _ in range(2)]
    return kendall_tau(*(np.array(times) for times in twice))


def measure_tiles(folder: Path, count: int) -> pl.DataFrame:
    """Measure spread, repeat tau and failures of products in 72 tiles each."""
    rows, core = [], choose_core()
    with Child(LIMITS, core) as compiling, Child(LIMITS, core) as timing:
        workers = Workers(compiling, timing)
        for program in read_drafts("tile:xla", count, folder, compiling):
            settings = Settings(configs=72, seconds=90, keep_flat=True)
            place = Destination(folder, "tile:xla", "train")
            state = ProgramCollection(
                program, make_collected_space(program, TILES), place, settings, workers
            ).run(say)
            failed = sum(state["statuses"].values()) - state["configs"]
            rows.append(
                (program.name, state["configs"], failed, state["spread"], state["repeat_tau"])
            )
    return pl.DataFrame(rows, ["program", "tiles", "failed", "spread", "tau"], orient="row")


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


def measure_twice(folder: Path, count: int) -> pl.DataFrame:
    """Measure Kendall's tau between two collections of the same configurations, an hour apart."""
    first, second = folder / "first", folder / "second"
    _collect_layouts(first, count)
    age = time.time() - max(path.stat().st_mtime for path in first.glob(f"log/**/{REPEAT_FILE}"))
    if age < APART and not second.exists():
        say(f"Collected. In {(APART - age) / 60:.0f} minutes the same command collects again.")
        return pl.DataFrame()
    _collect_layouts(second, count)
    rows = []
    for log in sorted(path.parent for path in first.glob(f"log/**/{STATE}")):
        logs = (log, second / log.relative_to(first))
        found = [summarise(read_log(one / REPEAT_FILE, SCHEMA), "cpu") for one in logs]
        times = [dict(zip(o.configs, o.nanoseconds, strict=True)) for o in found]
        both = sorted(times[0].keys() & times[1].keys())
        tau = kendall_tau(*(np.array([one[name] for name in both]) for one in times))
        rows.append((log.name, len(both), *(one.tau for one in found), tau))
    columns = ["program", "configs", "repeat tau", "repeat tau again", "tau between"]
    return pl.DataFrame(rows, columns, orient="row")


def _collect_layouts(folder: Path, count: int) -> None:
    core = choose_core()
    with Child(LIMITS, core) as compiling, Child(LIMITS, core) as timing:
        for program in read_drafts("layout:xla:random", count, folder, compiling):
            place = Destination(folder, "layout:xla:random", "train")
            settings = Settings(configs=40, seconds=90, keep_flat=True)
            workers = Workers(compiling, timing)
            ProgramCollection(
                program, make_collected_space(program, LAYOUTS), place, settings, workers
            ).run(say)


def measure_costs(folder: Path, count: int) -> pl.DataFrame:
    """Compare the seconds of a collection with those of compiling and running alone."""
    rows = []
    for log in sorted(path.parent for path in folder.glob(f"log/**/{STATE}")):
        state = read_state(log)
        if state.get("finished"):
            candidates = read_log(log / CANDIDATE_FILE, CANDIDATES)
            compiled = candidates["compile_seconds"].to_numpy().sum()
            ran = read_log(log / REPEAT_FILE, SCHEMA)["wall_ns"].to_numpy().sum() / 1e9
            told = [state[name] for name in ("configs", "seconds", "spread", "repeat_tau")]
            rows.append((log.name, *told, compiled, ran, state["seconds"] / (compiled + ran)))
    columns = ["program", "configs", "seconds", "spread", "tau", "compiling", "running", "ratio"]
    return pl.DataFrame(rows[:count], columns, orient="row")


def choices_alone() -> list[tuple[str, np.ndarray]]:
    """Return each value other than the compiler's default, with all other parameters at the
    default."""
    return [
        (f"{option}={choices[choice]}", np.eye(len(OPTION_NAMES), dtype=np.int8)[place] * choice)
        for place, (option, choices) in enumerate(OPTION_CHOICES.items())
        for choice in range(1, len(choices))
    ]


MEASURES = {
    "noise": measure_noise, "tiles": measure_tiles, "options": measure_options,
    "costs": measure_costs, "twice": measure_twice,
}  # fmt: skip


def main() -> None:
    """Run one benchmark and print its table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=list(MEASURES))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--count", type=int, default=8, help="Programs.")
    given = parser.parse_args()
    with pl.Config(tbl_rows=-1, tbl_cols=-1):
        table = MEASURES[given.what](given.folder, given.count)
        output.print(table)
        output.print(table.select(pl.selectors.numeric().median()))


if __name__ == "__main__":
    main()
