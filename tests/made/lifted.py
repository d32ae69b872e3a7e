"""Compare a graph with the features of the program that it was lifted to."""

from collections import Counter

import numpy as np

from solution.collecting.lifting.lift import Lifted
from solution.domain.graph import Graph
from solution.programs.hlo.nodes import find_configurable, read_nodes
from solution.programs.program import Program, make_graph
from tests.made import modules


def make_chain(products: int, sums: int, size: int = 64) -> Graph:
    """Return a chain of products of square matrices, each followed by `sums` additions."""
    shape, summed = modules.shape(size, size), modules.dot([1], [0], [], [])
    nodes = [modules.node(1, "parameter", shape)]
    for _ in range(products):
        last = len(nodes)
        nodes.append(modules.node(last + 1, "dot", shape, (last, last), dot=summed))
        for number in range(last + 2, last + 2 + sums):
            nodes.append(modules.node(number, "add", shape, (number - 1, last)))
    module = modules.module(("main", len(nodes), nodes), name="chain")
    return make_graph(Program("chain", module, None), "layout:xla:random")


def find_lost(graph: Graph, lifted: Lifted) -> Counter[int]:
    """Count the nodes whose features differ, by column; columns -1 to -3 are no features.

    -1: opcodes. -2: edges. -3: nodes that are configurable in the graph and not in the module. A
    file may have fewer configurable nodes than the rule finds.
    """
    nodes = read_nodes(lifted.module)
    lost = Counter(np.nonzero(nodes.features != graph.node_features)[1].tolist())
    edges = graph.edges[np.lexsort(graph.edges.T[::-1])]
    lost[-1] = int((nodes.opcodes != graph.node_opcodes).sum())
    lost[-2] = int(not np.array_equal(nodes.edges, edges))
    lost[-3] = len(np.setdiff1d(graph.configurable, find_configurable(nodes.opcodes)))
    return +lost
