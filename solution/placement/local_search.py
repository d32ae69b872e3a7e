"""Local search: move operations from busy to idle devices, the largest predicted gain first.

Most operations of a training program have slack: the dots for a weight's gradient can wait while
the next layer waits for another dot. The timeline of a decision shows what to move: work on a busy
device that delays other work, to a device that is idle at that time, if nothing waits for the
transfers.

A part is a set of nodes on one device that move together. The gains (seconds saved) of moving each
part to each device are predicted at once, without an evaluation. The moves with the largest gains
are evaluated together: twice as many moves after each success, half as many after each failure.

Local search over schedules is old (Wu, Shu and Gu, "Efficient local search for DAG scheduling",
2001); the parts, the predicted gains and the number of moves per evaluation are new here.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product

import numpy as np

from solution.domain.neighbours import Neighbours
from solution.placement.baselines.earliest import rank_upward
from solution.placement.baselines.lists import cost_alone
from solution.placement.evaluation import Evaluator
from solution.placement.graphs.cost_graph import CostGraph
from solution.placement.simulation.decision import Decision, Timeline

# How nodes form parts: "alike": nodes of one class (find_alike) on one device; "single": a leader
# with the nodes that must share its device.
SIZES = "alike", "single"
# why a part moves: "load": its device has more work; "wait": it is on the critical chain
REASONS = "load", "wait"
FIRST, MOST = 4, 64  # first and maximum number of parts moved per evaluation
FAILURES = 6  # successive failed moves of single parts that end a strategy (a size and a reason)
WORTH = 1e-3  # relative gain of an evaluation above which strategies that were given up are retried
# At most this many parts may move: the largest by seconds / 2 + seconds on the critical chain.
MOST_PARTS = 128
# weight of a second of transfers against a second of load; below 1, because links work in parallel
SENT_FOR_LOAD = 0.3


@dataclass(frozen=True)
class Move:
    """A part (a set of nodes that move together), and the device to which it could move."""

    # (k,) int64: the leaders in the part; its other nodes run on the device of their leader
    leaders: np.ndarray
    device: int


class GainPredictor:
    """A predictor of the seconds that each possible move saves. A fused kernel's seconds are
    divided among its nodes in proportion to the nodes' seconds without fusion."""

    def __init__(self, evaluator: Evaluator) -> None:
        graph = self._graph = evaluator.graph
        self._evaluator = evaluator
        self._seconds = cost_alone(graph, evaluator.machine)
        mean = self._seconds.mean(axis=1)
        self._after = rank_upward(mean, np.zeros(len(mean)), *graph.consumers) - mean
        self._longest = float((self._after + mean).max(initial=0.0))
        self._seen: tuple[Decision, Timeline, np.ndarray] | None = None
        self._labels = {"alike": find_alike(graph)[graph.leaders], "single": graph.leaders}

    def propose(self, decision: Decision, size: str) -> dict[str, list[Move]]:
        """Return for each of REASONS the moves with a positive gain, the largest gain first.
        `size`, one of SIZES, says how nodes are grouped into the parts that move."""
        timeline, waited = self._simulate(decision)
        labels = self._labels[size] * len(self._evaluator.machine) + timeline.placement
        _, part = np.unique(labels, return_inverse=True)
        gains = self._predict(timeline, waited, part)
        members = Neighbours.of(part, self._graph.leaders, int(part.max()) + 1)
        return {
            reason: [Move(np.unique(members.at(one)), device) for one, device in _sort_gains(saved)]
            for reason, saved in gains.items()
        }

    def _simulate(self, decision: Decision) -> tuple[Timeline, np.ndarray]:
        """Return the decision's timeline, and a mask (nodes,) bool: True on the critical chain."""
        if self._seen is None or self._seen[0] is not decision:
            environment = self._evaluator.environment
            waited = np.zeros(self._graph.num_nodes, bool)
            waited[environment.find_critical(decision)] = True
            self._seen = decision, environment.timeline(decision), waited
        return self._seen[1:]

    def _predict(
        self, timeline: Timeline, waited: np.ndarray, part: np.ndarray
    ) -> dict[str, np.ndarray]:
        """Return predicted gains in seconds (parts, devices) for each of REASONS. `waited`: mask
        (nodes,) of the critical chain. `part`: (nodes,) the part of each node."""
        devices, count = len(self._evaluator.machine), int(part.max()) + 1
        seconds = self._spread_seconds(timeline)
        current = seconds[np.arange(len(part)), timeline.placement]
        runs = current > 0
        here = np.zeros(count, np.int64)
        here[part] = timeline.placement
        # per part: seconds of work by device, seconds on the critical chain, time of first start
        work = np.stack([np.bincount(part, column, count) for column in seconds.T], axis=1)
        waits = np.bincount(part, current * waited, count)
        first = np.full(count, np.inf)
        np.minimum.at(first, part[runs], timeline.start[runs])
        at_home = np.arange(count), here
        # seconds of transfers if the part ran on each device, and the change if it moved there
        sent = self._find_transfers(timeline.placement, part, count)
        more = sent - sent[at_home][:, None]

        # load saved = fall of max(load_here, load_there) - SENT_FOR_LOAD * added transfer seconds
        load = np.bincount(timeline.placement, current, devices)
        left = load[here] - work[at_home]
        levelled = np.maximum(load[here][:, None], load) - np.maximum(left[:, None], load + work)
        by_load = levelled - SENT_FOR_LOAD * more

        # delay saved = min(the part's seconds on the critical chain, idle seconds there) - (its
        # seconds there - its seconds here) - lateness there
        idle = find_idle(timeline, first, devices)
        slower = work - work[at_home][:, None]
        late = self._find_lateness(timeline, part, runs, sent)
        by_wait = np.minimum(waits[:, None], idle) - slower - late
        is_small = np.argsort(-(waits + work[at_home] / 2), kind="stable")[MOST_PARTS:]
        for saved in (by_load, by_wait):
            saved[at_home] = 0
            saved[is_small] = 0
            saved[~np.isfinite(first)] = 0
        return {"load": by_load, "wait": by_wait}

    def _spread_seconds(self, timeline: Timeline) -> np.ndarray:
        """Return each node's seconds (nodes, devices) on each device: its seconds without fusion,
        times a factor per kernel, so that a kernel's nodes add up to its simulated seconds."""
        rows = np.arange(len(timeline.groups))
        current = self._seconds[rows, timeline.placement]
        alone = np.bincount(timeline.groups, current, len(rows))[timeline.groups]
        taken = timeline.end - timeline.start
        return self._seconds * np.where(alone > 0, taken / np.maximum(alone, 1e-30), 0)[:, None]

    def _find_transfers(self, placement: np.ndarray, part: np.ndarray, count: int) -> np.ndarray:
        """Return seconds (parts, devices) of each part's transfers if it ran on each device. Each
        tensor is sent once per device; a transfer takes bytes / bandwidth, without latency."""
        graph, machine = self._graph, self._evaluator.machine
        reader, producer = graph.edges.T
        crosses = part[reader] != part[producer]
        reader, producer = reader[crosses], producer[crosses]
        sides = ((part[reader], placement[producer]), (part[producer], placement[reader]))
        bytes_with = np.zeros((count, len(machine)))
        for one, device in sides:
            each = np.unique(np.column_stack([one, producer, device]), axis=0)
            np.add.at(bytes_with, (each[:, 0], each[:, 2]), graph.output_bytes[each[:, 1]])
        return (bytes_with.sum(axis=1, keepdims=True) - bytes_with) / machine.bandwidth

    def _find_lateness(
        self, timeline: Timeline, part: np.ndarray, runs: np.ndarray, sent: np.ndarray
    ) -> np.ndarray:
        """Return seconds (parts, devices) by which transfers delay the program if a part moves.

        lateness = max(seconds of transfers / nodes in the part - least slack of these nodes, 0)

        A node's slack is the time from its end to the program's, minus the work after it: the
        longest path after the node, times the program's runtime over the whole program's longest
        path.
        """
        total = timeline.outcome.seconds
        spare = total - timeline.end - self._after * total / max(self._longest, 1e-30)
        least = np.full(len(sent), np.inf)
        np.minimum.at(least, part[runs], np.maximum(spare[runs], 0))
        each = sent / np.maximum(np.bincount(part, runs, len(sent)), 1)[:, None]
        return np.maximum(each - least[:, None], 0)


