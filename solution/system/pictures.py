"""Save figures in the format that the file's name ends with."""

import warnings
from pathlib import Path
from typing import TYPE_CHECKING

from solution.system.files import replace_file
from solution.system.names import check_ending
from solution.system.terminal import escape

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FORMATS = (".png", ".svg", ".pdf")
# dots per inch
DOTS = 130
# metadata that leaves out time stamps
DATES = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}


def show_plainly(name: str) -> str:
    """Return a name for use in a picture, without formulas or control characters."""
    return escape(name).replace("$", r"\$")


def save_figure(figure: "Figure", path: Path) -> None:
    """Write a figure in the format of the path's ending; equal figures give equal bytes. The layout
    is computed once here, because matplotlib would compute it twice. Raises InputError for an
    ending that is not in FORMATS."""
    from matplotlib import rc_context

    check_ending(path, *FORMATS)
    figure.set_dpi(DOTS)
    unmoved = rc_context({"svg.hashsalt": "fast-or-slow"})
    with replace_file(path) as temporary, warnings.catch_warnings(), unmoved:
        # do not warn of characters that the font lacks; they are drawn as boxes
        warnings.filterwarnings("ignore", "Glyph")
        if (engine := figure.get_layout_engine()) is not None:
            engine.execute(figure)
            figure.set_layout_engine("none")
        dates = DATES.get(path.suffix)
        figure.savefig(temporary, dpi=DOTS, format=path.suffix.removeprefix("."), metadata=dates)
