"""Draw small pictures as SVG marks that follow the page's colours, in light and in dark.

A figure is WIDTH units wide, the width of a phone's column, so that its words stay legible there.
Marks carry classes, never colours: the style sheet knows those. The template writes them out.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

WIDTH = 328.0
MARGIN = 6.0


@dataclass(frozen=True)
class Mark:
    """One SVG element."""

    tag: str
    attributes: dict[str, str | float]
    text: str = ""
    hint: str = ""  # shown where a pointer rests on it


@dataclass(frozen=True)
class Figure:
    """A finished picture."""

    title: str
    alternative: str  # what it shows, in words and numbers
    height: float
    marks: list[Mark]
    width: float = WIDTH
    subtitle: str = ""
    note: str = ""  # a line below the picture


@dataclass
class Canvas:
    """Collects marks from top to bottom."""

    marks: list[Mark] = field(default_factory=list)

    def line(self, x1: float, y1: float, x2: float, y2: float, css: str) -> None:
        """A straight line."""
        ends: dict[str, str | float] = {"class": css, "x1": _round(x1), "y1": _round(y1)}
        self.marks.append(Mark("line", ends | {"x2": _round(x2), "y2": _round(y2)}))

    def dot(self, x: float, y: float, radius: float, css: str, hint: str = "") -> None:
        """A disc."""
        place: dict[str, str | float] = {"class": css, "cx": _round(x), "cy": _round(y)}
        self.marks.append(Mark("circle", place | {"r": _round(radius)}, hint=hint))

    def box(
        self,
        x: float,
        y: float,
        width: float,
        height: float,
        css: str,
        opacity: float = 1.0,
        hint: str = "",
    ) -> None:
        """A rectangle."""
        place: dict[str, str | float] = {"class": css, "x": _round(x), "y": _round(y)}
        place |= {"width": _round(max(width, 0)), "height": _round(max(height, 0))}
        if opacity < 1:
            place["fill-opacity"] = round(opacity, 3)
        self.marks.append(Mark("rect", place, hint=hint))

    def words(self, x: float, y: float, text: str, css: str = "", anchor: str = "start") -> None:
        """A line of text whose base line is at `y`."""
        place: dict[str, str | float] = {"class": css, "x": _round(x), "y": _round(y)}
        self.marks.append(Mark("text", place | {"text-anchor": anchor}, text=text))

    def curve(self, points: list[tuple[float, float]], css: str, hint: str = "") -> None:
        """Straight lines from point to point."""
        path = "M" + "L".join(f"{_round(x)} {_round(y)}" for x, y in points)
        self.marks.append(Mark("path", {"class": css, "d": path}, hint=hint))

    def specks(self, points: list[tuple[float, float]], css: str) -> None:
        """Many equal dots as one element; the style sheet gives their size."""
        path = "".join(f"M{_round(x)} {_round(y)}h0" for x, y in points)
        self.marks.append(Mark("path", {"class": css, "d": path}))


@dataclass(frozen=True)
class Scale:
    """Values from `low` to `high` onto units from `start` to `end`, linear or by logarithm."""

    low: float
    high: float
    start: float = MARGIN
    end: float = WIDTH - MARGIN
    logarithmic: bool = False

    def __call__(self, value: float) -> float:
        """Where the value is drawn; beyond an end it is drawn at that end."""
        low, high, inside = self.low, self.high, min(max(value, self.low), self.high)
        if self.logarithmic:
            low, high, inside = math.log(low), math.log(high), math.log(inside)
        share = (inside - low) / (high - low) if high > low else 0.5
        return self.start + share * (self.end - self.start)

    def ticks(self, about: int = 5) -> list[float]:
        """Round values inside, `about` as many; of a single value, that one."""
        if self.high == self.low:
            return [float(self.low)]
        if self.logarithmic:
            return self._logarithmic_ticks()
        step = _round_step((self.high - self.low) / about)
        first = math.ceil(self.low / step - 1e-9)
        last = math.floor(self.high / step + 1e-9)
        return [round(place * step, 10) for place in range(first, last + 1)]

    def _logarithmic_ticks(self) -> list[float]:
        if self.high / self.low < 4:
            return Scale(self.low, self.high).ticks(4)
        powers = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
        steps = (1, 2, 5) if self.high / self.low < 200 else (1,)
        found = [step * 10.0**power for power in powers for step in steps]
        return [value for value in found if self.low <= value <= self.high]


def spanning(values: list[float], *, start: float = MARGIN, end: float = WIDTH - MARGIN) -> Scale:
    """A linear scale that holds all finite values with a little air."""
    finite = [value for value in values if math.isfinite(value)] or [0.0, 1.0]
    low, high = min(finite), max(finite)
    air = (high - low) * 0.04 or max(abs(high) * 0.1, 0.05)
    return Scale(low - air, high + air, start, end)


def draw_axis(
    canvas: Canvas,
    scale: Scale,
    top: float,
    bottom: float,
    strips: Sequence[tuple[float, float]] = (),
) -> None:
    """Vertical grid lines with their values below; the zero line is stronger.

    Args:
        strips: where the lines are drawn, from top to bottom of each; they leave names free.
    """
    for value in scale.ticks():
        x = scale(value)
        for upper, lower in strips or [(top, bottom)]:
            canvas.line(x, upper, x, lower, "zero" if value == 0 else "grid")
        anchor = "start" if x < scale.start + 8 else "end" if x > scale.end - 8 else "middle"
        canvas.words(x, bottom + 14, show_tick(value), "tick", anchor)


def show_tick(value: float) -> str:
    """A value as short as it can be; a true minus sign."""
    return f"{value:,.10g}".replace("-", "\N{MINUS SIGN}")


def _round_step(step: float) -> float:
    power = 10.0 ** math.floor(math.log10(step))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= step * 0.999)


def _round(value: float) -> float:
    return round(float(value), 1)
