"""How results are printed: tables and plain lines, and no name of a file commands the terminal."""

import re
import sys
from collections.abc import Iterator
from io import TextIOWrapper

from rich import box
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

# Control characters but tab and newline, separators of lines, what turns the direction of text, and
# bytes of a file's name that are no text.
UNPRINTABLE = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)


def escape(text: str) -> str:
    r"""The text with all that a terminal would obey, or could not show, as \x1b and the like."""
    return UNPRINTABLE.sub(lambda found: ascii(found[0])[1:-1], text)


class PlainConsole(Console):
    """A console that escapes all text; its own colours and movements are added after that.

    What it prints comes from files and folders of anybody, whose names may hold sequences that set
    a terminal's title, colours or clipboard.
    """

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterator[Segment]:
        """The segments of the renderable, escaped."""
        for text, style, control in super().render(renderable, options):
            yield Segment(text if control else escape(text), style, control)


output = PlainConsole()


def say(text: str) -> None:
    """Print a line as it is: brackets in a name are no markup, and a long path stays whole."""
    output.print(text, markup=False, highlight=False, soft_wrap=True)


def accept_any_text() -> None:
    """Let the standard streams write what their encoding lacks as an escape, and not fail."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def make_table(title: str | Text | None = None, caption: str | None = None) -> Table:
    """An empty table in the one look that all of them have. In a Text, brackets are no markup."""
    return Table(
        box=box.SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
        show_edge=False,
        title=title,
        title_justify="left",
        caption=caption,
        caption_justify="left",
    )
