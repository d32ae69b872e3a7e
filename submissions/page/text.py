"""How numbers and names are written on the page, and what a section of it is."""

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
    """The numbers behind a picture."""

    caption: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    texts: int = 1  # so many columns hold words, the others numbers
    strong: str = ""  # rows with this cell are emphasised
    grouped: bool = False  # rows of one first cell stand below it

    def groups(self) -> list[tuple[str, list[Sequence[str]]]]:
        """(first cell, its rows), or one group without a name."""
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
    reading: str = ""  # how the pictures are read
    unfolded: bool = False  # the tables are what it is about
    notes: Sequence[str] = field(default_factory=tuple)


def number(value: float | None) -> str:
    """Three decimals, as scores are written."""
    return NOTHING if value is None else f"{value:.3f}".replace("-", MINUS)


def signed(value: float | None) -> str:
    """Three decimals with a sign, as differences are written."""
    return NOTHING if value is None else f"{value:+.3f}".replace("-", MINUS)


def percent(value: float | None) -> str:
    """A probability."""
    return NOTHING if value is None else f"{value:.0%}"


def show_times(value: float) -> str:
    """How many times as slow."""
    return f"{value:.2f}×" if value < 10 else f"{value:,.0f}×"


def interval(low: float | None, high: float | None) -> str:
    """An interval in words; of too few graphs it is None or, of a Mean, NaN."""
    if low is None or high is None or math.isnan(low):
        return "too few graphs"
    return f"{number(low)} to {number(high)}"


def listed(names: Sequence[str]) -> str:
    """`a, b and c`."""
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
