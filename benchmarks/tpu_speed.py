"""Measure the cost of TPU compiler estimates, and whether quick estimates equal full ones.

    python -m benchmarks.tpu_speed --programs 6 --configurations 30 --checked 12
    python -m benchmarks.tpu_speed --leaks 500      # only the memory after 500 compilations

For each target: programs of the project's families, each in random layouts, estimated one after the
other as a collection does. Some of the estimates made without a full compilation are checked by
one. Prints a line for each program and the bars: processor seconds (all processes) per
configuration after the first ten of a program, equal estimates, kernels with two costs, and the
memory of the process that forks.
"""

import argparse
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import psutil

from solution.collecting.families import FAMILIES, write_programs
from solution.collecting.program_space import LAYOUTS, make_collected_space
from solution.collecting.target import parse_target
from solution.collecting.tpu.asking import RequestWriter
from solution.collecting.tpu.estimator import Estimator
from solution.programs.child import Child, Limits
from solution.programs.compiler import Compiler
from solution.programs.program import Program, read_programs

PRODUCT = """HloModule product
ENTRY main {
  left = f32[ROWS,128]{1,0} parameter(0)
  right = f32[128,256]{1,0} parameter(1)
  product = f32[ROWS,256]{1,0} dot(left, right), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT result = f32[ROWS,256]{1,0} tanh(product)
}
"""  # for --leaks: a different program for each number of rows
FIRST = 10  # first configurations of a program, which compile most of its kernels
MOST_NODES = 400


@dataclass
class Found:
    """The measurements of one target."""

    seconds: list[float] = field(default_factory=list)  # after the first ten
    full: int = 0  # full compilations among those
    isolated: int = 0  # configurations whose new kernels were compiled alone
    refused: list[str] = field(default_factory=list)
    checked: int = 0
    equal: int = 0


def read_family_programs(folder: Path, count: int) -> list[Program]:
    """Return programs of all families in turn, except those with too many nodes."""
    families = [name for names in FAMILIES.values() for name in names]
    found: list[Program] = []
    with Child(Limits(seconds=240)) as child:
        for number in range(count):
            family = families[number % len(families)]
            paths = write_programs(folder, family, number // len(families) + 1)
            (program,) = read_programs(paths[-1], child)
            if len(program.nodes.opcodes) <= MOST_NODES:
                found.append(program)
    return found


def measure_program(
    program: Program, count: int, checked: int, quick: Estimator, full: Estimator, found: Found
) -> None:
    """Estimate a program's default and random layouts; check some of the quick answers."""
    space = make_collected_space(program, LAYOUTS)
    drawn = [space.default, *space.draw(np.random.default_rng(0), count)]
    writer = RequestWriter(program.module, program.configurable)
    modules = [writer.write(space.layouts(config[None])[0]) for config in drawn]
    answers = [quick.estimate(module) for module in modules]
    later = answers[FIRST:]
    found.seconds += [answer.processor_seconds for answer in later]
    found.full += sum(answer.is_full for answer in later)
    found.isolated += sum(answer.isolated > 0 for answer in later)
    found.refused += [answer.refused for answer in answers if answer.refused]
    fast = [number for number, answer in enumerate(answers) if not answer.is_full]
    equal, chosen = 0, fast[:: max(1, len(fast) // checked)][:checked] if checked else []
    for number in chosen:
        other = full.estimate(modules[number])
        same = (other.nanoseconds, other.program) == (
            answers[number].nanoseconds,
            answers[number].program,
        )
        equal += same
        if not same:
            print(f"  {program.name} {number}: {answers[number]} is not {other}"[:600])
    found.checked, found.equal = found.checked + len(chosen), found.equal + equal
    times = [answer.nanoseconds for answer in answers if answer.nanoseconds]
    print(
        f"{quick.target.name} {program.name}: {len(program.nodes.opcodes)} nodes, "
        f"{np.median([a.processor_seconds for a in later]):.2f} s a configuration, "
        f"{sum(a.is_full for a in later)} of {len(later)} in full, "
        f"{sum(a.isolated > 0 for a in later)} with new kernels compiled alone, "
        f"{len({a.program for a in answers})} programs of {len(answers)}, "
        f"{min(times, default=0) / times[0]:.2f} to {max(times, default=0) / times[0]:.2f} of the "
        f"default, {equal} of {len(chosen)} equal",
        flush=True,
    )


def measure_target(name: str, programs: Sequence[Program], count: int, checked: int) -> None:
    """Measure all programs for a target, and print its bars."""
    found, target = Found(), parse_target(name)
    with (
        tempfile.TemporaryDirectory() as cache,
        tempfile.TemporaryDirectory() as other,
        Estimator(target, cache=Path(cache)) as quick,
        Estimator(target, cache=Path(other), is_always_full=True) as full,
    ):
        memory: list[float] = []
        for program in programs:
            measure_program(program, count, checked, quick, full, found)
            memory.append(_measure_memory())
        conflicts = quick.conflicts + full.conflicts
    print(
        f"{name}: median {np.median(found.seconds):.2f} processor seconds (mean "
        f"{np.mean(found.seconds):.2f}), {found.full} of {len(found.seconds)} in full, "
        f"{found.isolated} with new kernels compiled alone; "
        f"{found.equal} of {found.checked} checked are equal; {conflicts} conflicts; "
        f"{len(found.refused)} refused {set(found.refused)}; memory of the processes "
        f"{memory[0]:.0f} MB, in the end {memory[-1]:.0f} MB",
        flush=True,
    )


def measure_leaks(name: str, count: int) -> None:
    """Compile `count` different programs by one process; print its memory on the way."""
    compiler, in_full = Compiler(), 0
    with (
        tempfile.TemporaryDirectory() as cache,
        Estimator(parse_target(name), cache=Path(cache)) as estimator,
    ):
        for number in range(1, count + 1):
            text = PRODUCT.replace("ROWS", str(7 + number))
            in_full += estimator.estimate(compiler.parse_hlo(text)).is_full
            if number in (1, 10, count) or number % 100 == 0:
                asking = psutil.Process().memory_info().rss / 2**20
                print(
                    f"{name}: {number} programs, {in_full} in full: the process that compiles has "
                    f"{_measure_memory():.0f} MB, the one that asks {asking:.0f} MB",
                    flush=True,
                )


def _measure_memory() -> float:
    """Return the megabytes of the children of this process."""
    children = psutil.Process().children()
    return sum(child.memory_info().rss for child in children) / 2**20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--targets", default="tpu:v3,tpu:v5e")
    parser.add_argument("--programs", type=int, default=6)
    parser.add_argument("--configurations", type=int, default=30)
    parser.add_argument("--checked", type=int, default=12, help="of each program")
    parser.add_argument("--leaks", type=int, default=0, help="only this: compilations in a process")
    given = parser.parse_args()
    if given.leaks:
        for name in given.targets.split(","):
            measure_leaks(name, given.leaks)
        return
    with tempfile.TemporaryDirectory() as folder:
        programs = read_family_programs(Path(folder), given.programs)
    for name in given.targets.split(","):
        measure_target(name, programs, given.configurations, given.checked)


if __name__ == "__main__":
    main()
