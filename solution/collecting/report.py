"""Show collections as a table of the programs, and as a plot of times and their noise."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.table import Table
from rich.text import Text

from solution.collecting import journal
from solution.collecting.collect import MIN_CONFIGS
from solution.collecting.session import Finished
from solution.collecting.target import CPU, parse_target
from solution.collecting.timing import SCHEMA, Outcome
from solution.system.errors import InputError
from solution.system.terminal import make_table

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SPREAD = "Spread: slowest over fastest."
TIMED_CAPTION = (
    "Repeat tau: Kendall's tau between two halves of the runs, which a perfect model could hardly "
    "exceed. Failed: wrong results, rejected by the compiler, or killed it."
)
ESTIMATED_CAPTION = (
    "Estimates of the compiler ({targets}), not measured. Programs: number of different compiled "
    "programs. As asked: share of the requested output layouts that the compiled program has. "
    "Failed: the compiler rejected the configuration."
)
# {header: function that formats a program's state (its journal's summary) for this column}
Columns = dict[str, Callable[[dict[str, Any]], str]]
# Maximum number of panels of the noise plot. A panel compares the two halves of a program's runs;
# the noisiest programs come first.
MAX_PANELS = 12
COLUMNS = 4  # panels in a row of the noise plot


def show_finished(title: str, finished: Sequence[Finished], target: str = CPU) -> Table:
    """Return a table with a row for each program; if all failed, `target` decides the columns."""
    states = [one.state for one in finished if one.state]
    timed = [state for state in states if not is_estimated(state)]
    targets = sorted({state["target"] for state in states if is_estimated(state)})
    if not states and target != CPU:
        targets = [target]
    has_timed = bool(timed) or not targets
    columns = _list_columns(has_timed=has_timed, has_estimated=bool(targets))
    sentences = [SPREAD]
    if has_timed:
        sentences += [TIMED_CAPTION, _describe_clock(timed)]
    if targets:
        sentences.append(ESTIMATED_CAPTION.format(targets=", ".join(targets)))
    table = make_table(Text(title), " ".join(sentences))
    table.add_column("Program", overflow="fold")
    for header in columns:
        table.add_column(header, justify="right", no_wrap=True)
    table.add_column("Left out")
    for one in finished:
        if one.state:
            cells = [show(one.state) for show in columns.values()] + [_say_left_out(one.state)]
        else:
            cells = [""] * len(columns) + ["failed"]
        table.add_row(Text(one.name), *cells)
    return table


def _say_left_out(state: Mapping[str, Any]) -> str:
    """Return why a program's graph was not written; "" if it was."""
    reason = str(state["left_out"])
    if reason and state.get("configs", MIN_CONFIGS) < MIN_CONFIGS:
        return f"{reason}, a graph needs {MIN_CONFIGS}"
    return reason


def is_estimated(state: dict[str, Any]) -> bool:
    """Return True if the labels of a finished collection are estimates."""
    return "target" in state


def describe_failures(finished: Sequence[Finished]) -> str:
    """Return a sentence on how many configurations of the first program with failures failed, and
    why; "" if none failed."""
    for one in finished:
        if one.state.get("failure"):
            tried = sum(one.state["statuses"].values())
            return (
                f"{one.name}: {_count_failed(one.state)} of {tried} configurations failed, most "
                f"often because of: {one.state['failure']}"
            )
    return ""


def _list_columns(*, has_timed: bool, has_estimated: bool) -> Columns:
    """Return the table's columns for timed programs, estimated programs, or both together."""
    timed: Columns = {
        "Repeat tau": lambda state: f"{state['repeat_tau']:.2f}" if "clock" in state else "",
        "Passes": lambda state: str(state.get("passes", "")),
    }
    estimated: Columns = {
        "Programs": lambda state: str(state.get("programs", "")),
        "As asked": _show_taken,
    }
    return {
        "Configs": lambda state: str(state["configs"]),
        "Failed": lambda state: str(_count_failed(state)),
        "Spread": lambda state: f"{state['spread']:.2f}",
        **(timed if has_timed else {}),
        **(estimated if has_estimated else {}),
        "Seconds": lambda state: f"{state['seconds']:.0f}",
    }


def _show_taken(state: dict[str, Any]) -> str:
    """Return the share of requested layouts that the compiler kept, in %; "" without requests."""
    asked = state.get("taken", 0) + state.get("untaken", 0)
    return f"{state['taken'] / asked:.0%}" if asked else ""


def _count_failed(state: dict[str, Any]) -> int:
    return sum(
        state["statuses"].get(kind, 0) for kind in (journal.WRONG, journal.REFUSED, journal.DIED)
    )


def _describe_clock(timed: Sequence[dict[str, Any]]) -> str:
    if "wall" in {state["clock"] for state in timed}:
        return (
            "Labels are wall times: the process could not be pinned to a core, so noise is larger."
        )
    return "Labels are CPU times of a process on one core."


@dataclass(frozen=True)
class Collected:
    """The finished collection of one program, as read from its journal."""

    name: str
    collection: str
    state: dict[str, Any]
    outcome: Outcome


def read_collections(folder: Path) -> list[Collected]:
    """Return the finished collections below a folder, sorted by name; InputError if none."""
    states = sorted(folder.glob(f"log/**/{journal.STATE}"))
    found = [_read(path.parent) for path in states]
    finished = [one for one in found if one is not None]
    if not finished:
        unfinished = f"{len(states)} unfinished ones" if states else "none"
        raise InputError(
            f"{folder}: expected the logs of finished collections in it, found {unfinished}. "
            "Collect some, such as `fastslow collect layout program.py`."
        )
    return finished


def list_finished(collected: Sequence[Collected]) -> dict[str, list[Finished]]:
    """Return {collection: outcomes of its programs}, to show each collection as a table."""
    tables: dict[str, list[Finished]] = {}
    for one in collected:
        tables.setdefault(one.collection, []).append(Finished(one.name, one.state))
    return tables


def draw_collections(collected: Sequence[Collected]) -> "Figure":
    """Plot each program's runtimes, divided by its fastest configuration's runtime. For the
    programs with the lowest repeat tau (Kendall's tau between two halves of the timed runs), plot
    each configuration's smallest time in one half against its smallest time in the other."""
    from matplotlib.figure import Figure  # slow to import

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


def _draw_runtimes(axes: "Axes", collected: Sequence[Collected]) -> None:
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
        f"Possible gain: a line for each of {len(collected)} programs, {', '.join(kinds)}"
    )


def _draw_halves(axes: "Axes", one: Collected) -> None:
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
    state = journal.read_state(folder)
    if not state.get("finished"):
        return None
    target = parse_target(state["identity"].get("target", CPU))
    candidates = journal.read_log(folder / journal.CANDIDATE_FILE, target.schema)
    repeats = journal.read_log(folder / journal.REPEAT_FILE, SCHEMA)
    outcome = target.summarise(candidates.filter(status=journal.SOUND), repeats, state)
    return Collected(folder.name, state["identity"]["collection"], state, outcome)
