"""Draw a timeline, and write it as a trace for Chrome and Perfetto (chrome://tracing)."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from solution.domain.vocabulary import OPCODES
from solution.placement.graphs.cost_graph import DATA, CostGraph
from solution.placement.machine import Machine
from solution.placement.simulation.decision import Timeline
from solution.system.files import write_bytes
from solution.system.pictures import save_figure, show_plainly

MICROSECONDS = 1e6
MAX_BARS = 40_000


def find_kernels(graph: CostGraph, line: Timeline) -> np.ndarray:
    """Return the kernels (k,) int64 that take time, each identified by its last node."""
    is_last = line.groups == np.arange(graph.num_nodes)
    return np.flatnonzero(is_last & (graph.fusion_kinds != DATA))


def name_kernel(graph: CostGraph, sizes: np.ndarray, kernel: int) -> str:
    """Return a name such as "dot", or "add and 3 more" for four nodes that end with an add."""
    name = OPCODES.get(int(graph.opcodes[kernel]), "merged")
    return name if sizes[kernel] == 1 else f"{name} and {sizes[kernel] - 1} more"


def write_trace(graph: CostGraph, machine: Machine, line: Timeline, path: Path) -> None:
    """Write a Trace Event Format file: a row per device, and a row per link that was used."""
    trace = {"traceEvents": list(_trace(graph, machine, line)), "displayTimeUnit": "ms"}
    write_bytes(json.dumps(trace).encode(), path)


def _trace(graph: CostGraph, machine: Machine, line: Timeline) -> Iterator[dict[str, Any]]:
    count = len(machine)
    for number, device in enumerate(machine.devices):
        yield _name_row(number, f"device {number}: {device.name}")
    for link in sorted({(t.source, t.target) for t in line.transfers}):
        yield _name_row(count + link[0] * count + link[1], f"link {link[0]} to {link[1]}")
    sizes = np.bincount(line.groups, minlength=graph.num_nodes)
    for kernel in find_kernels(graph, line).tolist():
        name, row = name_kernel(graph, sizes, kernel), int(line.placement[kernel])
        facts = {"node": int(graph.numbers[kernel]), "nodes": int(sizes[kernel])}
        yield _event(name, row, float(line.start[kernel]), float(line.end[kernel]), facts)
    for sent in line.transfers:
        row = count + sent.source * count + sent.target
        facts = {"node": int(graph.numbers[sent.node]),
                 "bytes": int(graph.output_bytes[sent.node])}  # fmt: skip
        yield _event("transfer", row, sent.start, sent.end, facts)


def _name_row(row: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "pid": 0, "tid": row, "name": "thread_name", "args": {"name": name}}


def _event(name: str, row: int, start: float, end: float, facts: dict[str, int]) -> dict[str, Any]:
    begin, length = start * MICROSECONDS, (end - start) * MICROSECONDS
    return {"ph": "X", "pid": 0, "tid": row, "name": name, "ts": begin, "dur": length,
            "args": facts}  # fmt: skip


def draw_timeline(graph: CostGraph, machine: Machine, line: Timeline, path: Path) -> None:
    """Draw kernels as bars, a row per device, above its transfers; at most MAX_BARS kernels."""
    from matplotlib.figure import Figure

    kernels = find_kernels(graph, line)
    lengths = line.end[kernels] - line.start[kernels]
    kernels = kernels[np.argsort(-lengths, kind="stable")[:MAX_BARS]]
    figure = Figure(figsize=(11, 1.2 + 0.7 * len(machine)), layout="constrained")
    axes = figure.subplots()
    for device in range(len(machine)):
        shown = kernels[line.placement[kernels] == device]
        bars = np.stack([line.start[shown], line.end[shown] - line.start[shown]], axis=1) * 1e3
        stages = np.maximum(graph.stages[shown], 0) % 10
        axes.broken_barh(bars.tolist(), (device - 0.3, 0.6),
                         facecolors=[f"C{stage}" for stage in stages])  # fmt: skip
        sent = [(1e3 * t.start, 1e3 * (t.end - t.start)) for t in line.transfers
                if t.source == device]  # fmt: skip
        axes.broken_barh(sent, (device + 0.32, 0.12), facecolors="0.5")
    axes.set_yticks(range(len(machine)), [f"{k}: {d.name}" for k, d in enumerate(machine.devices)])
    axes.set_xlabel(f"milliseconds; {line.outcome.seconds * 1e3:.3f} in all; grey: transfers")
    axes.invert_yaxis()
    axes.set_title(show_plainly(graph.name))
    save_figure(figure, path)
