"""What the states of a program cost, added up, and labels that are made so."""

from dataclasses import replace

import numpy as np

from solution.domain.graph import Graph
from solution.features.propagation.state_table import state_tables
from solution.models.layout.known_costs import weigh_states


def sum_costs(graph: Graph, costs: np.ndarray) -> np.ndarray:
    """Sums (configs,) of what each state (states,) costs."""
    return costs[state_tables("cpu")(graph).numbers].sum(axis=1)[graph.distinct.inverse]


def label(graph: Graph, costs: np.ndarray) -> Graph:
    """Runtimes by what states (states,) cost."""
    return replace(graph, runtimes=1e6 * (1 + sum_costs(graph, costs)))


def label_by_copies(graph: Graph, counts: float) -> Graph:
    """Runtimes by copied bytes, those of arguments counted so often."""
    known = weigh_states(graph, state_tables("cpu")(graph))
    return label(graph, known.copying + counts * known.arguments)
