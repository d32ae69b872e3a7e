"""Files and folders of this machine, among what is typed: an address of a bucket is none.

A path folds the slashes of s3://BUCKET/NAME to s3:/BUCKET/NAME, which would be written beside the
user's files, and success be said. So every option and argument that is a Path reads its text here.
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
    """The path that was typed; InputError where it is an address, BadParameter where empty."""
    return Path(refuse_address(refuse_empty(str(text)), TAKERS))


def refuse_empty(text: str) -> str:
    """What was given again; BadParameter where that is nothing, which would be the folder here."""
    if not text:
        raise typer.BadParameter("expected a file or folder, found nothing. Is a variable empty?")
    return text


read_place.__name__ = "path"  # older versions of typer show this name in the help


def refuse_addresses(app: typer.Typer) -> None:
    """Let all commands of the app, and of its groups, read their paths so."""
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
