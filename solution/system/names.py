"""Names that become folders of a run: of its experiments and recipes."""

import re

NAME = re.compile(r"[A-Za-z0-9_][\w.-]*")  # no separator, nothing that is hidden, no ".."


def check_name(name: str) -> str:
    """Returns the name; ValueError where it could lead anywhere but to a folder of its own."""
    if not NAME.fullmatch(name):
        raise ValueError(
            f"expected a name of letters, digits, _, . and - that begins with a letter, a digit "
            f"or _, found {name!r}"
        )
    return name
