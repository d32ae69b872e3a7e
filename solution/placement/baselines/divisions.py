"""Simple placements: by hand (layers in sequence), METIS, and TensorFlow's default (one device)."""

import numpy as np

from solution.placement.baselines.lists import find_tasks
from solution.placement.graphs.cost_graph import CostGraph
from solution.placement.machine import Machine
from solution.placement.simulation.decision import Decision, default_decision
from solution.system.errors import InputError

LARGEST_WEIGHT = 1 << 20  # weights sum to 512 times this: METIS adds them as 32-bit integers
SEED = 0


def decide_placement(graph: CostGraph, placement: np.ndarray, *, fused: bool) -> Decision:
    """Return a decision with the devices `placement` (nodes,), equal priorities (kernels run in the
    order in which they become ready) and, if `fused`, every legal fusion."""
    levels = np.full(graph.num_nodes, int(fused))
    return Decision(placement[graph.leaders], np.zeros(graph.num_nodes), levels)


def decide_tensorflow(graph: CostGraph) -> Decision:
    """Return a decision with all nodes on the first device and every legal fusion."""
    return decide_placement(graph, default_decision(graph).placement, fused=True)


def divide_as_a_person(graph: CostGraph, machine: Machine, *, by_cost: bool) -> np.ndarray:
    """Return devices (nodes,): each device gets consecutive layers, of equal cost if `by_cost`,
    else equally many. A graph without layers is divided by cost in topological order."""
    devices, cost = len(machine), find_tasks(graph, machine).seconds.mean(axis=1)
    stages = graph.stages if (graph.stages >= 0).all() else np.arange(graph.num_nodes)
    # device = floor(devices * cost up to the middle of the stage / total cost), or by number of
    # stages: floor(devices * stage / stages).
    if by_cost or stages is not graph.stages:
        of_stage = np.bincount(stages, cost)
        middle = np.cumsum(of_stage) - of_stage / 2
        device = (middle / max(of_stage.sum(), 1e-30) * devices).astype(np.int64)
    else:
        device = np.arange(stages.max() + 1) * devices // (stages.max() + 1)
    return np.minimum(device, devices - 1)[stages]


def divide_by_metis(graph: CostGraph, machine: Machine) -> np.ndarray:
    """Return devices (nodes,) from METIS, one part of the graph per device. Nodes are weighted by
    time, edges by bytes. There are fewer parts if a part would have fewer than two nodes or be much
    lighter than the heaviest node, because METIS then prints to the terminal."""
    try:
        import pymetis  # a compiled package, missing on some platforms
    except ImportError as error:
        raise InputError("pymetis is not installed. Install it: pip install pymetis.") from error
    from scipy.sparse import coo_array

    cost = find_tasks(graph, machine).seconds.mean(axis=1)
    ends = np.concatenate([graph.edges, graph.edges[:, ::-1]])
    sent = np.tile(graph.output_bytes[graph.edges[:, 1]], 2)
    links = coo_array((sent, tuple(ends.T)), shape=2 * (graph.num_nodes,)).tocsr()
    links.sort_indices()
    # The mean weight of a part must be at least half the weight of the heaviest node.
    lightest = cost.max() / 2
    most = np.count_nonzero(cost) // 2, cost.sum() / max(lightest, 1e-30)
    parts = max(1, int(min(len(machine), *most)))
    division = pymetis.part_graph(
        parts, pymetis.CSRAdjacency(links.indptr, links.indices),
        vweights=_to_whole(cost), eweights=_to_whole(links.data) + 1,
        options=pymetis.Options(seed=SEED),
    )  # fmt: skip
    return np.asarray(division.vertex_part, np.int64)


def _to_whole(weights: np.ndarray) -> np.ndarray:
    """Scale weights to integers whose sum is about 2**29."""
    total = max(float(weights.sum()), 1e-30)
    return np.ceil(weights / total * LARGEST_WEIGHT * 512).astype(np.int32)
