"""The report of `fastslow optimize`: runtime before and after, devices, kernels, lower bound."""

import csv
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from solution.domain.vocabulary import OPCODES
from solution.placement.baselines.earliest import rank_upward
from solution.placement.baselines.lists import cost_alone
from solution.placement.evaluation import Evaluator
from solution.placement.graphs.cost_graph import DATA, CostGraph
from solution.placement.machine import OPERATIONS, Machine
from solution.placement.optimize import Contender, optimize
from solution.placement.policy.network import Policy
from solution.placement.simulation.decision import Decision, Timeline
from solution.placement.simulation.environment import Environment
from solution.placement.simulation.timeline import find_kernels, name_kernel
from solution.system.errors import InputError
from solution.system.files import replace_file
from solution.system.wording import count

CELLS = 36  # characters of a utilisation bar; the table then fits 80 columns
FAR = 10  # runtime / bound from which "far above" is printed: the bound is loose for small programs
SHORT = 1e-4  # seconds; shorter times are printed in microseconds
SHADES = " ░▒▓█"
MOST_SHOWN = 5


@dataclass(frozen=True, eq=False)
class PlacementReport:
    """The best decision of a search; `candidates` are the first decisions, fastest first, which
    heuristics and the policy made."""

    evaluator: Evaluator
    candidates: list[Contender]
    decision: Decision  # the best decision
    line: Timeline  # the timeline of the best decision
    bound: float  # seconds; lower bound on the runtime of every valid decision

    @property
    def graph(self) -> CostGraph:
        return self.evaluator.graph

    def summary(self) -> str:
        """Return a text: default runtime, best runtime, and the gap to the lower bound."""
        evaluator, after = self.evaluator, self.line.outcome.seconds
        before = evaluator.environment.runtime(evaluator.base)
        fits = "" if before.reason is None else f" (which is invalid: {before.reason})"
        ratio = after / max(self.bound, 1e-30)
        gap = f"{max(ratio - 1, 0):.1%} above" if ratio < FAR else "far above"
        return (
            f"{self.graph.name}: {count(self.graph.num_nodes, 'node')} on "
            f"{count(len(evaluator.machine), 'device')}. "
            f"Before: {name_time(before.seconds)}{fits}. After: {name_time(after)}, "
            f"{gap} the lower bound of {name_time(self.bound)}. "
            f"{count(len(evaluator.curve), 'decision')} simulated."
        )

    def rows(self) -> Iterator[tuple[str, ...]]:
        """Yield a table row per device: name, kernels, share of time busy, peak memory, bytes sent,
        and a bar of the utilisation over time."""
        kernels = find_kernels(self.graph, self.line)
        total = max(self.line.outcome.seconds, 1e-30)
        for number, device in enumerate(self.evaluator.machine.devices):
            ran = kernels[self.line.placement[kernels] == number]
            busy = float((self.line.end[ran] - self.line.start[ran]).sum()) / total
            sent = sum(self.graph.output_bytes[t.node] for t in self.line.transfers
                       if t.source == number)  # fmt: skip
            peak = float(self.line.outcome.peak_bytes[number])
            yield (
                f"{number} {device.name}", f"{len(ran):,}", f"{busy:.0%}", f"{peak / 1e9:.2f} GB",
                f"{sent / 1e6:,.1f} MB", draw_bar(self.line.start[ran], self.line.end[ran], total),
            )  # fmt: skip

    def fusions(self) -> str:
        """Return a sentence: how many kernels have several nodes, and the most frequent."""
        sizes = np.bincount(self.line.groups, minlength=self.graph.num_nodes)
        kernels = find_kernels(self.graph, self.line)
        fused = kernels[sizes[kernels] > 1]
        if not len(fused):
            return "No nodes are fused."
        names = Counter(name_kernel(self.graph, sizes, kernel) for kernel in fused.tolist())
        shown = ", ".join(f"{name} ({count})" for name, count in names.most_common(MOST_SHOWN))
        return (
            f"Fused: {int(sizes[fused].sum()):,} nodes in {count(len(fused), 'kernel')}, at most "
            f"{int(sizes[fused].max())} in one. Most frequent, by their last node: {shown}."
        )

    def origin(self) -> str:
        """Return a sentence about the fastest decision before the search, and about HEFT's."""
        is_valid = self.evaluator.is_valid
        first = next((one for one in self.candidates if is_valid(one.seconds)), None)
        text = "Before the search, nothing fitted into memory"
        if first is not None:
            text = f"Before the search, the best was {first.name} ({name_time(first.seconds)})"
        heft = [one.seconds for one in self.candidates if one.name == "heft"]
        if not heft or first is None:
            return f"{text}."
        if is_valid(heft[0]):
            return f"{text}, and HEFT had {name_time(heft[0])}."
        return f"{text}; HEFT's decision does not fit into memory."


