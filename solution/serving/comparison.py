"""Compare how well several bundles rank graphs whose runtimes are known."""

from collections.abc import Mapping, Sequence

import numpy as np
from rich.table import Table
from rich.text import Text

from solution.domain.graph import Graph
from solution.domain.metrics import kendall_tau, top_k_slowdown
from solution.serving.bundle import Bundle
from solution.system.terminal import make_table

FIRST = 5  # a ranking is judged by the fastest of its first 5 configurations


def compare_rankings(bundle: Bundle, graphs: Sequence[Graph]) -> np.ndarray:
    """Return (graphs, 2), for graphs with runtimes: Kendall's tau, and the share by which the
    fastest of the first FIRST ranked configurations is slower than the best of all."""
    rows = []
    for graph in graphs:
        assert graph.runtimes is not None
        scores, runtimes = bundle.rank(graph).scores, graph.runtimes
        rows.append((kendall_tau(scores, runtimes), top_k_slowdown(scores, runtimes, FIRST)))
    return np.array(rows, dtype=np.float64).reshape(len(graphs), 2)


def show_rankings(bundles: Mapping[str, Bundle], graphs: Sequence[Graph]) -> Table:
    """Return a table with a row per graph, and their mean: for each bundle Kendall's tau, and the
    slowdown of the fastest of the first FIRST configurations in percent."""
    title = f"Kendall's tau, and how much slower the best of the first {FIRST} is"
    table = make_table(title, "Both against the runtimes that are known.")
    table.add_column("Program", overflow="fold")
    for name in bundles:
        table.add_column(Text(name), justify="right")
        table.add_column("slower", justify="right")
    values = np.hstack([compare_rankings(bundle, graphs) for bundle in bundles.values()])
    for graph, row in zip(graphs, values, strict=True):
        table.add_row(Text(graph.name), *_spell(row))
    if len(graphs) > 1:
        table.add_section()
        table.add_row("mean", *_spell(values.mean(axis=0)))
    return table


def _spell(row: np.ndarray) -> list[str]:
    pairs = row.reshape(-1, 2).tolist()
    return [cell for tau, slower in pairs for cell in (f"{tau:.3f}", f"{100 * slower:.1f}%")]
