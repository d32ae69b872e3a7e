"""Measure real searches: ten programs compiled and timed here, ours, random and a thorough search.

    python -m benchmarks.choosing_real build/choosing-real

Programs of all collected families, drawn with other seeds than the training programs; layouts and
compile options; at most 24 measurements. Each result is that of `fastslow choose`: the winner is
timed again in an A/B test against the compiler's default. Two others are verified in the same way:
as many random draws, and a thorough search: every combination of the five most important options,
then of the other options with the best of these, then random layouts. Then each program is compiled
twice and compared with itself: there is no gain to claim. Last, verify.py (which `choose` writes
for a TPU) times what ours found, here on the CPU. An interrupted search resumes.
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from itertools import product
from pathlib import Path

import numpy as np
from rich.console import Console

from solution.choosing.choose import BATCH, Settings, choose_program, read_program
from solution.choosing.harness import Harness
from solution.choosing.journal import CHOICES, RECORD, Journal, Trial
from solution.choosing.proposer import Proposer, RandomSearch
from solution.choosing.search import Budget, search
from solution.choosing.tpu_files import SCRIPT, hand_over_estimated
from solution.choosing.verdict import Verdict
from solution.choosing.verify import VERDICT
from solution.collecting.cpu import Workers
from solution.collecting.families import draw_settings, write_file
from solution.collecting.program_space import LAYOUTS, OPTIONS, ProgramSpace, make_program_space
from solution.collecting.space import draw_new
from solution.collecting.target import CPU
from solution.domain.vocabulary import OPTION_NAMES
from solution.programs.child import Child, Limits, choose_core
from solution.programs.compiler import Compiler, Flags
from solution.serving.bundle import load_bundle
from solution.system.files import write_bytes
from solution.system.terminal import make_table

FAMILIES = ("gnn", "transformer", "convnet", "mlp", "mixer", "recurrent") * 2
PROGRAMS, MEASUREMENTS = 10, 24
SEED = 8000  # of the first program; training programs have others
MOST = ("library_fusions", "products", "vector_width", "unrolling", "effort")
LAYOUTS_TRIED = 24  # layouts that the thorough search tries with the best options
SLOWER = 0.99  # one percent slower than the default
BAR, SHARE = 1.10, 0.75
OURS, RANDOM, THOROUGH, NULL = "ours", "random", "thorough", "null"
NULL_RUNS = 4  # runs per program
WAYS = (OURS, RANDOM, THOROUGH, NULL, SCRIPT)
# the line of verify.py that sets the options of the chosen configuration
SETS_OPTIONS = '        options.env_option_overrides = list(choice["compiler_options"].items())\n'


class Thorough(Proposer):
    """Search combinations: all of the options MOST, then all of the other options with the fastest;
    then random layouts with the fastest options.
    """

    def __init__(self, space: ProgramSpace) -> None:
        super().__init__(space, 1)
        first = len(space.layout_sites)
        self._options = slice(first, first + len(OPTION_NAMES))
        most = [first + OPTION_NAMES.index(name) for name in MOST]
        self._turns = most, sorted(set(range(first, self._options.stop)) - set(most))
        self._sizes = [int(np.prod(self.space.sizes[sites])) for sites in self._turns]
        self.measurements = sum(self._sizes) - len(self._sizes) + LAYOUTS_TRIED

    def _propose(self, count: int) -> np.ndarray:
        done = 0
        for sites, size in zip(self._turns, self._sizes, strict=True):
            done += size - (done > 0)  # without the fastest itself, which is known
            if len(self.times) < done:
                return self._combine(sites)
        drawn = draw_new(self.space, self.generator, 4 * count, self.known)
        drawn[:, self._options] = self.best(1)[0, self._options]
        return drawn

    def _combine(self, sites: list[int]) -> np.ndarray:
        """Return the fastest configuration so far with every combination of values at these
        parameters."""
        combined = list(product(*(range(self.space.sizes[site]) for site in sites)))
        rows = np.tile(self.best(1), (len(combined), 1))
        rows[:, sites] = combined
        return rows


def write_programs(folder: Path, seed: int = SEED) -> list[Path]:
    """Write the programs' files; the first has this seed, the others the following ones."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for number, family in enumerate(FAMILIES[:PROGRAMS]):
        settings = draw_settings((family,), np.random.default_rng(seed + number))
        path = folder / f"{family}_{number}.py"
        path.write_text(write_file(settings), encoding="utf-8")
        paths.append(path)
    return paths


