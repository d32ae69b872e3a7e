"""Additive costs of a program's states, and labels made of them."""

from dataclasses import replace

import numpy as np

from solution.domain.graph import Graph
from solution.features.propagation.state_table import state_tables
from solution.models.layout.known_costs import weigh_states


def sum_costs(graph: Graph, costs: np.ndarray, backend: str = "cpu") -> np.ndarray:
    """Return for each configuration (configs,) the sum of its states' costs (states,)."""
    return costs[state_tables(backend)(graph).numbers].sum(axis=1)[graph.distinct.inverse]


def label(graph: Graph, costs: np.ndarray) -> Graph:
    """Label the graph with runtimes by the costs (states,) of its states."""
    return replace(graph, runtimes=1e6 * (1 + sum_costs(graph, costs)))


def label_by_copies(graph: Graph, counts: float) -> Graph:
    """Label the graph by copied bytes; copies of arguments count `counts` times."""
    known = weigh_states(graph, state_tables("cpu")(graph))
    return label(graph, known.copying + counts * known.arguments)
