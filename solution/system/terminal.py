"""How results are printed: tables and plain lines on standard output."""

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

output = Console()


def say(text: str) -> None:
    """Print a line as it is: brackets in a name are no markup, and a long path stays whole."""
    output.print(text, markup=False, highlight=False, soft_wrap=True)


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