def find_ours(path: Path, folder: Path) -> Verdict | None:
    """Return the result of `fastslow choose`."""
    settings = Settings(MEASUREMENTS, kinds=(LAYOUTS, OPTIONS), limits=Limits(60, 4096))
    return choose_program(path, load_bundle(), folder, settings, lambda note: None).verdict


def find_by(path: Path, folder: Path, way: str) -> Verdict | None:
    """Return the result of another search, measured and verified in the same way."""
    with open_machine(path, folder, way) as (harness, space, journal):
        thorough = Thorough(space)
        proposer = thorough if way == THOROUGH else RandomSearch(space, 0)
        proposer.tell(space.default[None], np.array([harness.reference]))
        budget = Budget(thorough.measurements if way == THOROUGH else MEASUREMENTS, batch=BATCH)
        found = harness.verify(search(proposer, harness, budget, journal))
    return None if found is None else found[1]


def count_null_claims(path: Path, folder: Path) -> int:
    """Count how often a second compilation of the same program is called faster than the first."""
    claims = 0
    with open_machine(path, folder, NULL) as (harness, space, _):
        for number in range(NULL_RUNS):
            same = Trial(f"same {number}", space.default.tolist(), harness.reference)
            found = harness.verify([same])
            claims += found is not None and found[1].is_gain
    return claims


def verify_ours(path: Path, folder: Path) -> dict[str, float]:
    """Return a Verdict's fields: what verify.py says of the configuration that `find_ours` timed
    last, whether that was a gain or not."""
    journal = json.loads((folder.parent.parent / OURS / path.stem / RECORD).read_text())
    winner = next(one for one in journal["trials"] if one["name"] == journal["result"]["winner"])
    with Child(Limits(60, 4096)) as child:
        program = read_program(path, child, Settings())
    space = make_program_space(program, (LAYOUTS, OPTIONS))
    config = np.array(winner[CHOICES], np.int32)
    _, flags = space.prepare(config)
    folder.mkdir(parents=True, exist_ok=True)
    hand_over_estimated(space, config, folder, {"choice": winner["name"], "target": CPU})
    # The script is for TPUs: add the options that only the CPU's compiler has.
    text = (folder / SCRIPT).read_text()
    assert text.count(SETS_OPTIONS) == 1
    options = Compiler()._compile_options(Flags((), flags.backend)).SerializeAsString()
    added = f"        options = type(options).ParseFromString({options!r})\n{SETS_OPTIONS}"
    (folder / SCRIPT).write_text(text.replace(SETS_OPTIONS, added))
    command = [sys.executable, str(folder / SCRIPT)]
    environment = {**os.environ, "JAX_PLATFORMS": "cpu"}
    subprocess.run(command, check=True, env=environment, stdout=subprocess.DEVNULL)
    found = json.loads((folder / VERDICT).read_text())
    rounds = len(found["nanoseconds"])
    return {**{name: found[name] for name in ("gain", "low", "high")}, "rounds": rounds}


