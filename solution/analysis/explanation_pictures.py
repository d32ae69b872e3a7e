"""Draw explanations as bar charts: contributions, importances (over all graphs), costs."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from solution.analysis.explanation import Explanation
from solution.analysis.graph_picture import show_name
from solution.features.column import Feature
from solution.system.pictures import save_figure

if TYPE_CHECKING:  # for annotations only, because this import needs torch
    from solution.analysis.state_costs import Costs

SHOWN = 15  # maximum number of bars in a panel
SLOWER, FASTER = "#c44e52", "#4c72b0"


def draw_contributions(explanation: Explanation, path: Path) -> None:
    """Write a PNG with two bar charts: the largest contributions of columns to the difference of
    scores, and the columns that the model uses most."""
    figure = Figure(figsize=(13, 5.6), layout="constrained")
    axes = figure.subplots(1, 2)
    order = explanation.order[:SHOWN][::-1]
    values = explanation.contributions[order]
    colours = np.where(values > 0, SLOWER, FASTER)
    axes[0].barh([explanation.features[column].name for column in order], values, color=colours)
    axes[0].axvline(0, color="black", linewidth=0.8)
    axes[0].set_title(
        f"{show_name(explanation.graph)}: configuration {explanation.slow} over {explanation.fast}"
    )
    axes[0].set_xlabel("contribution to the difference of scores (red: slower, blue: faster)")
    _draw_importance(axes[1], explanation.features, explanation.importance)
    save_figure(figure, path)


def draw_costs(costs: "Costs", path: Path) -> None:
    """Write a PNG of the costs in which two configurations differ: a bar per tensor."""
    figure = Figure(figsize=(11, 5.6), layout="constrained")
    axes = figure.subplots()
    names, values = costs.names[:SHOWN][::-1], costs.added[:SHOWN][::-1]
    bars = np.arange(len(names))
    axes.barh(bars, values, color=np.where(values > 0, SLOWER, FASTER))
    axes.set_yticks(bars, names)
    axes.axvline(0, color="black", linewidth=0.8)
    axes.set_title(f"{show_name(costs.graph)}: configuration {costs.slow} over {costs.fast}")
    axes.set_xlabel("cost that adds to the difference of the scores (red: slower, blue: faster)")
    save_figure(figure, path)


def _draw_importance(axes: Axes, features: Sequence[Feature], importance: np.ndarray) -> None:
    order = np.argsort(-importance, kind="stable")[:SHOWN][::-1]
    axes.barh([features[column].name for column in order], 100 * importance[order], color="#8c8c8c")
    axes.set_title("What the model uses most, over all graphs")
    axes.set_xlabel("share of the trees' gain, or of the linear weights (%)")
