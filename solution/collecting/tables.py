"""What was collected, for people."""

from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from solution.collecting.journal import DIED, REFUSED, WRONG
from solution.collecting.session import Finished
from solution.system.terminal import make_table

CAPTION = (
    "Spread: slowest over fastest. Repeat tau: Kendall's tau between two halves of the runs, about "
    "what a perfect model could reach. Failed: wrong results, refused, or killed the compiler. "
)


def show_finished(title: str, finished: Sequence[Finished]) -> Table:
    """A row for each program."""
    table = make_table(Text(title), CAPTION + _describe_clock(finished))
    table.add_column("Program", overflow="fold")
    for header in ("Configs", "Failed", "Spread", "Repeat tau", "Passes", "Seconds"):
        table.add_column(header, justify="right", no_wrap=True)
    table.add_column("Left out")
    for one in finished:
        table.add_row(Text(one.name), *_describe(one))
    return table


def describe_failures(finished: Sequence[Finished]) -> str:
    """How many configurations of the first program of which any failed, and why; else empty."""
    for one in finished:
        if one.state.get("failure"):
            tried = sum(one.state["statuses"].values())
            return (
                f"{one.name}: {_count_failed(one)} of {tried} configurations failed, most often "
                f"because of this: {one.state['failure']}"
            )
    return ""


def _describe(one: Finished) -> list[str]:
    if not one.state:
        return [""] * 6 + ["failed"]
    state = one.state
    return [
        str(state["configs"]),
        str(_count_failed(one)),
        f"{state['spread']:.2f}",
        f"{state['repeat_tau']:.2f}",
        str(state["passes"]),
        f"{state['seconds']:.0f}",
        state["left_out"],
    ]


def _count_failed(one: Finished) -> int:
    return sum(one.state["statuses"].get(kind, 0) for kind in (WRONG, REFUSED, DIED))


def _describe_clock(finished: Sequence[Finished]) -> str:
    clocks = {one.state["clock"] for one in finished if one.state}
    if "wall" in clocks:
        return "Timed by the clock: the process could not be kept on one core, so noise is larger."
    return "Timed by the CPU time of a process on one core."
