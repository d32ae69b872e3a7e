"""Format numbers and names for the page, and define its sections."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from submissions.page.charts import Figure

MINUS = "\N{MINUS SIGN}"
NOTHING = "–"


@dataclass(frozen=True)
class Table:
    """The numbers of a picture."""

    caption: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    texts: int = 1  # number of first columns that hold words; the others hold numbers
    strong: str = ""  # rows with this cell are emphasised
    grouped: bool = False  # rows with the same first cell stand below it

    def groups(self) -> list[tuple[str, list[Sequence[str]]]]:
        """Return (first cell, its rows), or one group without a name."""
        if not self.grouped:
            return [("", list(self.rows))]
        return [(name, list(rows)) for name, rows in groupby(self.rows, key=lambda row: row[0])]


@dataclass(frozen=True)
class Section:
    """A part of the page. Without figures and tables it says why, and how to get them."""

    anchor: str
    title: str
    lead: str
    figures: Sequence["Figure"] = ()
    tables: Sequence[Table] = ()
    reading: str = ""  # how to read the pictures
    unfolded: bool = False  # the tables are the main content
    notes: Sequence[str] = field(default_factory=tuple)


def number(value: float | None) -> str:
    """Format a score with three decimals."""
    return NOTHING if value is None else f"{value:.3f}".replace("-", MINUS)


def signed(value: float | None) -> str:
    """Format a difference with three decimals and a sign."""
    return NOTHING if value is None else f"{value:+.3f}".replace("-", MINUS)


def percent(value: float | None) -> str:
    """Format a probability."""
    return NOTHING if value is None else f"{value:.0%}"


def show_times(value: float) -> str:
    """Format a ratio of runtimes."""
    return f"{value:.2f}×" if value < 10 else f"{value:,.0f}×"


def interval(low: float | None, high: float | None) -> str:
    """Return an interval in words; for too few graphs it is None or, of a Mean, NaN."""
    if low is None or high is None or math.isnan(low):
        return "too few graphs"
    return f"{number(low)} to {number(high)}"


def listed(names: Sequence[str]) -> str:
    """Return `a, b and c`."""
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
