"""Measure the cost of checksums: prepare and run the bundled sample with and without, alternately.

`python -m benchmarks.seal_cost` prints the ratio of both, and its spread. Without means: no
file is hashed, none is read again for a comparison, and no checksum file is written. A pair is one
pass with and one without, so that the machine's load affects both. It reports processor time, which
is nearly the whole cost except for some syncs of small files, and wall-clock time. On a
busy machine the ratios vary much, so the share is shown as well: the processor time that one pass
with checksums spends on hashing, on comparing a store, and on writing checksum files.
"""

import argparse
import hashlib
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

from solution.data.folders import SAMPLE, find_files
from solution.domain import predictions
from solution.experiments import DEFAULTS
from solution.experiments.base import find_experiment
from solution.features.preparation import Preparation
from solution.models.nets import checkpoint
from solution.store import graph_file, store
from solution.store.preparing import prepare_store
from solution.system import files, parquet, sealing
from solution.training import opening
from solution.training.executors.local import LocalExecutor
from solution.training.jobs import find_backlog
from solution.training.opening import open_experiments, open_store
from solution.training.out_of_fold import run_experiments


class NoHash:
    """A hash that ignores its input."""

    def __init__(self, _content: bytes = b"", *_more: object) -> None:
        pass

    def update(self, _content: bytes) -> None:
        pass

    def hexdigest(self) -> str:
        return 64 * "0"


SEALING = (files, graph_file, store, checkpoint)  # modules that hash files that they write and read
WRITING = (predictions, parquet, opening)  # modules that write a checksum beside a file


@contextmanager
def without_seals() -> Iterator[None]:
    """Inside the block, nothing is hashed, read again or written for checksums."""
    nothing = SimpleNamespace(sha256=NoHash, file_digest=NoHash)
    with ExitStack() as stack:
        for module in SEALING:
            stack.enter_context(mock.patch.object(module, "hashlib", nothing))
        for module in WRITING:
            stack.enter_context(mock.patch.object(module, "replace_sealed", files.replace_file))
        stack.enter_context(mock.patch.object(store.Store, "find_defects", lambda _: []))
        yield


class Stopwatch:
    """The processor time of calls; nested calls count once."""

    def __init__(self) -> None:
        self.seconds, self._depth = 0.0, 0

    def watch(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def watched(*arguments: Any, **options: Any) -> Any:
            begin, self._depth = time.thread_time(), self._depth + 1
            try:
                return call(*arguments, **options)
            finally:
                self._depth -= 1
                if not self._depth:
                    self.seconds += time.thread_time() - begin

        return watched


def measure_share(name: str, work: Callable[..., None], *arguments: Any) -> None:
    """Print the checksums' time in one pass, relative to the rest."""
    clock = Stopwatch()
    hashing = SimpleNamespace(
        sha256=clock.watch(hashlib.sha256), file_digest=clock.watch(hashlib.file_digest)
    )
    with ExitStack() as stack:
        for module in SEALING:
            stack.enter_context(mock.patch.object(module, "hashlib", hashing))
        for owner, word in (
            (graph_file, "_check_array"),
            (graph_file, "_sum"),
            (store.Store, "find_defects"),
            (sealing, "_find_sound"),
            (sealing, "describe_file"),
            (sealing, "is_as_described"),
            (sealing, "write_sealed"),
        ):
            watched = clock.watch(getattr(owner, word))
            stack.enter_context(mock.patch.object(owner, word, watched))
        total, _ = time_it(work, *arguments, sealed=True)
    share = clock.seconds / (total - clock.seconds)
    print(f"{name}: {clock.seconds:.3f} s of {total:.2f} s, {share:.2%} more", flush=True)


def prepare(folder: Path) -> None:
    """Prepare the whole sample, in this process."""
    prepare_store(find_files(SAMPLE), folder / "store", Preparation(), workers=1)


def run(folder: Path, names: list[str]) -> None:
    """Run the experiments on a few graphs of each collection."""
    experiments = [find_experiment(name) for name in names]
    with (
        open_store(SAMPLE, folder / "store", experiments, workers=1) as opened,
        open_experiments(
            experiments, opened, folder / "run", scheme="architecture", folds=5, limit=True
        ) as (plan, made),
    ):
        run_experiments(find_backlog(experiments, plan, made), plan, made, LocalExecutor(1))


def time_it(work: Callable[..., None], *arguments: Any, sealed: bool) -> tuple[float, float]:
    """Return processor seconds of all threads, and wall-clock seconds."""
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        if not sealed:
            stack.enter_context(without_seals())
        cpu, wall = time.process_time(), time.perf_counter()
        work(Path(name), *arguments)
        return time.process_time() - cpu, time.perf_counter() - wall


def compare(name: str, pairs: int, work: Callable[..., None], *arguments: Any) -> None:
    """Print the times of every pair, and the spread of their ratios."""
    ratios = []
    for number in range(pairs):
        order = (True, False) if number % 2 else (False, True)
        found = {sealed: time_it(work, *arguments, sealed=sealed) for sealed in order}
        ratios.append([found[True][clock] / found[False][clock] for clock in (0, 1)])
        clocks = zip(found[True], found[False], strict=True)
        shown = ", ".join(f"{with_:.2f} / {without:.2f} s" for with_, without in clocks)
        print(f"  {name}, with / without: {shown}", flush=True)
    for clock, own in zip(("processor", "clock"), zip(*ratios, strict=True), strict=True):
        middle = statistics.median(own)
        print(f"{name}, {clock}: {middle:.4f}, from {min(own):.4f} to {max(own):.4f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=7, help="of preparing; half as many runs")
    parser.add_argument("--experiment", action="append", help="by default, those of a run")
    options = parser.parse_args()
    time_it(prepare, sealed=True)  # warm-up: imports, and the files' pages in memory
    names = options.experiment or list(DEFAULTS)
    for _ in range(3):
        measure_share("share of preparing", prepare)
    measure_share("share of a run", run, names)
    compare("prepare", options.pairs, prepare)
    compare("run", max(2, options.pairs // 2), run, names)


if __name__ == "__main__":
    main()
