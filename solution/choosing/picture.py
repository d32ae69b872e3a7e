"""Plot the best time so far, over measurements and over seconds."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from solution.choosing.journal import Trial
from solution.system.pictures import save_figure


def draw_search(trials: Sequence[Trial], reference: float, title: str, path: Path) -> None:
    """Write a PNG of each trial's time and the best so far, compared with the default's time.

    Args:
        reference: nanoseconds of the compiler's default.
    """
    times = np.array([trial.time for trial in trials]) / reference
    best = np.fmin.accumulate(np.where(np.isfinite(times), times, np.inf))
    best = np.where(np.isfinite(best), best, np.nan)
    seconds = np.cumsum([trial.seconds for trial in trials])
    figure = Figure(figsize=(9, 3.6), layout="constrained")
    axes = figure.subplots(1, 2, sharey=True)
    for panel, along, label in (
        (axes[0], np.arange(1, len(trials) + 1), "measurements"),
        (axes[1], seconds, "seconds"),
    ):
        panel.plot(along, times, "o", markersize=3, alpha=0.5, label="measured")
        panel.step(along, best, where="post", label="best so far")
        panel.axhline(1.0, linestyle=":", color="gray", label="the compiler's default")
        panel.set(xlabel=label)
    axes[0].set(ylabel="time over the default's")
    axes[0].legend(fontsize=8)
    figure.suptitle(title)
    save_figure(figure, path)
