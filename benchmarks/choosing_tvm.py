"""Compare tiles chosen for XLA's loops with TVM's MetaSchedule: same products, core and minutes.

    python -m benchmarks.choosing_tvm build/choosing-tvm --tvm PYTHON --minutes 3

PYTHON is an interpreter with TVM in a separate environment: pip install
apache-tvm==0.25.0.post1 apache-tvm-ffi==0.1.12 cloudpickle psutil scipy xgboost. Both search, one
after the other, on one core; the fastest of each is timed again. Finished searches are not
repeated. The search spaces differ: ours sets three sizes in the loops that XLA writes, MetaSchedule
writes the loops. Times of XLA include its call of a program, some microseconds; TVM's do not.
"""

import argparse
import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import psutil
from rich.console import Console

from solution.choosing.choose import Settings, choose_program
from solution.collecting.program_space import TILES
from solution.programs.child import choose_core
from solution.serving.bundle import load_bundle
from solution.system.files import write_json
from solution.system.terminal import make_table

Shape = tuple[int, int, int]  # rows, sums, columns
SHAPES: tuple[Shape, ...] = (
    (96, 192, 128), (97, 131, 203), (256, 256, 256), (64, 512, 512),
)  # fmt: skip
SCRIPT = Path(__file__).parent / "metaschedule.py"
PRODUCT = """import numpy as np

random = np.random.default_rng(0)


def program(left, right):
    return left @ right


arguments = tuple(random.standard_normal(s).astype(np.float32) for s in {sizes})
"""


def choose_ours(shape: Shape, folder: Path, seconds: float) -> dict[str, float]:
    """Return nanoseconds of the compiler's default and of the chosen tile, timed again."""
    rows, sums, columns = shape
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "product.py"
    path.write_text(PRODUCT.format(sizes=((rows, sums), (sums, columns))), encoding="utf-8")
    settings = Settings(None, seconds, kinds=(TILES,))
    chosen = choose_program(path, load_bundle(), folder, settings, lambda note: None)
    gain = 1.0 if chosen.verdict is None else chosen.verdict.gain
    found = {"default": chosen.reference, "tile": chosen.reference / gain}
    return {**found, "timed": len(chosen.trials) - 1, "seconds": chosen.seconds}


def choose_theirs(shape: Shape, folder: Path, seconds: float, python: str) -> dict[str, float]:
    """Return nanoseconds of MetaSchedule's result, timed again."""
    folder.mkdir(parents=True, exist_ok=True)
    command = [python, str(SCRIPT)]
    given = [*map(str, shape), str(folder)]
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    alone = {**kept, "TVM_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    with (folder / "log.txt").open("w") as log:
        tuning = subprocess.Popen(
            [*command, "tune", *given], env=alone, stdout=log, stderr=log, start_new_session=True
        )
        try:
            tuning.wait(seconds)
        except subprocess.TimeoutExpired:
            pass
        finally:
            os.killpg(tuning.pid, signal.SIGKILL)  # with its builder and runner
            tuning.wait()
    done = subprocess.run(
        [*command, "best", *given], env=alone, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(f"{' '.join(done.args)} failed; {folder / 'log.txt'}:\n{done.stderr}")
    found = json.loads(done.stdout.splitlines()[-1])
    return {"loops": 1e9 * found["seconds"], "timed": found["timed"]}


def show(results: dict[str, Any], minutes: float) -> None:
    """Print a row per product."""
    table = make_table(
        f"Products in float32, {minutes:g} minutes each, one core; microseconds of the fastest, "
        "timed again",
        "Default: what XLA compiles, a library's product. The tile is for loops that XLA writes.",
    )
    columns = ("product", "default", "XLA's loops, tile chosen", "tiles timed", "MetaSchedule",
               "programs timed")  # fmt: skip
    for column in columns:
        table.add_column(column, justify="left" if column == "product" else "right")
    for name, own in results.items():
        ours, theirs = own["ours"], own["theirs"]
        times = (ours["default"], ours["tile"], ours["timed"], theirs["loops"], theirs["timed"])
        cells = [f"{number / 1e3:.1f}" if number > 1e3 else f"{number:.0f}" for number in times]
        table.add_row(name, *cells)
    Console(width=120).print(table)


def main(arguments: argparse.Namespace) -> None:
    """Run missing searches, and print all results."""
    core = choose_core()
    if core is not None:
        psutil.Process().cpu_affinity([core])
    results = {}
    for shape in SHAPES:
        name = " x ".join(map(str, shape))
        folder = arguments.out / "-".join(map(str, shape))
        path = folder / "result.json"
        if not path.exists():
            seconds = 60 * arguments.minutes
            own = {
                "theirs": choose_theirs(shape, folder / "tvm", seconds, arguments.tvm),
                "ours": choose_ours(shape, folder / "ours", seconds),
            }
            write_json(own, path)
        results[name] = json.loads(path.read_text())
    show(results, arguments.minutes)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--tvm", required=True)
    parser.add_argument("--minutes", type=float, default=3)
    main(parser.parse_args())