def find_alike(graph: CostGraph) -> np.ndarray:
    """Return class numbers (nodes,) int64. Nodes of a class have equal operation, shape, layer and
    kinds of inputs, like the same node in each time step of an unrolled network."""
    content = np.column_stack([
        graph.opcodes, graph.operations, graph.output_bytes, graph.stages, graph.shapes
    ])  # fmt: skip
    _, kinds = np.unique(content, axis=0, return_inverse=True)
    # each kind of node gets a random number; the sum over a node's inputs identifies their kinds
    numbers = np.random.default_rng(0).integers(1 << 40, size=kinds.max() + 1)
    read = np.zeros(graph.num_nodes, np.int64)
    np.add.at(read, graph.edges[:, 0], numbers[kinds[graph.edges[:, 1]]])
    _, alike = np.unique(np.column_stack([kinds, read]), axis=0, return_inverse=True)
    return np.asarray(alike, np.int64)


def find_idle(timeline: Timeline, since: np.ndarray, devices: int) -> np.ndarray:
    """Return seconds (times, devices) that each device is idle after `since` (times,).

    idle = total - since - seconds of kernels that start later - rest of the running kernel
    """
    total = timeline.outcome.seconds
    runs = (timeline.groups == np.arange(len(timeline.groups))) & (timeline.end > timeline.start)
    idle = np.empty((len(since), devices))
    at = np.minimum(since, total)
    for device in range(devices):
        kernels = np.flatnonzero(runs & (timeline.placement == device))
        kernels = kernels[np.argsort(timeline.start[kernels], kind="stable")]
        start, end = timeline.start[kernels], timeline.end[kernels]
        done = np.append(0.0, np.cumsum(end - start))
        begun = np.searchsorted(start, at, side="right")
        # remaining seconds of the kernel that runs at the time `at`; negative if none runs
        under_way = np.append(0.0, end)[begun] - at
        busy = done[-1] - (done[begun] - np.maximum(under_way, 0))
        idle[:, device] = np.maximum(total - at - busy, 0)
    return idle