def find_bound(
    graph: CostGraph, machine: Machine, *, fused: bool, placed: np.ndarray | None = None
) -> float:
    """Return a lower bound on the seconds of every valid decision.

    bound = max(longest path, sum over nodes of least seconds / number of devices)

    If the device of each node is given, `placed` (nodes,), a node takes its seconds there, and the
    second term is the largest sum of a device.

    With fusion, a kernel may save all its memory traffic and its launch, so only its arithmetic
    counts. Without fusion, a node costs at least its time on the device that is fastest at it, or
    on its given device.
    """
    if fused:
        seconds = graph.operations[:, None] / machine.table[:, OPERATIONS]
        seconds[graph.fusion_kinds == DATA] = 0
    else:
        seconds = cost_alone(graph, machine)
    least = seconds.min(axis=1) if placed is None else seconds[np.arange(len(placed)), placed]
    path = rank_upward(least, np.zeros(len(least)), *graph.consumers).max(initial=0.0)
    if placed is not None:
        return float(max(path, np.bincount(placed, least).max()))
    # work bound: as if every device ran each node as fast as the node's fastest device does
    return float(max(path, least.sum() / seconds.shape[1]))


def name_time(seconds: float) -> str:
    """Return the time as text in milliseconds, or in microseconds if it is shorter than SHORT."""
    return f"{seconds * 1e3:.3f} ms" if seconds >= SHORT else f"{seconds * 1e6:.3g} us"


def draw_bar(start: np.ndarray, end: np.ndarray, total: float) -> str:
    """Return a bar of shaded characters: a device's utilisation over `total` seconds, from its
    kernels' start and end seconds (kernels,)."""
    borders = np.linspace(0, total, CELLS + 1)
    # seconds of work until each border: ended kernels, and the elapsed part of the running one
    done = np.clip(borders[:, None] - start[None], 0, np.maximum(end - start, 0)[None]).sum(axis=1)
    shares = np.clip(np.diff(done) / (total / CELLS), 0, 1)
    return "".join(SHADES[round(share * (len(SHADES) - 1))] for share in shares)


def optimize_and_report(
    graph: CostGraph,
    machine: Machine,
    tasks: tuple[str, ...],
    policy: Policy | None,
    evaluations: int,
    seed: int,
) -> PlacementReport:
    """Search, and return a report on the best decision. Raises InputError if no evaluated decision
    fits into memory."""
    evaluator = Evaluator(Environment(graph, machine), tasks)
    candidates = optimize(evaluator, policy, evaluations, seed)
    if evaluator.best is None:
        more = "try more decisions" if "placement" in tasks else "let placement be decided, too"
        more = f", or {more}" if len(machine) > 1 else ""
        raise InputError(
            f"{graph.name}: of {count(len(evaluator.curve), 'decision')} none fits the memory of "
            f"{count(len(machine), 'device')}. Take more or larger ones{more}."
        )
    line = evaluator.environment.timeline(evaluator.best)
    placed = None if "placement" in tasks else line.placement
    bound = find_bound(graph, machine, fused="fusion" in tasks, placed=placed)
    return PlacementReport(evaluator, candidates, evaluator.best, line, bound)


def write_decision(report: PlacementReport, path: Path) -> None:
    """Write a CSV file with a row per node, sorted by the node's number in the source file."""
    graph, line = report.graph, report.line
    with replace_file(path) as temporary, temporary.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(("node", "opcode", "device", "priority", "kernel", "start", "end"))
        for node in np.argsort(graph.numbers).tolist():
            writer.writerow((
                int(graph.numbers[node]), OPCODES.get(int(graph.opcodes[node]), "merged"),
                int(line.placement[node]), float(report.decision.priorities[node]),
                int(graph.numbers[line.groups[node]]), float(line.start[node]),
                float(line.end[node]),
            ))  # fmt: skip
