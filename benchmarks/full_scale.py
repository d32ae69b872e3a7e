"""Compare our implementation with the obvious one at the competition's full scale, in one table.

    make bench-scale          10 to 15 minutes on two cores, 4 GB of disk in build/full-scale

Each variant runs in a separate process. Preparing and inflating run alternately, and the median of
their ratios is printed, which is robust on a noisy machine. benchmarks/stress.py writes the files.
"""

import hashlib
import random
import shutil
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from rich.console import Console
from rich.table import Table

from benchmarks.corpus import FACTS, write_corpus
from benchmarks.memory import run_apart
from benchmarks.stress import write_stress_files
from benchmarks.ways import EXPERIMENTS
from solution.domain.predictions import SCHEMA
from solution.system.parquet import write_batches
from solution.system.progress import track

ROUNDS = 3
PART = 0.2  # share of the rows for the variant that holds them all in memory
ROWS = 31_000_000
KILLS = 10
FASTSLOW = Path(sys.executable).parent / "fastslow"


def measure(folder: Path, *names: str, rounds: int = ROUNDS) -> list[dict[str, dict[str, float]]]:
    """Return each variant's results, by round; the variants of a round run alternately."""
    return [
        {name: run_apart("benchmarks.ways", str(folder), name) for name in names}
        for _ in range(rounds)
    ]


def bench_preparing(folder: Path, table: Table) -> None:
    """Measure preparing 100,040 configurations of 344 nodes."""
    rounds = measure(folder, "inflate", "load", "prepare")

    def middle(name: str, key: str) -> float:
        return statistics.median(found[name][key] for found in rounds)

    def ratio(key: str) -> float:
        return statistics.median(r["prepare"][key] / r["inflate"][key] for r in rounds)

    memory, loaded = middle("prepare", "megabytes"), middle("load", "bytes")
    row(
        table,
        "prepare 100,040 x 344: memory",
        f"{memory:,.0f} MB",
        f"np.load {middle('load', 'megabytes'):,.0f} MB",
        "600 MB",
        memory < 600,
    )
    row(
        table,
        "  time over only inflating",
        f"x {ratio('seconds'):.2f}",
        f"np.load {middle('load', 'seconds'):.1f} s",
        "x 1.3",
        ratio("seconds") <= 1.3,
    )
    row(
        table,
        "  processor time over it",
        f"x {ratio('processor'):.2f}",
        f"inflating {middle('inflate', 'processor'):.1f} s",
        "",
        None,
    )
    size = loaded / middle("prepare", "bytes")
    row(
        table,
        "  size of the store",
        f"1/{size:.1f}",
        f"{loaded / 2**20:,.0f} MB",
        "1/30",
        size >= 30,
    )


def bench_training(folder: Path, table: Table) -> None:
    """Measure reading the data of a training step."""
    (found,) = measure(folder, "train_step", "load_step", rounds=1)
    ours, theirs = found["train_step"], found["load_step"]
    row(
        table,
        "read a step's 64 configs",
        f"{1e3 * ours['step']:.2f} ms",
        f"np.load {theirs['step']:.1f} s",
        "5 ms",
        ours["step"] < 0.005,
    )
    row(table, "  99% of the steps within", f"{1e3 * ours['worst']:.2f} ms", "", "", None)


def bench_predicting(folder: Path, table: Table) -> None:
    """Measure predicting the largest test graph."""
    (found,) = measure(folder, "predict", "predict_whole", rounds=1)
    ours, theirs = found["predict"], found["predict_whole"]
    whole = theirs["predicting"] * ours["configs"] / theirs["configs"]
    row(
        table,
        "predict 43,615 nodes x 1,001",
        f"{ours['predicting']:.1f} s",
        f"unpruned {whole:.0f} s*",
        "60 s",
        ours["predicting"] < 60,
    )
    row(
        table,
        "  memory",
        f"{ours['megabytes']:,.0f} MB",
        f"unpruned {theirs['megabytes']:,.0f} MB",
        "4,000 MB",
        ours["megabytes"] < 4000,
    )


