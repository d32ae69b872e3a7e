"""The kinds of picture that the page has; each is a pure function from numbers to a Figure."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from submissions.page.canvas import MARGIN, WIDTH, Canvas, Figure, Scale, draw_axis, spanning
from submissions.page.canvas import show_tick as show
from submissions.page.text import number, show_times, signed

ROW = 36.0  # a ranker's name, and its marks below
NAMED = 18.0  # of which the name takes so much
AXIS = 20.0
PLOT = 176.0  # height of a picture with two axes
MAX_SPECKS = 20  # in one place; more would only lie on top of each other
FEW = 100  # graphs get larger dots
HEAD = 18.0
MAX_FILL = 0.46  # of a square; its number stays legible on it, in light and in dark


@dataclass(frozen=True)
class Row:
    """A value with its interval, such as a ranker's score."""

    name: str
    value: float
    low: float | None = None
    high: float | None = None
    strong: bool = False  # the one that the picture is about

    def describe(self) -> str:
        """In words."""
        if self.low is None or self.high is None:
            return f"{self.name} {number(self.value)}"
        return f"{self.name} {number(self.value)} ({number(self.low)} to {number(self.high)})"


def draw_intervals(
    title: str, rows: Sequence[Row], subtitle: str = "", *, difference: bool = False
) -> Figure:
    """A dot with its interval for each row; differences are drawn about zero."""
    canvas, bottom = Canvas(), len(rows) * ROW
    ends = [e for row in rows for e in (row.value, row.low, row.high) if e is not None]
    scale = spanning([*ends, 0.0] if difference else ends)
    draw_axis(canvas, scale, 0, bottom, _below_names(len(rows), ROW))
    for place, row in enumerate(rows):
        y, css = place * ROW + 26, " strong" if row.strong else ""
        _name(canvas, place * ROW, row, signed(row.value) if difference else number(row.value))
        if row.low is not None and row.high is not None:
            canvas.line(scale(row.low), y, scale(row.high), y, "interval" + css)
        canvas.dot(scale(row.value), y, 4, "dot" + css, row.describe())
    about = f"{title}, {subtitle}" if subtitle else title
    alternative = f"{about}: " + "; ".join(row.describe() for row in rows) + "."
    return Figure(title, alternative, bottom + AXIS, canvas.marks, subtitle=subtitle)


def draw_strips(title: str, rows: Sequence[tuple[Row, Sequence[float]]], floor: float) -> Figure:
    """A dot for each graph, side by side where they would cover each other; a line at the mean."""
    canvas, bottom = Canvas(), len(rows) * (ROW + 10)
    every = [max(value, floor) for _, values in rows for value in values]
    scale = spanning(every)
    draw_axis(canvas, scale, 0, bottom, _below_names(len(rows), ROW + 10))
    for place, (row, values) in enumerate(rows):
        top, css = place * (ROW + 10), " strong" if row.strong else ""
        _name(canvas, top, row, f"mean {number(row.value)}")
        middle, x = top + 31, scale(row.value)
        canvas.line(x, middle - 12, x, middle + 12, "mean" + css)
        size, few = (4.6, " few") if len(values) <= FEW else (3.4, "")
        piled = _pile([scale(value) for value in values], middle, size)
        canvas.specks(piled, "specks" + css + few)
    told = "; ".join(
        f"{row.name} from {number(min(values))} to {number(max(values))}, mean {number(row.value)}"
        for row, values in rows
    )
    below = sum(value < floor for _, values in rows for value in values)
    note = f"{below} dots lie below {show(floor)} and are drawn at the edge." if below else ""
    alternative = f"{title}, a dot a graph: {told}."
    return Figure(title, alternative, bottom + AXIS, canvas.marks, note=note)


def draw_bars(title: str, rows: Sequence[Row]) -> Figure:
    """A bar for each share of one."""
    canvas = Canvas()
    for place, row in enumerate(rows):
        top = place * ROW
        _name(canvas, top, row, f"{row.value:.0%}")
        canvas.box(MARGIN, top + 20, WIDTH - 2 * MARGIN, 7, "track")
        canvas.box(MARGIN, top + 20, (WIDTH - 2 * MARGIN) * row.value, 7, "bar")
    told = ", ".join(f"{row.name} {row.value:.0%}" for row in rows)
    return Figure(title, f"{title}: {told}.", len(rows) * ROW, canvas.marks)


@dataclass(frozen=True)
class Pair:
    """Two values of the same thing."""

    name: str
    first: float
    second: float


