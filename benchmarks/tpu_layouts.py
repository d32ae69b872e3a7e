"""Test layouts on a TPU by estimates: which programs and layouts compile, and how estimates differ.

    python -m benchmarks.tpu_layouts FOLDER                     # 10 programs of each family
    python -m benchmarks.tpu_layouts FOLDER --programs 2 --configs 9 --target tpu:v5e
    python -m benchmarks.tpu_layouts FOLDER --only-show         # the tables of existing results
    python -m benchmarks.tpu_layouts FOLDER --passes --module real.pb ...

Programs are those of solution.collecting.families, and the modules given with --module. With
--passes, only the passes over HLO run, on the modules alone: no estimates, no machine code. An
interrupted run resumes with the same command, except --passes. With the extra `tpu`.
"""

import argparse
import json
from collections import defaultdict
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from benchmarks.tpu_propagation import compile_one
from solution.collecting.collect import Settings
from solution.collecting.families import FAMILIES, write_programs
from solution.collecting.journal import CANDIDATE_FILE, SOUND, STATE
from solution.collecting.program_space import LAYOUTS
from solution.collecting.records import Destination
from solution.collecting.session import collect_programs
from solution.collecting.space import draw_new, name_config
from solution.collecting.target import parse_target
from solution.collecting.tpu.asking import (
    TAKEN,
    UNTAKEN,
    compare_with_asked,
    find_fixed_boundary,
)
from solution.collecting.tpu.forking import serve_tpu
from solution.collecting.tpu.labelling import LEARN_EVERY, find_ignored
from solution.collecting.tpu.reading import Reader
from solution.collecting.tpu.space import PROBES, make_tpu_space
from solution.programs.child import Child, Limits
from solution.programs.hlo.messages import instructions
from solution.programs.program import Program, name_program, read_programs
from solution.system.errors import InputError
from solution.system.files import write_json
from solution.system.scratch import ScratchFolder
from solution.system.terminal import say

COLLECTION = "layout:xla:random"
MINUTES = 24 * 60.0
SECONDS = 600.0  # limit of a compilation
FAILED = "failed.json"  # by program, why it does not compile unchanged
MEASURED = 10  # configurations of a program after which seconds are reported


def main() -> None:
    """Collect, and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="what is collected goes there")
    parser.add_argument("--programs", type=int, default=10, help="of each family")
    parser.add_argument("--configs", type=int, default=21, help="with the compiler's choice")
    parser.add_argument("--target", default="tpu:v3")
    parser.add_argument("--module", type=Path, nargs="*", default=[], help="other programs")
    parser.add_argument("--only-show", action="store_true")
    parser.add_argument("--passes", action="store_true", help="the passes alone, of --module")
    options = parser.parse_args()
    if options.passes:
        _show_passes(options.module, options.configs, options.target)
        return
    out = Destination(options.folder / options.target.replace(":", "-"), COLLECTION, "train")
    families = {name: name for names in FAMILIES.values() for name in names}
    paths = {
        family: write_programs(options.folder / "programs", family, options.programs)
        for family in families
    }
    paths |= {"modules": options.module} if options.module else {}
    if not options.only_show:
        in_turn = [path for files in zip(*paths.values(), strict=False) for path in files]
        rest = [path for files in paths.values() for path in files if path not in in_turn]
        _collect([*in_turn, *rest], out, options.configs, options.target)
    _show({family: [name_program(p) for p in files] for family, files in paths.items()}, out)
    _show_opcodes([path for files in paths.values() for path in files], out)


def _collect(paths: Sequence[Path], out: Destination, configs: int, target: str) -> None:
    """Collect one program after the other; record those that fail."""
    machine = parse_target(target)
    settings = Settings(configs=configs, limits=Limits(600, 8192), keep_flat=True, target=machine)
    make_space = partial(machine.make_space, kind=LAYOUTS)
    failed: dict[str, str] = {}
    for path in paths:
        try:
            finished = collect_programs([path], make_space, out, settings, MINUTES)
        except InputError as error:
            failed[name_program(path)] = str(error)
            continue
        failed |= {one.name: one.defect for one in finished if one.defect}
    write_json(failed, out.folder / FAILED)


def _show_passes(paths: Sequence[Path], configs: int, target: str) -> None:
    """Print a row per module, of which only the passes over HLO run in its configurations."""
    say("| module | nodes | compiled | as asked | after the probes | different programs |")
    say("|---|---|---|---|---|---|")
    scratch, limits = ScratchFolder(), Limits(SECONDS, 8192)
    work: Any = partial(serve_tpu, target=parse_target(target), folder=scratch.path)
    with Child(Limits(SECONDS)) as child, Child(limits, work=work) as compiling:
        for path in paths:
            for program in read_programs(path, child, platform="tpu"):
                say(f"| {program.name} | {_run_passes(program, compiling, configs)} |")
    scratch.remove()


def _run_passes(program: Program, compiling: Child, configs: int) -> str:
    """Return the cells of a module's row. Configurations are drawn as a collection draws them."""
    space, boundary = make_tpu_space(program, LAYOUTS), find_fixed_boundary(program.module)
    requests: list[tuple[list[tuple[int, int]], list[int]]] = []
    known: set[str] = set()
    programs: set[str] = set()
    counts = np.zeros((2, 2), int)  # (all, without the probes), (taken, requested)
    for number in range(configs):
        if number > PROBES and (number == 1 + PROBES or number % LEARN_EVERY == 0):
            space.learn(find_ignored(requests))
        if number <= PROBES:
            drawn = (space.probe(number - 1) if number else space.default)[None]
        else:
            drawn = draw_new(space, np.random.default_rng([0, len(known)]), 1, known)
        for config in drawn:
            known.add(name_config(config))
            reply = compile_one(compiling, space.prepare(config)[0], boundary, SECONDS)
            if isinstance(reply, str):
                say(f"{program.name}: configuration {number}: {reply}")
                continue
            reader = Reader(reply.passed)
            programs.add(reader.names.program)
            states = compare_with_asked(reader.read({}), program, space.layouts(config[None])[0])
            ignored = np.flatnonzero(states == UNTAKEN).tolist()
            requests.append((space.list_choices(config), ignored))
            found = np.array([(states == TAKEN).sum(), np.isin(states, (TAKEN, UNTAKEN)).sum()])
            counts[: 1 + (number > PROBES)] += found
    shares = [f"{taken / max(1, asked):.1%} of {asked:,}" for taken, asked in counts.tolist()]
    nodes = len(list(instructions(program.module)))
    cells = [f"{nodes:,}", f"{len(requests)} of {len(known)}", *shares, str(len(programs))]
    return " | ".join(cells)