def _sort_gains(saved: np.ndarray) -> Iterator[tuple[int, int]]:
    """Yield the (part, device) of each positive gain in `saved` (parts, devices), the largest gain
    first; of equal gains, consecutive parts prefer different devices."""
    parts, devices = np.nonzero(saved > 0)
    turn = (devices - parts) % saved.shape[1]
    order = np.lexsort((parts, turn, -saved[parts, devices]))
    yield from zip(parts[order].tolist(), devices[order].tolist(), strict=True)


@dataclass
class _Way:
    """A strategy for choosing moves (one of SIZES and one of REASONS), and its success so far."""

    size: str
    reason: str
    count: int = FIRST  # parts to move in the next evaluation
    failures: int = 0  # successive failed moves of single parts
    gain: float = np.inf  # moving average of the relative gain per evaluation; infinite: untried


def search_locally(
    evaluator: Evaluator, predictor: GainPredictor, start: Decision, seconds: float, budget: int
) -> None:
    """Move parts until no strategy helps, or `budget` evaluations are used; the result is
    `evaluator.best`. `start` is a valid decision of `seconds`, already evaluated."""
    ways = [_Way(size, reason) for size, reason in product(SIZES, REASONS)]
    limit, failed = len(evaluator.curve) + budget, set[tuple[int, int, int]]()
    known: dict[str, dict[str, list[Move]]] = {}
    best = evaluator.keep_fixed(start)
    while len(evaluator.curve) < limit:
        open_ways = [way for way in ways if way.failures < FAILURES]
        if not open_ways:
            return
        way = max(open_ways, key=lambda one: one.gain)
        if way.size not in known:
            known[way.size] = predictor.propose(best, way.size)
        moves = _take(known[way.size][way.reason], way.count, failed, len(best.placement))
        if not moves:
            way.failures = FAILURES
            continue
        placement = best.placement.copy()
        for move in moves:
            placement[move.leaders] = move.device
        moved = replace(best, placement=placement)
        found = evaluator.evaluate(moved)
        if not evaluator.is_valid(found):
            # An invalid decision is no gain, even if `start` is slower than INVALID * reference.
            found = np.inf
        gain = max(seconds - found, 0.0) / seconds
        way.gain = gain if np.isinf(way.gain) else (way.gain + gain) / 2
        if found < seconds:
            best, seconds = moved, found
            known.clear()
            way.count, way.failures = min(2 * len(moves), MOST), 0
            if gain > WORTH:
                for other in ways:
                    other.failures = 0
        elif len(moves) > 1:
            way.count = len(moves) // 2
        else:
            way.failures += 1
            way.count = 1
            failed.add(_name(moves[0]))


def _take(
    moves: list[Move], count: int, failed: set[tuple[int, int, int]], nodes: int
) -> list[Move]:
    """Return the first moves, at most `count`, that did not fail before and share no node."""
    taken: list[Move] = []
    seen = np.zeros(nodes, bool)
    for move in moves:
        if len(taken) == count:
            break
        if not seen[move.leaders].any() and _name(move) not in failed:
            seen[move.leaders] = True
            taken.append(move)
    return taken


def _name(move: Move) -> tuple[int, int, int]:
    return int(move.leaders[0]), len(move.leaders), move.device