@contextmanager
def open_machine(
    path: Path, folder: Path, way: str
) -> Iterator[tuple[Harness, ProgramSpace, Journal]]:
    """Open a program for measuring, with its earlier measurements."""
    core, limits = choose_core(), Limits(60, 4096)
    with Child(limits, core) as compiling, Child(limits, core) as timing:
        program = read_program(path, compiling, Settings())
        space = make_program_space(program, (LAYOUTS, OPTIONS))
        journal = Journal.open(folder, {"program": program.digest, "way": way})
        default = journal.trials.get("default")
        reference = default.time if default else None
        harness = Harness(space, Workers(compiling, timing), 0, reference)
        own = space.default.tolist()
        journal.trials["default"] = Trial("default", own, harness.reference)
        yield harness, space, journal


def show(folder: Path, paths: list[Path]) -> None:
    """Print a row per program, and the bars."""
    table = make_table(
        f"How many times as fast as the compiler's default, {MEASUREMENTS} measurements",
        f"In brackets: the interval over fresh rounds. Thorough: all combinations of {len(MOST)} "
        f"options, of the others with the best of these, and {LAYOUTS_TRIED} layouts with that. A "
        "gain counts where it can be told.",
    )
    for name in ("program", OURS, RANDOM, THOROUGH, SCRIPT):
        table.add_column(name, justify="left" if name == "program" else "right")
    gains: dict[str, list[float]] = {OURS: [], RANDOM: [], THOROUGH: [], SCRIPT: []}
    for path in paths:
        cells = []
        for way, own in gains.items():
            file = folder / way / f"{path.stem}.json"
            if not file.is_file():
                cells.append("")
                continue
            told = json.loads(file.read_text())
            verdict = Verdict(**told) if told else None
            own.append(verdict.gain if verdict is not None and verdict.is_gain else 1.0)
            cells.append(
                f"{verdict.gain:.3f} [{verdict.low:.3f}, {verdict.high:.3f}]" if verdict else "-"
            )
        table.add_row(path.stem, *cells)
    means = [np.exp(np.mean(np.log(own))) if own else np.nan for own in gains.values()]
    table.add_row("geometric mean", *(f"{mean:.3f}" for mean in means))
    console = Console(width=120)
    console.print(table)
    least, share = min(gains[OURS], default=np.nan), np.log(means[0]) / np.log(means[2])
    console.print(
        f"Mean {means[0]:.3f} (bar {BAR}); least {least:.3f} (bar {SLOWER}); {share:.0%} of what "
        f"the thorough search finds, in logarithms (bar {SHARE:.0%})."
    )
    pairs = list(zip(gains[OURS], gains[SCRIPT], strict=False))
    if pairs:
        agree = sum((ours > 1) == (theirs > 1) for ours, theirs in pairs)
        console.print(f"verify.py has the verdict of ours for {agree} of {len(pairs)} programs.")
    claims = [json.loads(file.read_text()) for file in sorted((folder / NULL).glob("*.json"))]
    if claims:
        console.print(
            f"Of {NULL_RUNS * len(claims)} programs compiled once more as they are, "
            f"{sum(claims)} are said to be faster (bar 5%)."
        )


def answer_by(way: str, path: Path, folder: Path) -> dict[str, float] | int | None:
    """Return the result stored for a program: a verdict, or a count of false gains."""
    if way == NULL:
        return count_null_claims(path, folder)
    if way == SCRIPT:
        return verify_ours(path, folder)
    verdict = find_ours(path, folder) if way == OURS else find_by(path, folder, way)
    return None if verdict is None else asdict(verdict)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--way", action="append", choices=WAYS)
    parser.add_argument("--seed", type=int, default=SEED, help="of the first program")
    given = parser.parse_args()
    paths = write_programs(given.folder / "programs", given.seed)
    for way in given.way or WAYS:
        for path in paths:
            file = given.folder / way / f"{path.stem}.json"
            if not file.is_file():
                answer = answer_by(way, path, given.folder / way / path.stem)
                write_bytes(json.dumps(answer).encode(), file)
                print(f"{way} {path.stem}: {answer}", flush=True)
    show(given.folder, paths)


if __name__ == "__main__":
    main()