def _show(families: dict[str, list[str]], out: Destination) -> None:
    """Print a row per family."""
    path = out.folder / FAILED
    failed = json.loads(path.read_text()) if path.is_file() else {}
    say(
        "| family | programs | compiled | configurations | refused | as asked | after the probes | "
        "different programs | spread: median, largest | processor s, first | then, median |"
    )
    say("|---|---|---|---|---|---|---|---|---|---|---|")
    total: list[dict[str, Any]] = []
    for family, names in families.items():
        found = [one for name in names if (one := _read(out, name))]
        total += found
        if found:
            lost = sum(name in failed for name in names)
            say(f"| {family} | {_describe(found, lost)} |")
    if total:
        say(f"| all | {_describe(total, len(failed))} |")
    for name, reason in failed.items():
        say(f"{name}: {reason}")


def _read(out: Destination, name: str) -> dict[str, Any] | None:
    """Return a program's results so far."""
    log = out.find("log", name)
    if not (log / CANDIDATE_FILE).is_file():
        return None
    candidates = pl.read_parquet(log / CANDIDATE_FILE)
    sound = candidates.filter(pl.col("status") == SOUND)
    untaken = sound["untaken"].list.len()
    times = sound["nanoseconds"].to_numpy()
    return {
        "configs": len(candidates),
        "refused": len(candidates) - len(sound),
        "taken": [int(sound["taken"].sum()), int(sound["taken"][1 + PROBES :].sum())],
        "untaken": [int(untaken.sum()), int(untaken[1 + PROBES :].sum())],
        "unseen": int(sound["unseen"].sum()),
        "programs": sound["program"].n_unique(),
        "spread": float(times.max() / times.min()),
        "seconds": candidates["compile_seconds"].to_list(),
        "finished": json.loads((log / STATE).read_text()).get("finished", False),
    }


def _describe(found: Sequence[dict[str, Any]], lost: int) -> str:
    spreads = [one["spread"] for one in found]
    later = [s for one in found for s in one["seconds"][MEASURED:]]
    shares = []
    for part in (0, 1):
        taken, untaken = (sum(one[kind][part] for one in found) for kind in ("taken", "untaken"))
        shares.append(f"{taken / max(1, taken + untaken):.1%} of {taken + untaken:,}")
    cells = [
        str(len(found) + lost),
        f"{len(found) / (len(found) + lost):.0%}",
        f"{sum(one['configs'] for one in found):,}",
        str(sum(one["refused"] for one in found)),
        *shares,
        f"{sum(one['programs'] for one in found):,}",
        f"{np.median(spreads):.2f}, {max(spreads):.2f}",
        f"{np.median([one['seconds'][0] for one in found]):.1f}",
        f"{np.median(later):.2f}" if later else "",
    ]
    return " | ".join(cells)


def _show_opcodes(paths: Sequence[Path], out: Destination) -> None:
    """Print by opcode how many layouts were requested, and how many the compiler did not use."""
    counts: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0])
    with Child(Limits()) as child:
        for path in paths:
            log = out.find("log", name_program(path)) / CANDIDATE_FILE
            if log.is_file():
                for program in read_programs(path, child, platform="tpu"):
                    _count_opcodes(program, pl.read_parquet(log), counts)
    say("\n| instruction | probes: asked, not taken | later: asked, not taken |")
    say("|---|---|---|")
    for opcode in sorted({opcode for opcode, _ in counts}):
        cells = [counts[opcode, part] for part in ("probes", "later")]
        say(f"| {opcode} | {' | '.join(f'{a:,}, {u:,} ({u / max(a, 1):.1%})' for a, u in cells)} |")


def _count_opcodes(
    program: Program, candidates: pl.DataFrame, counts: dict[tuple[str, str], list[int]]
) -> None:
    space = make_tpu_space(program, LAYOUTS)
    nodes = list(instructions(program.module))
    sound = candidates.filter(pl.col("status") == SOUND)
    for number, (data, untaken) in enumerate(sound.select("values", "untaken").iter_rows()):
        part = "probes" if number <= PROBES else "later"
        for site, _ in space.list_choices(space.from_bytes(data)):
            count = counts[nodes[program.configurable[site]].opcode, part]
            count[0] += 1
            count[1] += site in untaken


if __name__ == "__main__":
    main()
