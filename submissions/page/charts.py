"""Draw the page's figures with matplotlib, as SVG.

A figure is WIDTH points wide, the width of a phone's screen, so that its text stays legible there.
Its colours are variables of the style sheet (`var(--accent)`), so that they follow the page's light
or dark mode, and its text is in the page's font.
"""

import io
import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from submissions.page.evidence import MINUS, number, show_times, signed

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# matplotlib takes half a second to import, so the functions that draw import it.

WIDTH, MARGIN = 328.0, 6.0
# Heights in points: of a row, of the x axis with its ticks, of a plot with two axes.
ROW, AXIS, PLOT = 36.0, 22.0, 216.0
MAX_SPECKS = 20  # maximum number of dots drawn in one column of a strip plot
MAX_FILL = 0.46  # highest opacity of heat map squares: numbers stay legible in light and dark mode
COLOURS = {
    name: f"#0000{code:02x}"  # placeholders, which `clean` replaces by variables of the style sheet
    for code, name in enumerate(
        ("paper", "ink", "soft", "grid", "zero", "plain", "accent", "opposite", "track"), 16
    )
}
STYLE: Any = {
    "svg.fonttype": "none", "svg.hashsalt": "fast-or-slow", "font.size": 12,
    "axes.edgecolor": COLOURS["zero"], "axes.facecolor": "none", "figure.facecolor": "none",
    "xtick.color": COLOURS["soft"], "ytick.color": COLOURS["soft"], "text.color": COLOURS["ink"],
    "xtick.major.size": 0, "ytick.major.size": 0, "grid.color": COLOURS["grid"],
    "axes.axisbelow": True, "axes.spines.top": False, "axes.spines.right": False,
    "axes.spines.left": False, "axes.spines.bottom": False, "axes.unicode_minus": True,
}  # fmt: skip


@dataclass(frozen=True)
class Figure:
    """A finished figure in SVG, with its texts."""

    title: str
    alternative: str  # the figure's content in words, for screen readers
    height: float
    svg: str  # the elements inside its svg element
    width: float = WIDTH
    subtitle: str = ""
    note: str = ""  # a line below the figure


@dataclass(frozen=True)
class Row:
    """A value with its interval, such as a ranker's score."""

    name: str
    value: float
    low: float | None = None
    high: float | None = None
    strong: bool = False  # drawn in the accent colour

    @property
    def colour(self) -> str:
        return COLOURS["accent" if self.strong else "plain"]

    def describe(self) -> str:
        """Return the row as text: name, value and interval."""
        if self.low is None or self.high is None:
            return f"{self.name} {number(self.value)}"
        return f"{self.name} {number(self.value)} ({number(self.low)} to {number(self.high)})"


@dataclass(frozen=True)
class Point:
    """A point of a scatter plot."""

    name: str
    x: float
    y: float


class Drawing:
    """A matplotlib figure with one pair of axes; all lengths are in points."""

    def __init__(
        self, height: float, *, left: float = MARGIN, top: float = 0.0, bottom: float = AXIS,
        width: float = WIDTH,
    ) -> None:  # fmt: skip
        from matplotlib import rc_context
        from matplotlib.figure import Figure as Sheet

        self.width, self.height = width, height
        with rc_context(STYLE):
            self._sheet = Sheet((width / 72, height / 72), dpi=72)
            box = (left / width, bottom / height, (width - left - MARGIN) / width,
                   (height - top - bottom) / height)  # fmt: skip
            self.axes: Axes = self._sheet.add_axes(box)

    def rows(self, count: int, values: Sequence[float], *, grid: bool = True) -> None:
        """Set the x axis to span the values, and the y axis to count rows downwards. With `grid`,
        draw grid lines and a line at x = 0."""
        finite = [value for value in values if math.isfinite(value)] or [0.0, 1.0]
        low, high = min(finite), max(finite)
        air = (high - low) * 0.04 or max(abs(high) * 0.1, 0.05)
        self.axes.set(xlim=(low - air, high + air), ylim=(count, 0), yticks=[])
        self.axes.locator_params(axis="x", nbins=5)
        if grid:
            self.axes.grid(axis="x")
            self.axes.axvline(0, color=COLOURS["zero"], linewidth=1, zorder=0.5)

    def name(self, index: int, row: Row, value: str) -> None:
        """Write a row's name and value above its marks."""
        colour = COLOURS["accent" if row.strong else "ink"]
        weight = "bold" if row.strong else "normal"
        for x, text, side in ((0, row.name, "left"), (1, value, "right")):
            self.axes.text(
                x, index + 0.36, plain(text), transform=self.axes.get_yaxis_transform(), ha=side,
                color=colour, fontweight=weight,
            )  # fmt: skip

    def finish(self, title: str, alternative: str, **more: str) -> Figure:
        """Return the drawing as a Figure in the colours of the page's style sheet."""
        from matplotlib import rc_context

        file = io.StringIO()
        with rc_context(STYLE):
            self._sheet.savefig(file, format="svg", metadata={"Date": None})
        svg = clean(file.getvalue())
        return Figure(title, alternative, self.height, svg, self.width, **more)


