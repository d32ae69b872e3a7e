"""Whether a picture can be read: numbers beside an axis stand apart, no legend lies on points."""

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure


def assert_apart(figure: Figure) -> None:
    """No number of an axis touches the next, and no legend covers a point of its panel."""
    figure.draw_without_rendering()
    for axes in figure.axes:
        if axes.axison:
            for axis, side in ((axes.xaxis, "x"), (axes.yaxis, "y")):
                _assert_ticks_apart(axis, side)
        _assert_legend_beside_points(axes)


def _assert_ticks_apart(axis: Axis, side: str) -> None:
    low, high = sorted(axis.get_view_interval())
    boxes = [
        (getattr(box, f"{side}0"), getattr(box, f"{side}1"), label.get_text())
        for place, label in zip(axis.get_ticklocs(), axis.get_ticklabels(), strict=False)
        if label.get_text() and label.get_visible() and low <= place <= high
        for box in [label.get_window_extent()]
    ]
    for (_, end, one), (begin, _, other) in pairwise(sorted(boxes)):
        assert end <= begin, f"{axis.axes.get_title()}: {one} and {other} touch"


def _assert_legend_beside_points(axes: Axes) -> None:
    legend = axes.get_legend()
    if legend is None:
        return
    box = legend.get_window_extent()
    for points in _find_points(axes):
        x, y = points.T
        covered = (x > box.x0) & (x < box.x1) & (y > box.y0) & (y < box.y1)
        assert not covered.any(), f"{axes.get_title()}: the legend covers {covered.sum()} points"


def _find_points(axes: Axes) -> Iterator[np.ndarray]:
    """Points (n, 2) in pixels of everything that is drawn as points."""
    for drawn in axes.collections:
        offsets = np.ma.getdata(drawn.get_offsets())
        if len(offsets):
            yield drawn.get_offset_transform().transform(offsets)
    for line in axes.lines:
        if line.get_marker() not in ("None", None, "", " "):
            yield line.get_transform().transform(line.get_xydata())
