"""How results are printed: tables and plain lines on standard output."""

from rich.console import Console

output = Console()


def say(text: str) -> None:
    """Print a line as it is: brackets in a name are no markup, and a long path stays whole."""
    output.print(text, markup=False, highlight=False, soft_wrap=True)
