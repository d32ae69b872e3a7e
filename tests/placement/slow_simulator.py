"""The simulator once more, slow and obvious: lists that are searched, dictionaries, no heap.

It knows the rules from the docstrings of solution.placement.simulation, and shares no code with it.
"""

from collections import defaultdict

from solution.placement.graphs.cost_graph import DATA, ELEMENTWISE, PRODUCT, REDUCTION, CostGraph
from solution.placement.machine import Machine
from solution.placement.simulation.decision import Decision


def fuse_slowly(graph: CostGraph, device: list[int], levels: list[int]) -> list[int]:
    """The last node of each node's kernel."""
    members = {node: {node} for node in range(graph.num_nodes)}
    home = {node: node for node in range(graph.num_nodes)}
    readers = defaultdict(set)
    for consumer, producer in graph.edges.tolist():
        readers[producer].add(consumer)
    kinds = graph.fusion_kinds.tolist()
    for node in sorted(range(graph.num_nodes), key=lambda n: (-levels[n], -n)):
        kernels = {home[reader] for reader in readers[node]}
        if levels[node] == 0 or kinds[node] not in (ELEMENTWISE, PRODUCT) or len(kernels) != 1:
            continue
        (kernel,) = kernels
        joined = members[node] | members[kernel]
        if any(kinds[reader] not in (ELEMENTWISE, REDUCTION) for reader in readers[node]):
            continue
        if len(joined) > 64 or sum(kinds[n] == PRODUCT for n in joined) > 1:
            continue
        if device[node] != device[kernel]:
            continue
        members[kernel] = joined
        del members[node]
        for one in joined:
            home[one] = kernel
    return [home[node] for node in range(graph.num_nodes)]


class SlowSimulator:
    """One run; `seconds` and `peaks` are what it found."""

    def __init__(self, graph: CostGraph, machine: Machine, decision: Decision) -> None:
        self.graph, self.machine = graph, machine
        self.device = [int(decision.placement[leader]) for leader in graph.leaders]
        self.kernel = fuse_slowly(graph, self.device, decision.fusion.tolist())
        self.members = defaultdict(list)
        for node, kernel in enumerate(self.kernel):
            self.members[kernel].append(node)
        self.reads, self.readers = defaultdict(list), defaultdict(list)
        for consumer, producer in graph.edges.tolist():
            self.reads[consumer].append(producer)
            self.readers[producer].append(consumer)
        self.priority = {k: float(max(decision.priorities[ns])) for k, ns in self.members.items()}
        self.present: set[tuple[int, int]] = set()  # tensors on devices, complete
        self.ended: set[int] = set()
        self.copies: dict[tuple[int, int], float] = {}  # bytes of each copy in memory
        self.pending_sends: set[tuple[int, int]] = set()
        self.events: list[tuple[float, int]] = []
        self.ready: dict[int, float] = {}
        self.running: dict[int, int] = {}
        self.link: dict[tuple[int, int], float] = defaultdict(float)
        self.resident = [0.0] * len(machine)
        for node in range(graph.num_nodes):
            self.resident[self.device[node]] += float(graph.resident_bytes[node])
        self.peaks = list(self.resident)
        self.seconds = self.run()

    def leaves(self, node: int) -> bool:
        readers = self.readers[node]
        return not readers or any(self.kernel[r] != self.kernel[node] for r in readers)

    def duration(self, kernel: int) -> float:
        graph = self.graph
        if graph.fusion_kinds[kernel] == DATA:
            return 0.0
        work, traffic, seen = 0.0, 0.0, set()
        for node in self.members[kernel]:
            work += float(graph.operations[node])
            for read in sorted(self.reads[node]):
                if self.kernel[read] != kernel and read not in seen:
                    seen.add(read)
                    traffic += float(graph.output_bytes[read])
            if self.leaves(node):
                traffic += float(graph.output_bytes[node])
        device = self.machine.devices[self.device[kernel]]
        seconds = max(work / device.operations_per_second, traffic / device.bytes_per_second)
        return seconds + device.launch_seconds

    def hold(self, node: int, device: int) -> None:
        is_there = self.graph.resident_bytes[node] > 0 and self.device[node] == device
        self.copies[node, device] = 0.0 if is_there else float(self.graph.output_bytes[node])
        used = self.resident[device] + sum(b for (_, d), b in self.copies.items() if d == device)
        self.peaks[device] = max(self.peaks[device], used)

    def release(self) -> None:
        """Drop every copy that nobody will use any more."""
        for node, device in list(self.copies):
            if self.kernel[node] not in self.ended:
                continue
            used = any(
                self.device[r] == device
                and self.kernel[r] != self.kernel[node]
                and self.kernel[r] not in self.ended
                for r in self.readers[node]
            )
            sending = device == self.device[node] and any(n == node for n, _ in self.pending_sends)
            if not used and not sending:
                del self.copies[node, device]

    def start(self, kernel: int, time: float) -> None:
        for node in self.members[kernel]:
            if self.leaves(node):
                self.hold(node, self.device[kernel])
        self.events.append((time + self.duration(kernel), kernel))

    def find_ready(self, time: float) -> None:
        for kernel in sorted(self.members):
            if kernel in self.ready:
                continue
            needs = {r for n in self.members[kernel] for r in self.reads[n]}
            needs = {r for r in needs if self.kernel[r] != kernel}
            if all((r, self.device[kernel]) in self.present for r in needs):
                self.ready[kernel] = time
                if self.graph.fusion_kinds[kernel] == DATA:
                    self.start(kernel, time)
                    self.running[-1 - kernel] = kernel  # started, and in nobody's way

    def end(self, kernel: int, time: float) -> None:
        self.ended.add(kernel)
        device = self.device[kernel]
        self.running = {d: k for d, k in self.running.items() if k != kernel}
        for node in self.members[kernel]:
            self.present.add((node, device))
            targets = {self.device[r] for r in self.readers[node]} - {device}
            for target in sorted(targets):
                begin = max(time, self.link[device, target])
                seconds = float(self.graph.output_bytes[node]) / self.machine.bandwidth
                cost = self.machine.latency + seconds
                self.link[device, target] = begin + cost
                code = self.graph.num_nodes + node * len(self.machine) + target
                self.events.append((begin + cost, code))
                self.pending_sends.add((node, target))

    def run(self) -> float:
        time, started = 0.0, set()
        self.find_ready(time)
        while True:
            while any(t == time for t, _ in self.events):
                event = min(self.events)
                self.events.remove(event)
                if event[1] < self.graph.num_nodes:
                    self.end(event[1], time)
                else:
                    node, target = divmod(event[1] - self.graph.num_nodes, len(self.machine))
                    self.hold(node, target)
                    self.pending_sends.discard((node, target))
                    self.present.add((node, target))
                self.release()
                self.find_ready(time)
            for device in range(len(self.machine)):
                waiting = [
                    k for k in self.ready
                    if k not in started and self.device[k] == device
                    and self.graph.fusion_kinds[k] != DATA
                ]  # fmt: skip
                if waiting and device not in self.running:
                    best = min(waiting, key=lambda k: (-self.priority[k], self.ready[k], k))
                    started.add(best)
                    self.running[device] = best
                    self.start(best, time)
            if not self.events:
                return time
            time = min(self.events)[0]