def bench_merging(folder: Path, table: Table) -> None:
    """Measure rank-averaging the whole training set."""
    write_predictions(folder, ROWS)
    write_predictions(folder / "part", round(PART * ROWS))
    ours = measure(folder, "merge", rounds=1)[0]["merge"]
    (part,) = measure(folder / "part", "merge", "merge_whole", rounds=1)
    times = part["merge_whole"]["seconds"] / part["merge"]["seconds"]
    row(
        table,
        "rank-average 31 M rows x 5",
        f"{ours['seconds']:.0f} s",
        f"in one go x {times:.1f}**",
        "120 s",
        ours["seconds"] < 120,
    )
    row(
        table,
        "  memory",
        f"{ours['megabytes']:,.0f} MB",
        f"{part['merge_whole']['megabytes']:,.0f} MB**",
        "3,000 MB",
        ours["megabytes"] < 3000,
    )


def bench_killing(folder: Path, table: Table) -> None:
    """Check that a preparation that is killed repeatedly ends with the same bytes."""
    data, whole, killed = folder / "corpus", folder / "store-whole", folder / "store-killed"
    if not data.is_dir():
        write_corpus(data, "layout:nlp:random", graphs=0.1, configs=0.05)
    for store in (whole, killed):
        shutil.rmtree(store, ignore_errors=True)
    command = [str(FASTSLOW), "prepare", str(data), "--out"]
    start = time.perf_counter()
    subprocess.run([*command, str(whole)], check=True, capture_output=True)
    length, generator, kills = time.perf_counter() - start, random.Random(0), 0
    for _ in range(KILLS):
        process = subprocess.Popen([*command, str(killed)], stderr=subprocess.DEVNULL)
        time.sleep(generator.uniform(0.3, 1) * length / 2)
        kills += process.poll() is None
        process.send_signal(signal.SIGKILL)
        process.wait()
    subprocess.run([*command, str(killed)], check=True, capture_output=True)
    same = fingerprint(whole) == fingerprint(killed)
    row(
        table,
        f"killed {kills} times while preparing",
        "same bytes" if same else "DIFFERENT",
        "",
        "same bytes",
        same,
    )


def fingerprint(folder: Path) -> dict[str, str]:
    """Return the hash of every file by name."""
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def write_predictions(folder: Path, rows: int) -> None:
    """Write random predictions of EXPERIMENTS experiments for real numbers and sizes of graphs."""
    folder.mkdir(parents=True, exist_ok=True)
    generator = np.random.default_rng(0)
    graphs = [
        (name, f"{generator.integers(1 << 60):015x}_program", facts.configs.draw(generator))
        for name, facts in sorted(FACTS.items())
        if name.startswith("layout")
        for _ in range(sum(facts.graphs[:2]))
    ]
    scale = rows / sum(count for *_, count in graphs)
    for member in track_members(folder):
        batches = (
            pl.DataFrame(
                {
                    "config": np.arange(round(scale * count)),
                    "score": generator.random(round(scale * count)),
                }
            )
            .select(
                pl.lit(name).alias("collection"),
                pl.lit(graph).alias("graph"),
                "config",
                pl.lit(0).alias("fold"),
                pl.lit(0).alias("seed"),
                "score",
            )
            .cast(SCHEMA)
            for name, graph, count in sorted(graphs)
        )
        write_batches(batches, SCHEMA, member)


def track_members(folder: Path) -> Any:
    """Return the members' missing files, with a progress bar."""
    paths = [folder / f"member_{number}.parquet" for number in range(EXPERIMENTS)]
    with track([path for path in paths if not path.is_file()], "Writing predictions") as tracked:
        yield from tracked


def row(table: Table, what: str, ours: str, theirs: str, bar: str, holds: bool | None) -> None:
    """Add a row to the table; `holds`: whether the bar is met."""
    mark = {True: "[green]yes", False: "[red]NO", None: ""}[holds]
    table.add_row(what, ours, theirs, bar, mark)


def main() -> None:
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "build/full-scale")
    write_stress_files(folder / "stress")
    table = Table(
        title="The competition's full scale",
        caption="* from 50 configurations  ** on a fifth of the rows, against ours on the same",
    )
    for column in ("What", "Ours", "Obvious way", "Bar", "Kept"):
        table.add_column(column, justify="left" if column == "What" else "right", no_wrap=True)
    for bench in (bench_preparing, bench_training, bench_predicting, bench_merging, bench_killing):
        bench(folder, table)
    Console(width=100).print(table)


if __name__ == "__main__":
    main()