def plain(text: str) -> str:
    """Escape a name so that matplotlib does not read it as a formula."""
    return text.replace("$", r"\$")


def clean(svg: str) -> str:
    """Return the elements of an SVG file, with the page's colours and without unused ids."""
    inside = svg[svg.index("<g id=") : svg.rindex("</svg>")]
    inside = re.sub(r"<defs>\s*<clipPath.*?</defs>", "", inside, flags=re.S)
    inside = re.sub(r' clip-path="[^"]*"', "", inside)
    inside = re.sub(r"font-family: [^;\"]*;? ?", "", inside)
    inside = re.sub(r"\n *", "\n", inside)
    # Round coordinates to a hundredth of a point; text stays unchanged.
    inside = re.sub(r"<[^>]*>", lambda tag: re.sub(r"(\.\d\d)\d+", r"\1", tag[0]), inside)
    # Keep only ids that are referenced; glyphs of different pictures have the same ids.
    used = set(re.findall(r'xlink:href="#([^"]+)"', inside))
    inside = re.sub(r' id="([^"]+)"', lambda m: m[0] if m[1] in used else "", inside)
    names = {colour: f"var(--{name})" for name, colour in COLOURS.items()}
    return re.sub(r"#0000[0-9a-f]{2}", lambda match: names.get(match[0], "var(--ink)"), inside)


def draw_intervals(
    title: str, rows: Sequence[Row], subtitle: str = "", *, difference: bool = False
) -> Figure:
    """Draw each row's value as a dot on its interval. With `difference`, the values are
    differences: they have signs, and the axis includes zero."""
    drawing = Drawing(len(rows) * ROW + AXIS)
    ends = [e for row in rows for e in (row.value, row.low, row.high) if e is not None]
    drawing.rows(len(rows), [*ends, 0.0] if difference else ends)
    for index, row in enumerate(rows):
        drawing.name(index, row, signed(row.value) if difference else number(row.value))
        if row.low is not None and row.high is not None:
            ends = [row.low, row.high]
            drawing.axes.plot(ends, [index + 0.72] * 2, color=row.colour, lw=2, alpha=0.8)
        drawing.axes.plot(row.value, index + 0.72, "o", color=row.colour, ms=7, mec="none")
    about = f"{title}, {subtitle}" if subtitle else title
    words = "; ".join(row.describe() for row in rows)
    return drawing.finish(title, f"{about}: {words}.", subtitle=subtitle)


def draw_strips(title: str, rows: Sequence[tuple[Row, Sequence[float]]], floor: float) -> Figure:
    """Draw a dot for each graph's score, stacked where dots would overlap, and a line at each row's
    mean. Scores below `floor` are drawn at `floor`."""
    drawing = Drawing(len(rows) * (ROW + 10) + AXIS)
    drawing.rows(len(rows), [max(value, floor) for _, values in rows for value in values])
    low, high = drawing.axes.get_xlim()
    for index, (row, values) in enumerate(rows):
        drawing.name(index, row, f"mean {number(row.value)}")
        ends, middle = [index + 0.46, index + 0.92], index + 0.69
        drawing.axes.plot([row.value] * 2, ends, color=row.colour if row.strong else COLOURS["ink"])
        piled = _pile([(max(value, floor) - low) / (high - low) for value in values], middle)
        xs, ys = [low + x * (high - low) for x, _ in piled], [y for _, y in piled]
        drawing.axes.plot(xs, ys, ".", color=row.colour, ms=5.5, mec="none", alpha=0.7)
    words = "; ".join(
        f"{row.name} from {number(min(values))} to {number(max(values))}, mean {number(row.value)}"
        for row, values in rows
    )
    below = sum(value < floor for _, values in rows for value in values)
    edge = f"{floor:g}".replace("-", MINUS)
    note = f"{below} dots lie below {edge} and are drawn at the edge." if below else ""
    return drawing.finish(title, f"{title}, a dot a graph: {words}.", note=note)