def draw_pairs(title: str, pairs: Sequence[Pair], what: tuple[str, str]) -> Figure:
    """A dot and a ring for each pair, joined by a line."""
    canvas, bottom = Canvas(), len(pairs) * ROW
    scale = spanning([value for pair in pairs for value in (pair.first, pair.second)])
    draw_axis(canvas, scale, 0, bottom, _below_names(len(pairs), ROW))
    for place, pair in enumerate(pairs):
        y, row = place * ROW + 26, Row(pair.name, pair.first)
        _name(canvas, place * ROW, row, f"{number(pair.first)} ({number(pair.second)})")
        canvas.line(scale(pair.first), y, scale(pair.second), y, "interval")
        canvas.dot(scale(pair.second), y, 4, "ring", f"{what[1]} {number(pair.second)}")
        canvas.dot(scale(pair.first), y, 4, "dot strong", f"{what[0]} {number(pair.first)}")
    told = "; ".join(
        f"{pair.name} {what[0]} {number(pair.first)}, {what[1]} {number(pair.second)}"
        for pair in pairs
    )
    return Figure(title, f"{title}: {told}.", bottom + AXIS, canvas.marks)


def draw_heat_map(
    title: str, names: Sequence[str], values: Sequence[Sequence[float | None]]
) -> Figure:
    """A square for each pair of names, the fuller the more alike; columns go by number."""
    canvas, longest = Canvas(), max(len(name) for name in names)
    left = 34 + 7.3 * longest
    side = min(max((WIDTH - left - MARGIN) / len(names), 38.0), 46.0)
    for column in range(len(names)):
        canvas.words(left + (column + 0.5) * side, 14, str(column + 1), "tick", "middle")
    for row, name in enumerate(names):
        y = HEAD + row * 34 + 17
        canvas.words(MARGIN, y + 4, str(row + 1), "tick")
        canvas.words(MARGIN + 20, y + 4, name, "name")
        for column, value in enumerate(values[row]):
            _cell(canvas, left + column * side, y, side, value)
    pairs = [
        f"{names[i]} with {names[j]} {number(value)}"
        for i in range(len(names))
        for j in range(i)
        if (value := values[i][j]) is not None
    ]
    told = "; ".join(pairs) or "no two rankers that rank anything"
    width = max(WIDTH, left + side * len(names) + MARGIN)
    height = HEAD + 34 * len(names)
    return Figure(title, f"{title}: {told}.", height, canvas.marks, width)


def _cell(canvas: Canvas, x: float, y: float, side: float, value: float | None) -> None:
    if value is None:
        canvas.words(x + side / 2, y + 4, "–", "tick", "middle")
        return
    fill = 0.04 + MAX_FILL * min(abs(value), 1.0) ** 1.5
    css = "cell" if value >= 0 else "cell opposite"
    canvas.box(x + 1, y - 16, side - 2, 32, css, fill)
    text = f"{value:.2f}".replace("0.", ".", 1).replace("-", "\N{MINUS SIGN}")
    canvas.words(x + side / 2, y + 4, text, "value", "middle")


def draw_histogram(
    title: str, edges: Sequence[float], shares: Sequence[float], median: float
) -> Figure:
    """Bars over a logarithmic axis, a line at the median."""
    canvas, top, bottom = Canvas(), 22.0, 130.0
    scale = Scale(edges[0], edges[-1], logarithmic=True)
    draw_axis(canvas, scale, top, bottom)
    highest = max(shares)
    for left, right, share in zip(edges[:-1], edges[1:], shares, strict=True):
        height = (bottom - top) * share / highest
        x, hint = scale(left), f"{left:.3g} to {right:.3g} times: {share:.1%}"
        canvas.box(x, bottom - height, scale(right) - x - 0.8, height, "bar", hint=hint)
    x = scale(median)
    canvas.line(x, 16, x, bottom, "median")
    anchor = "start" if x < WIDTH * 0.7 else "end"
    canvas.words(
        x + (5 if anchor == "start" else -5), 12, f"median {show_times(median)}", "name", anchor
    )
    alternative = (
        f"{title}: times as slow as the graph's fastest configuration, from {edges[0]:.3g} to "
        f"{edges[-1]:.3g}, median {median:.3g}."
    )
    return Figure(title, alternative, bottom + AXIS, canvas.marks)


