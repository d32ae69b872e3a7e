"""How figures become files: in the format that the name says, laid out once."""

import warnings
from pathlib import Path
from typing import TYPE_CHECKING

from solution.system.files import replace_file
from solution.system.names import check_ending
from solution.system.terminal import escape

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FORMATS = (".png", ".svg", ".pdf")
DOTS = 130  # an inch
DATES = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}  # that are not written


def show_plainly(name: str) -> str:
    """A name as a picture shows it: it is no formula and moves no cursor."""
    return escape(name).replace("$", r"\$")


def save_figure(figure: "Figure", path: Path) -> None:
    """Write a figure as its name ends; it is laid out once, where matplotlib would draw it twice.

    The same figure gives the same bytes.

    Raises InputError for an ending that is not in FORMATS.
    """
    from matplotlib import rc_context

    check_ending(path, *FORMATS)
    figure.set_dpi(DOTS)
    unmoved = rc_context({"svg.hashsalt": "fast-or-slow"})
    with replace_file(path) as temporary, warnings.catch_warnings(), unmoved:
        warnings.filterwarnings("ignore", "Glyph")  # a name in another script has boxes
        if (engine := figure.get_layout_engine()) is not None:
            engine.execute(figure)
            figure.set_layout_engine("none")
        dates = DATES.get(path.suffix)
        figure.savefig(temporary, dpi=DOTS, format=path.suffix.removeprefix("."), metadata=dates)
