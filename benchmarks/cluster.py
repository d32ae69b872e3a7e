"""Measure a cluster: overhead, speed-up, many small units, kills at random moments.

python -m benchmarks.cluster overhead     # the sample's run, by either executor
python -m benchmarks.cluster speed        # 8 equal fits on one core, and on two nodes of one core
python -m benchmarks.cluster units        # 5,000 empty units
python -m benchmarks.cluster kills        # ten runs, a node of each is killed at some moment

It is a real Ray cluster with several nodes on this machine; compare only figures of one session.
"""

import hashlib
import os
import random
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import psutil
import typer

from benchmarks.peak import Peak
from solution.system.terminal import output
from solution.training.executors.base import Task
from solution.training.executors.cluster import RayExecutor
from tests.cluster.conftest import open_cluster
from tests.cluster.work import Watched, square

EQUAL = 8
app = typer.Typer(help=__doc__)


def run(folder: Path, *options: str) -> float:
    """Run `fastslow` with these arguments and this run folder; return its seconds."""
    start = time.perf_counter()
    command = [Path(sys.executable).parent / "fastslow", *options, "--run", folder]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return time.perf_counter() - start


def digest(folder: Path) -> str:
    """Return a hash of all predictions and the submission."""
    found = hashlib.sha256()
    for path in sorted([*folder.rglob("*.parquet"), *folder.glob("submission.csv")]):
        found.update(path.relative_to(folder).as_posix().encode() + path.read_bytes())
    return found.hexdigest()[:12]


@app.command()
def overhead(workers: int = 2) -> None:
    """Run the sample's default run with local processes, and with two nodes of one core."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        store = ["--store", str(folder / "store")]
        run(folder / "warm", "run", "--limit", *store)
        local = run(folder / "local", "run", "--workers", str(workers))
        with open_cluster(workers) as cluster:
            there = run(folder / "ray", "run", "--executor", "ray", "--address", cluster.address)
        same = digest(folder / "local") == digest(folder / "ray")
    output.print(
        f"local {local:.1f} s, two nodes {there:.1f} s, {there / local - 1:+.0%}; "
        f"predictions and submission {'the same' if same else 'DIFFER'}"
    )


@app.command()
def speed(rounds: int = 1) -> None:
    """Run 8 equal fits on one node of one core, and on two."""
    seconds = {}
    with tempfile.TemporaryDirectory() as scratch:
        mine = Path(scratch) / "equal.py"
        mine.write_text(EQUAL_FITS.replace("SEEDS", str(tuple(range(EQUAL // 2)))))
        for nodes in (1, 2) * rounds:
            with open_cluster(nodes) as cluster:
                there = ["--executor", "ray", "--address", cluster.address, "--folds", "2"]
                folder = Path(scratch) / f"run-{nodes}"
                shutil.rmtree(folder, ignore_errors=True)
                taken = run(folder, "train", str(mine), *there)
            seconds[nodes] = min(taken, seconds.get(nodes, taken))
    ratio = seconds[1] / seconds[2]
    output.print(
        f"{EQUAL} equal fits: one node {seconds[1]:.1f} s, two {seconds[2]:.1f} s: {ratio:.2f} x"
    )


EQUAL_FITS = """
from solution.domain.collection import TILE
from solution.experiments.base import Experiment
from solution.models.nets.training_settings import TrainingSettings
from solution.models.tile.tile_gnn import TileGnnSettings

EXPERIMENT = Experiment(
    name="equal", collections=TILE, seeds=SEEDS,
    ranker=TileGnnSettings(training=TrainingSettings(epochs=150, patience=None)),
)
"""


@app.command()
def units(count: int = 5000, nodes: int = 2) -> None:
    """Run empty units; print seconds, and memory of the head's processes and the driver."""
    with open_cluster(nodes) as cluster:
        executor, peak = RayExecutor(cluster.address), Peak(_of_the_head)
        with executor.open(), peak:
            executor.run(square, [Task("first", (1,))] * nodes, Watched())  # starts the workers
            before, start = peak.megabytes, time.perf_counter()
            executor.run(square, [Task(f"unit {n}", (n,)) for n in range(count)], Watched())
            seconds = time.perf_counter() - start
    output.print(
        f"{count:,} units: {seconds:.1f} s, {1000 * seconds / count:.1f} ms each; head and driver "
        f"{peak.megabytes:.0f} MB at most ({before:.0f} before)"
    )


def _of_the_head() -> list[psutil.Process]:
    """Return the driver and Ray's head processes, without the nodes' workers."""
    own = psutil.Process()
    names = ("gcs_server", "monitor.py", "log_monitor.py")
    return [own, *(p for p in own.children(recursive=True) if any(n in _line(p) for n in names))]


def _line(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""


@app.command()
def kills(times: int = 10, seed: int = 0) -> None:
    """Make quick runs; in each, kill one of two nodes at a random moment and add another one."""
    generator = random.Random(seed)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        words = ["run", "--limit", "--store", str(folder / "store")]
        run(folder / "warm", *words)
        with open_cluster(2) as cluster:
            there = ["--executor", "ray", "--address", cluster.address]
            whole = run(folder / "whole", *words, *there)
            expected = digest(folder / "whole")
            for number in range(times):
                moment = generator.uniform(0.2, 0.9) * whole
                thread = threading.Thread(target=run, args=(folder / str(number), *words, *there))
                start = time.perf_counter()
                thread.start()
                time.sleep(moment)
                victim = generator.choice(cluster.list_all_nodes()[1:])
                cluster.remove_node(victim, allow_graceful=False)
                cluster.add_node(num_cpus=1, object_store_memory=100 << 20)
                thread.join()
                same = digest(folder / str(number)) == expected
                output.print(
                    f"killed after {moment:4.1f} s: {time.perf_counter() - start:5.1f} s (whole "
                    f"{whole:.1f} s), {'same bytes' if same else 'OTHER BYTES'}"
                )


if __name__ == "__main__":
    os.environ.setdefault("COLUMNS", "160")
    app()
