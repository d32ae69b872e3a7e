"""Compare whole searches of `fastslow choose --target tpu:...`, compiled anew for ten programs.

    python -m benchmarks.tpu_searches build/tpu-searches
    python -m benchmarks.tpu_searches build/tpu-searches --over layouts --only-show

Programs of all collected families, drawn with other seeds than the programs that the default bundle
learned from. Ours compiles 48 configurations; random draws and a genetic search compile 150 each,
300 together; each copy of a layer is decided alone. Regret is the best estimate so far over the
best that any of the searches found, less 1; the default's estimate is known from the start. An
interrupted search resumes. With the extra `tpu`.
"""

import argparse
from pathlib import Path

import numpy as np
from rich.console import Console

from benchmarks.bootstrap import bootstrap_mean
from benchmarks.choosing_real import write_programs
from solution.choosing.choose import Settings
from solution.choosing.estimated import TIME, choose_for_tpu
from solution.choosing.methods import OURS
from solution.collecting.program_space import LAYOUTS, OPTIONS
from solution.collecting.target import parse_target
from solution.programs.child import Limits
from solution.serving.bundle import load_bundle
from solution.system.terminal import make_table, say

# searches by name, with the number of compilations
SEARCHES = {OURS: 48, "random": 150, "genetic": 150}
SHOWN = (1, 4, 8, 16, 32, 48)
SEED = 9000  # of the first program; training programs have others


def main() -> None:
    """Search what is missing, and print a table of gains and one of regret."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--target", default="tpu:v5e")
    parser.add_argument("--over", action="append", choices=[LAYOUTS, OPTIONS])
    parser.add_argument("--only-show", action="store_true")
    given = parser.parse_args()
    kinds = tuple(given.over or (LAYOUTS, OPTIONS))
    folder = given.folder / "-".join(kinds)
    paths = write_programs(given.folder / "programs", SEED)
    found: dict[str, dict[str, np.ndarray]] = {}
    for path in paths:
        found[path.stem] = {}
        for name, count in SEARCHES.items():
            out = folder / name / path.stem
            if given.only_show and not (out / "search.json").is_file():
                continue
            settings = Settings(
                count, kinds=kinds, search=name, limits=Limits(300, 8192), each_copy=True,
                target=parse_target(given.target),
            )  # fmt: skip
            bundle = load_bundle() if name == OURS else None
            result = choose_for_tpu(path, bundle, out, settings, TIME, lambda note: None)
            times = np.array([trial.time for trial in result.trials][:count])
            found[path.stem][name] = times / result.default.time
            if not given.only_show:
                say(f"{path.stem}, {name}: {np.nanmin(found[path.stem][name]):.4f} of the default")
    show({name: ratios for name, ratios in found.items() if len(ratios) == len(SEARCHES)})


def show(found: dict[str, dict[str, np.ndarray]]) -> None:
    """Print the tables; `found` has estimates over the default's by program and by search, in the
    order of compiling."""
    best = {name: min(map(find_least, ratios.values())) for name, ratios in found.items()}
    table = make_table("Best estimate as a share of the default's, and compilations until it")
    for header in ("program", *(f"{name}, {count}" for name, count in SEARCHES.items())):
        table.add_column(header)
    for name, ratios in found.items():
        cells = [f"{find_least(one):.4f} ({find_first(one)})" for one in ratios.values()]
        table.add_row(name, *cells)
    console = Console(width=120)
    console.print(table)
    least = {name: [find_least(ratios[name]) for ratios in found.values()] for name in SEARCHES}
    others = np.min([least[name] for name in SEARCHES if name != OURS], axis=0)
    rows = {**least, "random and genetic together": others}
    words = [f"{name} {np.exp(-np.log(values).mean()):.4f}" for name, values in rows.items()]
    say(f"Geometric mean of the default's estimate over the best: {', '.join(words)}.")
    say(f"Regret in % of the best that any search found, {len(found)} programs, 95% interval:")
    say(f"| search | {' | '.join(map(str, SHOWN))} |")
    say("|---" * (len(SHOWN) + 1) + "|")
    for name in SEARCHES:
        regret = np.array([
            100 * (follow_best(ratios[name]) / best[program] - 1)
            for program, ratios in found.items()
        ])  # fmt: skip
        means = [bootstrap_mean(regret[:, count - 1], 999) for count in SHOWN]
        cells = [f"{mean.value:.2f} ({mean.low:.2f} to {mean.high:.2f})" for mean in means]
        say(f"| {name} | {' | '.join(cells)} |")


def follow_best(ratios: np.ndarray) -> np.ndarray:
    """Return the best so far (most,), beginning with the default's 1; a refused one is NaN."""
    most = max(SHOWN)
    padded = np.concatenate([ratios, np.full(max(0, most - len(ratios)), np.nan)])[:most]
    return np.fmin.accumulate(np.fmin(padded, 1.0))


def find_least(ratios: np.ndarray) -> float:
    """Return the least ratio; 1, the default's, if none is below it."""
    return float(np.fmin.reduce(ratios, initial=1.0))


def find_first(ratios: np.ndarray) -> int:
    """Return the number of compilations until the least ratio; 0: the default has it."""
    least = find_least(ratios)
    return 0 if least >= 1 else 1 + int(np.flatnonzero(ratios == least)[0])


if __name__ == "__main__":
    main()
