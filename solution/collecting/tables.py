"""Print tables of collected programs."""

from collections.abc import Callable, Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from solution.collecting.journal import DIED, REFUSED, WRONG
from solution.collecting.session import Finished
from solution.system.terminal import make_table

SPREAD = "Spread: slowest over fastest."
TIMED_CAPTION = (
    "Repeat tau: Kendall's tau between two halves of the runs, about what a perfect model could "
    "reach. Failed: wrong results, refused, or killed the compiler."
)
ESTIMATED_CAPTION = (
    "Estimates of the TPU's compiler ({targets}), not measured. Programs: how many of what the "
    "configurations compile to differ. As asked: requested output layouts that the compiled "
    "program has. Failed: the compiler refused."
)
# by header: how to show a row's state in this column
Columns = dict[str, Callable[[dict[str, Any]], str]]


def show_finished(title: str, finished: Sequence[Finished]) -> Table:
    """Print a table with a row per program."""
    states = [one.state for one in finished if one.state]
    has_timed = any(not is_estimated(state) for state in states)
    columns = _list_columns(
        has_timed=has_timed or not states, has_estimated=any(map(is_estimated, states))
    )
    table = make_table(Text(title), _describe(states))
    table.add_column("Program", overflow="fold")
    for header in columns:
        table.add_column(header, justify="right", no_wrap=True)
    table.add_column("Left out")
    for one in finished:
        if one.state:
            cells = [show(one.state) for show in columns.values()] + [one.state["left_out"]]
        else:
            cells = [""] * len(columns) + ["failed"]
        table.add_row(Text(one.name), *cells)
    return table


def is_estimated(state: dict[str, Any]) -> bool:
    """Return True if the labels of a finished collection are estimates."""
    return "target" in state


def describe_failures(finished: Sequence[Finished]) -> str:
    """Say of the first program with failures how many failed, and why; "" if there is none."""
    for one in finished:
        if one.state.get("failure"):
            tried = sum(one.state["statuses"].values())
            return (
                f"{one.name}: {_count_failed(one.state)} of {tried} configurations failed, most "
                f"often because of this: {one.state['failure']}"
            )
    return ""


def _list_columns(*, has_timed: bool, has_estimated: bool) -> Columns:
    """Return the columns; a column of the other kind of label (time, estimate) shows ""."""
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
    """Format the share of requested layouts that the compiled programs have."""
    asked = state.get("taken", 0) + state.get("untaken", 0)
    return f"{state['taken'] / asked:.0%}" if asked else ""


def _count_failed(state: dict[str, Any]) -> int:
    return sum(state["statuses"].get(kind, 0) for kind in (WRONG, REFUSED, DIED))


def _describe(states: Sequence[dict[str, Any]]) -> str:
    """Return the table's caption."""
    sentences = [SPREAD]
    timed = [state for state in states if not is_estimated(state)]
    if timed or not states:
        sentences.append(TIMED_CAPTION)
        sentences.append(_describe_clock(timed))
    targets = sorted({state["target"] for state in states if is_estimated(state)})
    if targets:
        sentences.append(ESTIMATED_CAPTION.format(targets=", ".join(targets)))
    return " ".join(sentences)


def _describe_clock(timed: Sequence[dict[str, Any]]) -> str:
    if "wall" in {state["clock"] for state in timed}:
        return "Timed by the clock: the process could not be kept on one core, so noise is larger."
    return "Timed by the CPU time of a process on one core."
