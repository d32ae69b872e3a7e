"""Measure a step of segment training as the graph grows, compared with training on full graphs.

    make bench-segments         10 minutes on one core, 5 GB of memory, 20 MB of disk

Every graph and variant is measured in a separate process, time and memory in different runs; they
alternate, so ratios are robust on a noisy machine. The graphs are whole (not pruned), in segments
of 1,000 nodes, and a step is a graph with CONFIGS of its configurations.
"""

import dataclasses
import gc
import json
import statistics
import time
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from benchmarks.memory import memory, run_apart
from solution.system.memory import trim
from solution.system.progress import track
from solution.system.terminal import make_table

Found = dict[str, float]
CONFIGS = 8
WAYS: dict[str, dict[str, int | None]] = {
    "full graph": {"max_nodes": None},
    "others anew": {"table_megabytes": None},
    "table": {"table_megabytes": 16},  # few steps fill little of it
}
STEPS = {"full graph": 1, "others anew": 2, "table": 10}  # timed steps, after one that is not timed
# Allocate every large tensor separately and return it when it is freed, to measure live memory and
# not the allocator's cache. Time is measured without this.
EXACT = {"MALLOC_MMAP_THRESHOLD_": str(1 << 20), "MALLOC_TRIM_THRESHOLD_": str(1 << 20)}
# nodes, edges, configurable nodes: in the proportions of the largest graph
GRAPHS = {5_000: (5_000, 8_470, 257), 43_615: (43_615, 73_881, 2_244)}
BAR = 1.2  # maximum ratio to the peak memory of the smallest graph


def write_graph(folder: Path, nodes: int) -> Path:
    """Write the file of a synthetic program, if it is missing; the largest is the stress graph."""
    from benchmarks.stress import XLA, layout

    path = folder / XLA / "train" / f"program_{nodes}.npz"
    if not path.is_file():
        layout(*GRAPHS[nodes], 1_001)(path)
    return path


def measure_way(path: Path, way: str) -> Found:
    """Return seconds of a training step, and megabytes before it and at its peak."""
    import torch

    from solution.data.npz import read_graph
    from solution.domain.collection import collection
    from solution.features.preparation import Preparation
    from solution.models.nets.ranking_net import Example
    from solution.models.nets.training_loop import train
    from solution.papers.segment_training import SegmentSettings
    from solution.system.report import silent

    torch.set_num_threads(1)
    settings = SegmentSettings(hops=None, **WAYS[way])  # type: ignore[arg-type]
    graph = Preparation(None)(read_graph(path, collection("layout:xla:random")))
    inputs = settings.build(0).prepare(graph)
    example = Example(inputs, graph.runtimes[: len(inputs.codebook.codes)], graph.key)  # type: ignore[index]
    net = settings.build(0).make_net()
    training = dataclasses.replace(
        settings.training, epochs=1, patience=None, configs_per_graph=CONFIGS
    )
    del graph
    train(net, [example], [], training, 0, silent)  # allocates the state of later steps
    before = reset_peak()
    start = time.perf_counter()
    train(net, [example], [], dataclasses.replace(training, epochs=STEPS[way]), 1, silent)
    seconds = (time.perf_counter() - start) / STEPS[way]
    return {"seconds": seconds, "before": before, "peak": memory("VmHWM")}


def reset_peak() -> float:
    """Release free memory and reset the peak; return megabytes in use (Linux)."""
    gc.collect()
    trim()
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    return memory("VmRSS")


def show(times: dict[tuple[int, str], list[Found]], exact: dict[tuple[int, str], Found]) -> Table:
    """Print a row per graph and variant: the median time, time ratios with their range, and
    memory."""
    smallest = min(GRAPHS)
    table = make_table(
        Text(f"A step of {CONFIGS} configurations; its peak memory, and the rise in it, over the "
             f"same on {smallest:,} nodes")
    )  # fmt: skip
    for name in ("Nodes", "Training", "Seconds", "Full over it", "Peak", "Ratio", "Rise", "Ratio"):
        table.add_column(name, justify="left" if name == "Training" else "right", no_wrap=True)
    for (nodes, way), rounds in times.items():
        ratios = [
            full["seconds"] / own["seconds"]
            for full, own in zip(times[nodes, "full graph"], rounds, strict=True)
        ]
        own, small = exact[nodes, way], exact[smallest, way]
        table.add_row(
            f"{nodes:,}",
            way,
            f"{statistics.median(found['seconds'] for found in rounds):.2f}",
            f"{statistics.median(ratios):.1f} ({min(ratios):.1f} to {max(ratios):.1f})",
            f"{own['peak']:,.0f} MB",
            f"{own['peak'] / small['peak']:.2f}",
            f"{rise(own):,.0f} MB",
            f"{rise(own) / rise(small):.2f}",
        )
    return table


def rise(found: Found) -> float:
    """Return a step's peak memory minus the memory before it."""
    return found["peak"] - found["before"]


def main(
    folder: Annotated[Path, typer.Argument()] = Path("build/segments"),
    rounds: int = 3,
    way: Annotated[str, typer.Option(help="Measure only this, on the file FOLDER.")] = "",
) -> None:
    """Print every measurement at once, so that an interrupted run has shown it."""
    if way:
        print(json.dumps(measure_way(folder, way)))
        return
    console = Console(width=130)
    paths = {nodes: write_graph(folder, nodes) for nodes in GRAPHS}
    keys = [(nodes, way) for nodes in GRAPHS for way in WAYS]
    times: dict[tuple[int, str], list[Found]] = {key: [] for key in keys}
    exact: dict[tuple[int, str], Found] = {}
    with track((1 + rounds) * keys, "Measuring") as tracked:
        for place, (nodes, name) in enumerate(tracked):
            environment = EXACT if place < len(keys) else {}
            words = (str(paths[nodes]), "--way", name)
            found: Found = run_apart("benchmarks.segments", *words, **environment)
            console.print(f"{nodes:,} nodes, {name}: {found}")
            if place < len(keys):
                exact[nodes, name] = found
            else:
                times[nodes, name].append(found)
    console.print(show(times, exact))
    large, small = exact[max(GRAPHS), "table"], exact[min(GRAPHS), "table"]
    worst = max(large["peak"] / small["peak"], rise(large) / rise(small))
    console.print(f"{max(GRAPHS):,} over {min(GRAPHS):,} nodes: {worst:.2f}, bar: {BAR}")


if __name__ == "__main__":
    typer.run(main)
