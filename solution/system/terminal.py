"""How results are printed: tables and plain lines, and no name of a file commands the terminal."""

import copy
import dataclasses
import os
import re
import sys
from collections.abc import Iterator, Sequence
from io import TextIOWrapper
from typing import Any, TextIO

from rich import box
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

WIDE = 240  # characters of a line of a file
# Control characters but tab and newline, separators of lines, what turns the direction of text, and
# bytes of a file's name that are no text.
UNPRINTABLE = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)


def escape(text: str) -> str:
    r"""The text with all that a terminal would obey, or could not show, as \x1b and the like."""
    return UNPRINTABLE.sub(lambda found: ascii(found[0])[1:-1], text)


def is_screen(stream: TextIO | None) -> bool:
    """Whether it is a terminal; one that was closed before the program began is None."""
    return stream is not None and stream.isatty()


class PlainConsole(Console):
    """A console that escapes all text; its own colours and movements are added after that.

    What it prints comes from files and folders of anybody, whose names may hold sequences that set
    a terminal's title, colours or clipboard. What the environment and the streams are it asks when
    it is first used, for it is made when its module is imported.

    Args:
        is_wide: off a terminal nobody's screen is too narrow, unless somebody says so.
        settings: those of rich's console.
    """

    def __init__(self, *, is_wide: bool = False, **settings: Any) -> None:
        self._is_wide, self._settings = is_wide, settings

    def __getattr__(self, name: str) -> Any:
        if "_settings" not in self.__dict__:  # it has been used
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")
        settings, told = dict(self._settings), os.environ.get("COLUMNS", "")
        if told.strip("0") == "":  # a screen of no width, as some programs tell, shows nothing
            settings["_environ"] = {k: v for k, v in os.environ.items() if k != "COLUMNS"}
            if self._is_wide and not is_screen(sys.stdout):
                settings["width"] = WIDE
        super().__init__(**settings)
        self.__dict__.pop("_settings", None)
        return getattr(self, name)

    def print(self, *what: Any, **how: Any) -> None:
        """As rich's; an error of the stream, of which the system says no name, names it."""
        try:
            super().print(*what, **how)
        except OSError as error:
            if error.filename is None:
                error.filename = "standard error" if self.stderr else "standard output"
            raise

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterator[Segment]:
        """The segments of the renderable, escaped."""
        for text, style, control in super().render(renderable, options):
            yield Segment(text if control else escape(text), style, control)


output = PlainConsole(is_wide=True)


def say(text: str) -> None:
    """Print a line as it is: brackets in a name are no markup, and a long path stays whole."""
    output.print(text, markup=False, highlight=False, soft_wrap=True)


def accept_any_text() -> None:
    """Let the standard streams write what their encoding lacks as an escape, and not fail."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


class FittingTable(Table):
    """A table whose less important columns go first where the screen is narrow."""

    expendable: Sequence[str] = ()  # headers, the first to go first

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for column in self.columns:
            if not column.no_wrap and column.overflow == "ellipsis":
                column.overflow = "fold"  # what has no room goes on below: nothing is cut
        shown, gone = self, []
        for header in self.expendable:
            if shown._count_needed(console) <= options.max_width:
                break
            shown = shown._without(header)
            gone.append(header)
        yield from Table.__rich_console__(shown, console, options)
        if gone:
            yield Text(f"Left out, for the screen is narrow: {', '.join(gone)}.")

    def _count_needed(self, console: Console) -> int:
        """Characters of a line in which nothing is cut: a column may wrap where it says so."""
        needed = 0
        for column in self.columns:
            sizes = [console.measure(cell) for cell in (column.header, *column.cells)]
            least = max(size.maximum if column.no_wrap else size.minimum for size in sizes)
            needed += max(least, column.min_width or 0)
        return needed + 2 * len(self.columns) - 1  # a space behind each, and one between two

    def _without(self, header: str) -> "FittingTable":
        shown = copy.copy(self)
        kept = [column for column in self.columns if column.header != header]
        shown.columns = [dataclasses.replace(c, _index=place) for place, c in enumerate(kept)]
        return shown


def make_table(
    title: str | Text | None = None, caption: str | None = None, expendable: Sequence[str] = ()
) -> FittingTable:
    """An empty table in the one look that all of them have. In a Text, brackets are no markup.

    Args:
        expendable: headers of columns that a narrow screen may lack, the first to go first.
    """
    table = FittingTable(
        box=box.SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
        show_edge=False,
        title=title,
        title_justify="left",
        caption=caption,
        caption_justify="left",
    )
    table.expendable = expendable
    return table