def draw_curves(
    title: str,
    curves: Sequence[Sequence[tuple[float, float]]],
    subtitle: str,
    alternative: str,
    *,
    axis: str = "inner score",
    dashed: Sequence[Sequence[tuple[float, float]]] = (),
    best: bool = False,
) -> Figure:
    """A line for each model.

    Args:
        axis: what is drawn against the step.
        dashed: other lines, which are dashed.
        best: a dot at the highest step of each model.
    """
    canvas, left, bottom = Canvas(), 40.0, PLOT + 16
    every = [point for curve in (*curves, *dashed) for point in curve]
    steps = [step for step, _ in every]
    across = Scale(min(steps), max(steps), left, WIDTH - MARGIN)
    up = spanning([score for _, score in every], start=bottom, end=24)
    _draw_plane(canvas, across, up, whole=True)
    for css, lines in (("curve", curves), ("curve dashed", dashed)):
        for line in lines:
            canvas.curve([(across(step), up(score)) for step, score in line], css)
    for curve in curves if best else ():
        step, score = max(curve, key=lambda point: point[1])
        hint = f"best at step {step:g}: {number(score)}"
        canvas.dot(across(step), up(score), 3.2, "dot strong", hint)
    _name_axes(canvas, ("step", axis), bottom)
    return Figure(title, alternative, bottom + 40, canvas.marks, subtitle=subtitle)


@dataclass(frozen=True)
class Point:
    """A place in a scatter plot."""

    name: str
    x: float
    y: float
    open: bool = False  # drawn as a ring


def draw_scatter(
    title: str, points: Sequence[Point], axes: tuple[str, str], *, shared: bool = False
) -> Figure:
    """Points over two axes of the same kind of score, with the line on which both are equal.

    Args:
        shared: both axes have the same range.
    """
    canvas, left, bottom = Canvas(), 40.0, 250.0
    xs, ys = [point.x for point in points], [point.y for point in points]
    across = spanning(xs + ys if shared else xs, start=left)
    up = spanning(xs + ys if shared else ys, start=bottom, end=24)
    _draw_plane(canvas, across, up)
    low, high = max(across.low, up.low), min(across.high, up.high)
    if low < high:
        canvas.curve([(across(low), up(low)), (across(high), up(high))], "equal")
    for point in points:
        hint = f"{point.name}: {axes[0]} {number(point.x)}, {axes[1]} {number(point.y)}"
        css = "ring" if point.open else "dot faint strong"
        canvas.dot(across(point.x), up(point.y), 3.6, css, hint)
    _name_axes(canvas, axes, bottom)
    shown = sorted(points, key=lambda point: point.y)
    told = "; ".join(f"{p.name} {number(p.x)} and {number(p.y)}" for p in shown[:3])
    alternative = f"{title}, {axes[0]} against {axes[1]}, {len(points)} points, lowest: {told}."
    return Figure(title, alternative, bottom + 40, canvas.marks)


def _name_axes(canvas: Canvas, axes: tuple[str, str], bottom: float) -> None:
    canvas.words(MARGIN, 12, f"↑ {axes[1]}", "tick")
    canvas.words(WIDTH - MARGIN, bottom + 32, f"{axes[0]} →", "tick", "end")


def _draw_plane(canvas: Canvas, across: Scale, up: Scale, *, whole: bool = False) -> None:
    for value in up.ticks(4):
        canvas.line(across.start, up(value), across.end, up(value), "grid")
        canvas.words(across.start - 6, up(value) + 4, show(value), "tick", "end")
    for value in across.ticks(4):
        if whole and not value.is_integer():
            continue
        x = across(value)
        canvas.line(x, up.start, x, up.start + 4, "zero")
        canvas.words(x, up.start + 16, show(value), "tick", "middle" if x < 310 else "end")


def _below_names(rows: int, height: float) -> list[tuple[float, float]]:
    """The strips of a picture in which no name stands."""
    return [(place * height + NAMED, (place + 1) * height) for place in range(rows)]


def _name(canvas: Canvas, top: float, row: Row, value: str) -> None:
    css = "name strong" if row.strong else "name"
    canvas.words(MARGIN, top + 13, row.name, css + " halo")
    canvas.words(WIDTH - MARGIN, top + 13, value, css + " value halo", "end")


def _pile(xs: Sequence[float], middle: float, size: float) -> list[tuple[float, float]]:
    """Dots that share a column are spread up and down from the middle."""
    columns: dict[int, int] = {}
    for x in xs:
        column = math.floor(x / size)
        columns[column] = columns.get(column, 0) + 1
    places = []
    for column, count in sorted(columns.items()):
        drawn = min(count, MAX_SPECKS)
        gap = min(size, 24 / drawn)
        first = middle - gap * (drawn - 1) / 2
        places += [((column + 0.5) * size, first + gap * index) for index in range(drawn)]
    return places
