"""Read local paths from the command line, and reject addresses of buckets.

Path would turn s3://BUCKET/NAME into s3:/BUCKET/NAME, a local folder, and the command would report
success. So every option and argument of type Path is parsed here.
"""

from inspect import get_annotations
from pathlib import Path
from typing import Any, get_args

import typer
from typer.models import ParameterInfo

from solution.system.addresses import refuse_address

TAKERS = (
    "Addresses are taken by `run` and `train` for data and results, `tune` and `features` for data."
)


def read_place(text: str | Path) -> Path:
    """Return the typed path; raise InputError for an address, BadParameter for an empty text."""
    return Path(refuse_address(refuse_empty(str(text)), TAKERS))


def refuse_empty(text: str) -> str:
    """Return the text; raise BadParameter if it is empty, which would mean the current folder."""
    if not text:
        raise typer.BadParameter("expected a file or folder, found nothing. Is a variable empty?")
    return text


read_place.__name__ = "path"  # older versions of typer show this name in the help


def refuse_addresses(app: typer.Typer) -> None:
    """Make all commands of the app and of its groups parse their paths with `read_place`."""
    for command in app.registered_commands:
        for annotation in get_annotations(command.callback).values() if command.callback else ():
            _read_here(annotation)
    for group in app.registered_groups:
        if group.typer_instance is not None:
            refuse_addresses(group.typer_instance)


def _read_here(annotation: Any) -> None:
    """Set the parser of an Annotated Path, also of an optional one or of a list."""
    kind, *described = get_args(annotation) or (None,)
    if kind is not Path and Path not in get_args(kind):
        return
    for info in described:
        if isinstance(info, ParameterInfo) and info.parser is None:
            info.parser = read_place
