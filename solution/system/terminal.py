"""Print tables and lines to the terminal; control sequences in file names are escaped."""

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

# characters per line if the output is a file
WIDE = 240
# controls except tab and newline, line separators, direction marks, surrogates (undecodable bytes)
UNPRINTABLE = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)


def escape(text: str) -> str:
    r"""Return the text with control and unprintable characters written as \x1b and so on."""
    return UNPRINTABLE.sub(lambda found: ascii(found[0])[1:-1], text)


def is_screen(stream: TextIO | None) -> bool:
    """Return True if the stream is a terminal. Python sets a standard stream to None if it was
    closed when the process started."""
    return stream is not None and stream.isatty()


class PlainConsole(Console):
    """A console that escapes all text; colours and cursor movements of rich are added afterwards.

    It prints names of files from anybody, which may contain sequences that set a terminal's title,
    colours or clipboard. Consoles are created when a module is imported, but they read the
    environment and the streams only at their first use, so earlier changes of these count.

    Args:
        is_wide: if the output is no terminal, use lines of WIDE characters, unless COLUMNS is set.
        settings: arguments of rich's Console.
    """

    def __init__(self, *, is_wide: bool = False, **settings: Any) -> None:
        self._is_wide, self._settings = is_wide, settings

    def __getattr__(self, name: str) -> Any:
        # Without `_settings`, rich's Console is initialised, so the attribute really is unknown.
        if "_settings" not in self.__dict__:
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")
        settings, told = dict(self._settings), os.environ.get("COLUMNS", "")
        # COLUMNS is unset, or 0: some programs set it to 0, with which rich would show nothing.
        if told.strip("0") == "":
            settings["_environ"] = {k: v for k, v in os.environ.items() if k != "COLUMNS"}
            if self._is_wide and not is_screen(sys.stdout):
                settings["width"] = WIDE
        super().__init__(**settings)
        self.__dict__.pop("_settings", None)
        return getattr(self, name)

    def print(self, *what: Any, **how: Any) -> None:
        """Print as rich does; if writing fails, the error names the stream."""
        try:
            super().print(*what, **how)
        except OSError as error:
            if error.filename is None:
                error.filename = "standard error" if self.stderr else "standard output"
            raise

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterator[Segment]:
        """Yield the segments of the renderable, escaped."""
        for text, style, control in super().render(renderable, options):
            yield Segment(text if control else escape(text), style, control)


output = PlainConsole(is_wide=True)


def say(text: str) -> None:
    """Print a line unchanged: brackets are no markup, and long paths are not broken."""
    output.print(text, markup=False, highlight=False, soft_wrap=True)


def accept_any_text() -> None:
    """Make the standard streams escape characters that their encoding lacks, rather than fail."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


class FittingTable(Table):
    """A table that leaves out less important columns if the terminal is narrow."""

    expendable: Sequence[str] = ()  # headers of columns that may be left out, in this order

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for column in self.columns:
            if not column.no_wrap and column.overflow == "ellipsis":
                column.overflow = "fold"  # wrap, do not cut
        shown, gone = self, []
        for header in self.expendable:
            if shown._count_needed(console) <= options.max_width:
                break
            shown = shown._without(header)
            gone.append(header)
        yield from Table.__rich_console__(shown, console, options)
        if gone:
            yield Text(f"Left out, because the terminal is narrow: {', '.join(gone)}.")

    def _count_needed(self, console: Console) -> int:
        """Return the least line width in which no cell is cut, with wrappable cells wrapped."""
        needed = 0
        for column in self.columns:
            sizes = [console.measure(cell) for cell in (column.header, *column.cells)]
            least = max(size.maximum if column.no_wrap else size.minimum for size in sizes)
            needed += max(least, column.min_width or 0)
        # n columns have a space after each, and n - 1 spaces between them
        return needed + 2 * len(self.columns) - 1

    def _without(self, header: str) -> "FittingTable":
        shown = copy.copy(self)
        kept = [column for column in self.columns if column.header != header]
        shown.columns = [dataclasses.replace(c, _index=index) for index, c in enumerate(kept)]
        return shown


def make_table(
    title: str | Text | None = None,
    caption: str | None = None,
    expendable: Sequence[str] = (),
    *,
    names: Sequence[str] = (),
    numbers: Sequence[str] = (),
    texts: Sequence[str] = (),
) -> FittingTable:
    """Return an empty table in the common style.

    Args:
        title: brackets are markup of rich, except in a title of type Text.
        expendable: headers of columns that are left out on a narrow terminal, in this order.
        names, numbers, texts: headers of the columns, in this order. Names and numbers stay on one
            line, numbers are aligned at the right, and texts are wrapped.
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
    for header in names:
        table.add_column(header, no_wrap=True)
    for header in numbers:
        table.add_column(header, justify="right", no_wrap=True)
    for header in texts:
        table.add_column(header)
    return table
