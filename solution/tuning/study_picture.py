"""Draw a search: the scores of its trials, and the score against each setting."""

from pathlib import Path

import numpy as np
import optuna
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter, StrMethodFormatter
from optuna.trial import FrozenTrial, TrialState

from solution.system.pictures import save_figure
from solution.tuning.search import find_as_it_is

COLUMNS = 3
FEW = 5  # minimum number of complete trials for panels of the settings
MANY = 30  # largest ratio of values on a log axis with labels at 1, 2 and 5 times powers of ten
# if max/min of the values is below NARROW, a log axis gets at most FEWER evenly spaced intervals
NARROW, FEWER = 4, 3


def draw_study(study: optuna.Study, path: Path) -> None:
    """Write the picture of a search as PNG."""
    save_figure(make_figure(study), path)


def make_figure(study: optuna.Study) -> Figure:
    """Return a figure of the score of each trial and the best score so far. From FEW complete
    trials on, it also has one panel per setting: the score against the setting's value."""
    complete = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
    pruned = study.get_trials(deepcopy=False, states=(TrialState.PRUNED,))
    names = list(complete[0].params) if len(complete) >= FEW else []
    rows = -(-len(names) // COLUMNS)
    figure = Figure(figsize=(11, 3.4 + 2.6 * rows), layout="constrained")
    grid = figure.add_gridspec(rows + 1, COLUMNS, height_ratios=[1.3, *[1] * rows])
    axes = figure.add_subplot(grid[0, :])
    _draw_history(axes, study.study_name, complete, pruned)
    unchanged = find_as_it_is(study)
    if unchanged is not None and unchanged.value is not None:
        axes.axhline(
            unchanged.value, color="black", linewidth=0.8, linestyle=":", label="as it was"
        )
    axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False, fontsize=8)
    for number, name in enumerate(names):
        axes = figure.add_subplot(grid[1 + number // COLUMNS, number % COLUMNS])
        _draw_setting(axes, name, complete, complete[0].distributions)
    return figure


def _draw_history(
    axes: Axes, name: str, complete: list[FrozenTrial], pruned: list[FrozenTrial]
) -> None:
    numbers = np.array([trial.number for trial in complete])
    values = np.array([trial.value for trial in complete], float)
    axes.plot(numbers, values, "o", color="C0", label="trial")
    axes.step(numbers, np.maximum.accumulate(values), where="post", color="C1", label="best so far")
    # leave out pruned trials without scores: they diverged in their first step
    scored = [trial for trial in pruned if trial.intermediate_values]
    if scored:
        given_up = [list(trial.intermediate_values.values())[-1] for trial in scored]
        label = "given up (score of its folds so far)"
        axes.plot([t.number for t in scored], given_up, "x", color="#999999", label=label)
    axes.set_title(f"{name}: out-of-fold score of {len(complete) + len(pruned)} trials")
    axes.set_xlabel("trial")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_ylabel("score")


def _draw_setting(
    axes: Axes,
    name: str,
    complete: list[FrozenTrial],
    distributions: dict[str, optuna.distributions.BaseDistribution],
) -> None:
    values = [trial.params[name] for trial in complete]
    scores = np.array([trial.value for trial in complete], float)
    if isinstance(distributions[name], optuna.distributions.CategoricalDistribution):
        values = [str(value) for value in values]
    elif getattr(distributions[name], "log", False):
        axes.set_xscale("log")
        # with a larger ratio of values, labels at 2 and 5 would overlap
        numbers = (1, 2, 5) if max(values) <= MANY * min(values) else (1,)
        locator = LogLocator(subs=numbers, numticks=6)
        # If LogLocator gives too few labels on a narrow axis, use evenly spaced ones.
        is_narrow = max(values) < NARROW * min(values)
        axes.xaxis.set_major_locator(MaxNLocator(FEWER) if is_narrow else locator)
        axes.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
        axes.xaxis.set_minor_formatter(NullFormatter())
    best = int(np.argmax(scores))
    axes.plot(values, scores, "o", color="C0", markersize=4)
    axes.plot([values[best]], [scores[best]], "o", color="C1", markersize=7)
    axes.set_xlabel(name)
    axes.set_ylabel("score")