def _pile(shares: Sequence[float], middle: float) -> list[tuple[float, float]]:
    """Return the positions (x from 0 to 1, y) of the dots for `shares`, values scaled to 0 ... 1.
    The x axis has 80 columns; at most MAX_SPECKS dots of a column are stacked around `middle`."""
    dots = []
    for column, count in sorted(Counter(math.floor(share * 80) for share in shares).items()):
        drawn = min(count, MAX_SPECKS)
        gap = min(0.09, 0.46 / drawn)
        first = middle - gap * (drawn - 1) / 2
        dots += [((column + 0.5) / 80, first + gap * index) for index in range(drawn)]
    return dots


def draw_bars(title: str, rows: Sequence[Row]) -> Figure:
    """Draw a bar for each row, whose value is a share between 0 and 1."""
    drawing = Drawing(len(rows) * ROW, bottom=0)
    drawing.rows(len(rows), [0.0, 1.0], grid=False)
    drawing.axes.set(xticks=[], xlim=(0, 1))
    for index, row in enumerate(rows):
        drawing.name(index, row, f"{row.value:.0%}")
        for width, colour in ((1.0, "track"), (row.value, "accent")):
            drawing.axes.barh(index + 0.66, width, 0.2, color=COLOURS[colour])
    words = ", ".join(f"{row.name} {row.value:.0%}" for row in rows)
    return drawing.finish(title, f"{title}: {words}.")


def draw_pairs(
    title: str, pairs: Sequence[tuple[str, float, float]], what: tuple[str, str]
) -> Figure:
    """Draw each name's first value as a dot and its second as a ring, joined by a line. `what`: the
    meanings of the two values, in words."""
    drawing = Drawing(len(pairs) * ROW + AXIS)
    drawing.rows(len(pairs), [value for _, *values in pairs for value in values])
    accent, plot = COLOURS["accent"], drawing.axes.plot
    for index, (name, first, second) in enumerate(pairs):
        drawing.name(index, Row(name, first), f"{number(first)} ({number(second)})")
        y = index + 0.72
        plot([first, second], [y, y], color=COLOURS["plain"], lw=2, alpha=0.75)
        plot(second, y, "o", mfc=COLOURS["paper"], mec=accent, mew=1.5, ms=7)
        plot(first, y, "o", color=accent, mec="none", ms=7)
    words = "; ".join(
        f"{name} {what[0]} {number(first)}, {what[1]} {number(second)}"
        for name, first, second in pairs
    )
    return drawing.finish(title, f"{title}: {words}.")


def draw_heat_map(
    title: str, names: Sequence[str], values: Sequence[Sequence[float | None]]
) -> Figure:
    """Draw a square for each pair of names, in a stronger colour for a stronger correlation.
    `values`: (names, names) correlations; None: unknown."""
    left = 34 + 7.6 * max(len(name) for name in names)
    side = min(max((WIDTH - left - MARGIN) / len(names), 38.0), 46.0)
    width = max(WIDTH, left + side * len(names) + MARGIN)
    drawing = Drawing(20 + 34 * len(names), left=left, top=20, bottom=0, width=width)
    axes, across = drawing.axes, (width - left - MARGIN) / side
    axes.set(xlim=(0, across), ylim=(len(names), 0), xticks=[], yticks=[])
    middle: dict[str, Any] = {"va": "center", "color": COLOURS["ink"]}
    for row, name in enumerate(names):
        axes.text(row + 0.5, -0.25, str(row + 1), ha="center", color=COLOURS["soft"])
        axes.text(0, row + 0.5, plain(f"{row + 1}  {name} "), ha="right", **middle)
        for column, value in enumerate(values[row]):
            text = "–" if value is None else f"{value:.2f}".replace("0.", ".", 1)
            axes.text(column + 0.5, row + 0.5, text.replace("-", MINUS), ha="center", **middle)
            if value is not None:
                fill = 0.04 + MAX_FILL * min(abs(value), 1.0) ** 1.5
                colour = COLOURS["accent" if value >= 0 else "opposite"]
                axes.bar(column + 0.5, 0.92, 0.94, row + 0.04, color=colour, alpha=fill)
    words = "; ".join(
        f"{names[i]} with {names[j]} {number(value)}"
        for i in range(len(names))
        for j in range(i)
        if (value := values[i][j]) is not None
    )
    return drawing.finish(title, f"{title}: {words or 'no two rankers that rank anything'}.")


