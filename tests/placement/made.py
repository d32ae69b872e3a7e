"""Graphs of costs at random, for the tests of this room."""

import numpy as np

from solution.placement.graphs.cost_graph import Columns, CostGraph, build_cost_graph
from solution.placement.machine import Device, Machine
from solution.placement.simulation.decision import FUSION_LEVELS, Decision


def make_columns(count: int, seed: int) -> Columns:
    random = np.random.default_rng(seed)
    kinds = random.choice(5, count, p=[0.1, 0.5, 0.1, 0.2, 0.1]).astype(np.uint8)
    sizes = random.integers(1, 4_000_000, count).astype(float)
    return Columns(
        opcodes=random.integers(1, 100, count).astype(np.uint8),
        fusion_kinds=kinds,
        operations=np.where(kinds == 4, 0, random.integers(1, 10**9, count)).astype(float),
        output_bytes=sizes,
        resident_bytes=np.where(kinds == 4, 3 * sizes, 0.0),
        shapes=random.integers(0, 9, (count, 6)).astype(np.float32),
        element_types=random.integers(0, 19, count).astype(np.uint8),
        stages=np.full(count, -1),
    )


def make_edges(count: int, seed: int, reach: int = 12) -> np.ndarray:
    random = np.random.default_rng(seed)
    edges = [
        (node, int(read))
        for node in range(1, count)
        for read in random.integers(max(0, node - reach), node, random.integers(0, 4))
    ]
    return np.array(edges, np.int64).reshape(-1, 2)


def make_graph(count: int, seed: int, *, tied: bool = False) -> CostGraph:
    random = np.random.default_rng(seed)
    ties = np.where(random.random(count) < 0.2, random.integers(0, count, count), np.arange(count))
    return build_cost_graph(
        f"random-{seed}", make_columns(count, seed), make_edges(count, seed), ties if tied else None
    )


def make_unequal_machine(devices: int, seed: int, memory: float = 1e12) -> Machine:
    random = np.random.default_rng(seed)
    return Machine(
        tuple(
            Device(f"d{k}", 1e12 * random.uniform(0.5, 8), 1e11 * random.uniform(1, 9),
                   float(random.choice([0, 1e-6, 5e-6])), memory)
            for k in range(devices)
        ),
        latency=float(random.choice([0, 1e-5])),
        bandwidth=1e9 * random.uniform(1, 20),
    )  # fmt: skip


def make_decision(graph: CostGraph, devices: int, seed: int) -> Decision:
    random = np.random.default_rng(seed)
    return Decision(
        random.integers(0, devices, graph.num_nodes),
        random.integers(0, 5, graph.num_nodes).astype(float),
        random.integers(0, FUSION_LEVELS, graph.num_nodes),
    )
