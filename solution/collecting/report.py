"""Show the collections in a folder: a table, and a plot of times and their noise."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from solution.collecting.journal import (
    CANDIDATE_FILE,
    CANDIDATES,
    REPEAT_FILE,
    SOUND,
    STATE,
    read_log,
    read_state,
)
from solution.collecting.session import Finished
from solution.collecting.tables import is_estimated
from solution.collecting.timing import SCHEMA, Outcome, summarise
from solution.system.errors import InputError

MAX_PANELS = 12  # programs whose two halves are plotted, the noisiest first
COLUMNS = 4


@dataclass(frozen=True)
class Collected:
    """A program's journal."""

    name: str
    collection: str
    state: dict[str, Any]
    outcome: Outcome


def read_collections(folder: Path) -> list[Collected]:
    """Return the finished collections below a folder, by collection and name.

    Raises InputError if there is none.
    """
    states = sorted(folder.glob(f"log/**/{STATE}"))
    found = [_read(path.parent) for path in states]
    finished = [one for one in found if one is not None]
    if not finished:
        unfinished = f"{len(states)} that are not finished" if states else "none"
        raise InputError(
            f"{folder}: expected the logs of finished collections in it, found {unfinished}. "
            "Collect some, such as `fastslow collect layout program.py`."
        )
    return finished


def list_finished(collected: Sequence[Collected]) -> dict[str, list[Finished]]:
    """Return the rows of the tables, by collection."""
    tables: dict[str, list[Finished]] = {}
    for one in collected:
        tables.setdefault(one.collection, []).append(Finished(one.name, one.state))
    return tables


def draw_collections(collected: Sequence[Collected]) -> Figure:
    """Plot all programs' runtimes over their fastest, and the two halves of the noisiest ones."""
    some = [one for one in collected if len(one.outcome.configs) > 1]
    timed = [one for one in some if not is_estimated(one.state)]  # estimates have no noise
    noisiest = sorted(timed, key=lambda one: one.outcome.tau)[:MAX_PANELS]
    rows = -(-len(noisiest) // COLUMNS)
    figure = Figure(figsize=(12, 3.2 + 2.8 * rows), layout="constrained")
    parts = figure.subfigures(2, 1, height_ratios=[3.2, max(2.8 * rows, 0.1)])
    upper, lower = np.asarray(parts, object).ravel()
    _draw_runtimes(upper.subplots(), some)
    panels = np.atleast_1d(lower.subplots(max(rows, 1), COLUMNS)).ravel()
    for axes, one in zip(panels, noisiest, strict=False):
        _draw_halves(axes, one)
    for axes in panels[len(noisiest) :]:
        axes.set_axis_off()
    return figure


def _draw_runtimes(axes: Axes, collected: Sequence[Collected]) -> None:
    for one in collected:
        times = np.sort(one.outcome.nanoseconds)
        axes.plot(np.linspace(0, 100, len(times)), times / times[0], lw=1, alpha=0.7)
    axes.set_yscale("log")
    axes.set_xlabel("configurations, fastest first (%)")
    axes.set_ylabel("time over the fastest")
    targets = sorted({one.state["target"] for one in collected if is_estimated(one.state)})
    kinds = ["timed"] if any(not is_estimated(one.state) for one in collected) else []
    kinds += [f"estimated for {target}" for target in targets]
    axes.set_title(
        f"What there is to gain: {len(collected)} programs, a line each ({', '.join(kinds)})"
    )


def _draw_halves(axes: Axes, one: Collected) -> None:
    first, second = one.outcome.halves / 1000
    ends = [min(first.min(), second.min()), max(first.max(), second.max())]
    axes.plot(ends, ends, color="black", lw=0.8, ls=":")
    axes.scatter(first, second, s=10, alpha=0.7)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_title(f"{one.name}: repeat tau {one.outcome.tau:.2f}", fontsize=9)
    axes.set_xlabel("one half (µs)", fontsize=8)
    axes.set_ylabel("the other", fontsize=8)
    axes.tick_params(labelsize=7, which="both")


def _read(folder: Path) -> Collected | None:
    state = read_state(folder)
    if not state.get("finished"):
        return None
    collection = state["identity"]["collection"]
    if is_estimated(state):
        from solution.collecting.tpu.journal import ESTIMATES, read_estimates

        candidates = read_log(folder / CANDIDATE_FILE, ESTIMATES)
        return Collected(folder.name, collection, state, read_estimates(candidates))
    candidates = read_log(folder / CANDIDATE_FILE, CANDIDATES)
    sound = candidates.filter(pl.col("status") == SOUND).select("config")
    repeats = read_log(folder / REPEAT_FILE, SCHEMA).join(sound, on="config", how="semi")
    outcome = summarise(repeats, state["clock"])
    return Collected(folder.name, collection, state, outcome)
