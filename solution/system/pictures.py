"""How figures become files: in the format that the name says, laid out once."""

import warnings
from pathlib import Path
from typing import TYPE_CHECKING

from solution.system.errors import InputError
from solution.system.files import replace_file

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FORMATS = (".png", ".svg", ".pdf")
DOTS = 130  # an inch


def check_ending(path: Path | None, endings: tuple[str, ...] = FORMATS) -> None:
    """Raise InputError where a file that is still to be written has another ending."""
    if path is not None and path.suffix not in endings:
        raise InputError(f"{path}: expected a name that ends with {', '.join(endings)}.")


def save_figure(figure: "Figure", path: Path) -> None:
    """Write a figure as its name ends; it is laid out once, where matplotlib would draw it twice.

    Raises InputError for an ending that is not in FORMATS.
    """
    check_ending(path)
    figure.set_dpi(DOTS)
    with replace_file(path) as temporary, warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph")  # a name in another script has boxes
        if (engine := figure.get_layout_engine()) is not None:
            engine.execute(figure)
            figure.set_layout_engine("none")
        figure.savefig(temporary, dpi=DOTS, format=path.suffix.removeprefix("."))