def draw_histogram(
    title: str, edges: Sequence[float], shares: Sequence[float], median: float
) -> Figure:
    """Draw a histogram of runtimes divided by the fastest: a bar for each share, between two of the
    edges, and a line at the median. The axis is logarithmic if its ends differ by a factor of at
    least 4."""
    from matplotlib.ticker import LogLocator, NullFormatter, NullLocator, StrMethodFormatter

    drawing = Drawing(150, top=20)
    axes, widths = drawing.axes, [b - a for a, b in zip(edges[:-1], edges[1:], strict=True)]
    axes.bar(edges[:-1], shares, widths, align="edge", color=COLOURS["accent"])
    wide = edges[-1] / edges[0] >= 4
    axes.set(xlim=(edges[0], edges[-1]), yticks=[], xscale="log" if wide else "linear")
    if wide:
        steps = (1, 2, 5) if edges[-1] / edges[0] < 200 else (1,)
        axes.xaxis.set_major_locator(LogLocator(subs=steps, numticks=9))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_minor_formatter(NullFormatter())
    else:
        axes.locator_params(axis="x", nbins=4)
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,.10g}"))
    axes.axvline(median, color=COLOURS["ink"], linewidth=1.5)
    side = "left" if axes.transAxes.inverted().transform(
        axes.transData.transform((median, 0)))[0] < 0.7 else "right"  # fmt: skip
    axes.text(
        median, 1.04, f" median {show_times(median)} ", ha=side,
        transform=axes.get_xaxis_transform(),
    )  # fmt: skip
    return drawing.finish(
        title,
        f"{title}: times as slow as the graph's fastest configuration, from {edges[0]:.3g} to "
        f"{edges[-1]:.3g}, median {median:.3g}.",
    )


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
    """Draw a line for each model.

    Args:
        curves: (step, value) of each model.
        alternative: the figure's content in words.
        axis: label of the vertical axis; the horizontal one is the step.
        dashed: further lines, drawn dashed.
        best: mark the step with the highest value of each model by a dot.
    """
    drawing = _draw_plane(PLOT, ("step", axis))
    for style, lines in (("-", curves), ("--", dashed)):
        for line in lines:
            steps, scores = zip(*line, strict=True)
            drawing.axes.plot(steps, scores, style, color=COLOURS["plain"], lw=1.3, alpha=0.75)
    for curve in curves if best else ():
        step, score = max(curve, key=lambda point: point[1])
        drawing.axes.plot(step, score, "o", color=COLOURS["accent"], mec="none", ms=6)
    drawing.axes.locator_params(axis="x", integer=True)
    return drawing.finish(title, alternative, subtitle=subtitle)


def draw_scatter(
    title: str, points: Sequence[Point], axes: tuple[str, str], *, shared: bool = False
) -> Figure:
    """Draw points over two axes, both with scores, and the line on which the scores are equal. If
    `shared`, both axes have the same range."""
    drawing = _draw_plane(290.0, axes)
    style: Any = {"ms": 7, "mfc": COLOURS["accent"], "mec": "none", "alpha": 0.65}
    drawing.axes.plot([p.x for p in points], [p.y for p in points], "o", **style)
    xs, ys = drawing.axes.get_xlim(), drawing.axes.get_ylim()
    if shared:
        xs = ys = min(xs[0], ys[0]), max(xs[1], ys[1])
    low, high = max(xs[0], ys[0]), min(xs[1], ys[1])
    if low < high:
        drawing.axes.plot([low, high], [low, high], "--", color=COLOURS["zero"], lw=1.5, zorder=1)
    drawing.axes.set(xlim=xs, ylim=ys)
    shown = sorted(points, key=lambda point: point.y)
    words = "; ".join(f"{p.name} {number(p.x)} and {number(p.y)}" for p in shown[:3])
    about = f"{title}, {axes[0]} against {axes[1]}, {len(points)} points, lowest: {words}."
    return drawing.finish(title, about)


def _draw_plane(height: float, axes: tuple[str, str]) -> Drawing:
    """Return a drawing of two labelled axes; the vertical axis has its label above it."""
    drawing = Drawing(height, left=44, top=22, bottom=40)
    style: Any = {"transform": drawing.axes.transAxes, "color": COLOURS["soft"]}
    drawing.axes.grid(axis="y")
    drawing.axes.spines["bottom"].set_visible(True)
    drawing.axes.text(-0.13, 1.04, plain(f"↑ {axes[1]}"), **style)
    drawing.axes.text(1, -34 / (height - 62), plain(f"{axes[0]} →"), ha="right", **style)
    drawing.axes.locator_params(nbins=5)
    return drawing
