"""Write all figures of a first look at a folder of data as PNG files."""

from collections.abc import Callable, Sequence
from pathlib import Path

from matplotlib.figure import Figure

from solution.analysis import data_pictures
from solution.data.folders import find_files
from solution.data.npz import read_graph
from solution.domain.collection import NAMES
from solution.domain.graph import Graph
from solution.features.preparation import Preparation
from solution.system.errors import InputError
from solution.system.files import make_folder
from solution.system.pictures import save_figure
from solution.system.progress import track

MOST = 40  # maximum number of graphs per collection that are read and drawn


# by file name, the functions that draw the figures
FIGURES: dict[str, Callable[[Sequence[Graph]], Figure]] = {
    "runtimes": data_pictures.draw_runtimes,
    "ranges": data_pictures.draw_ranges,
    "gains": data_pictures.draw_gains,
    "configurations": data_pictures.draw_across,
    "scale": data_pictures.draw_scale,
}
# like FIGURES, but only drawn if the data has layout graphs
OF_LAYOUTS: dict[str, Callable[[Sequence[Graph]], Figure]] = {
    "opcodes": data_pictures.draw_opcodes,
    "pruning": data_pictures.draw_pruning,
    "violations": data_pictures.draw_violations,
}


def draw_first_look(data: Path, folder: Path) -> list[Path]:
    """Write every figure for the labelled graphs in `data`, and return the figures' paths. At most
    MOST graphs of each collection are read. Raises InputError if none of them has labels."""
    files = [file for file in find_files(data) if file.split != "test"]
    chosen = []
    for name in NAMES:
        found = [file for file in files if file.collection.name == name]
        chosen += [found[number] for number in data_pictures.spread_evenly(len(found), MOST)]
    with track(chosen, "Reading") as tracked:
        read = [read_graph(file.path, file.collection) for file in tracked]
    graphs = [Preparation(None)(graph) for graph in read if graph.runtimes is not None]
    if not graphs:
        raise InputError(
            f"{data}: expected graphs with runtimes, found none in its splits train and valid. "
            "Give a folder with labelled graphs, or one file."
        )
    make_folder(folder)
    has_layouts = any(graph.collection.kind == "layout" for graph in graphs)
    figures = FIGURES | (OF_LAYOUTS if has_layouts else {})
    paths = []
    for name, draw in figures.items():
        paths.append(folder / f"{name}.png")
        save_figure(draw(graphs), paths[-1])
    return paths
