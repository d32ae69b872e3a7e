"""Draw the ledger: scores over time, and out-of-fold scores against Kaggle's."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from submissions.ledger import Ledger, Line, read_number
from submissions.scores import Anchor

if TYPE_CHECKING:  # only notebooks draw; the commands start without matplotlib
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SHOWN = {"public": "C0", "private": "C3", "oof_mean": "C7"}
NAMES = {"public": "public", "private": "private", "oof_mean": "out of fold"}
BEST_ANCHORS = 3


def draw_history(ledger: Ledger, anchors: Sequence[Anchor]) -> "Figure":
    """Draw scores by submission beside known results, and Kaggle's scores against out-of-fold
    scores."""
    from matplotlib.figure import Figure

    ordered = sorted(ledger.lines, key=_moment)
    lines = [line for line in ordered if read_number(line["private"]) is not None]
    figure = Figure(figsize=(12, 4.2), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=[1.6, 1])
    _draw_course(lines, anchors, left)
    _draw_foretelling(lines, right)
    return figure


def _draw_course(lines: list[Line], anchors: Sequence[Anchor], axes: "Axes") -> None:
    for column, colour in SHOWN.items():
        points = [
            (place, value)
            for place, line in enumerate(lines)
            if (value := read_number(line[column])) is not None
        ]
        if points:
            places, values = zip(*points, strict=True)
            axes.plot(places, values, color=colour, marker="o", ms=5, lw=1, label=NAMES[column])
    for number, anchor in enumerate(anchors[:BEST_ANCHORS]):
        style = {"color": "black", "lw": 0.8, "ls": (":", "--", "-.")[number]}
        axes.axhline(anchor.private, label=f"{anchor.name} ({anchor.private:.3f})", **style)  # type: ignore[arg-type]
    axes.set_xticks(range(len(lines)), [line["when"][2:10] for line in lines], rotation=90)
    axes.tick_params(axis="x", labelsize=7)
    axes.set_xlabel("submission, the oldest first" if lines else "no submission has a score yet")
    axes.set_ylabel("score, higher is better")
    axes.set_title("Submissions, and the best known private scores")
    axes.legend(fontsize=8, frameon=False, loc="upper left", bbox_to_anchor=(1, 1))


def _draw_foretelling(lines: list[Line], axes: "Axes") -> None:
    both = [line for line in lines if read_number(line["oof_mean"]) is not None]
    own = [read_number(line["oof_mean"]) for line in both]
    for column in ("public", "private"):
        theirs = [read_number(line[column]) for line in both]
        axes.scatter(own, theirs, s=24, color=SHOWN[column], label=NAMES[column])  # type: ignore[arg-type]
    axes.set_xlabel("mean score out of fold")
    axes.set_ylabel("score at Kaggle")
    axes.set_title(f"Out of fold against Kaggle: {len(both)} submissions")
    if both:
        axes.legend(fontsize=8, frameon=False)
    else:
        axes.text(0.5, 0.5, "none has both scores yet", ha="center", transform=axes.transAxes)
        axes.set_xticks([])
        axes.set_yticks([])


def _moment(line: Line) -> str:
    return line["when"]
