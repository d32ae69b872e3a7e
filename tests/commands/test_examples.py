"""Every example that a command shows is a command that can be given."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.main import get_command

from solution.commands.assembly import GROUPS, assemble

PROGRAM: Any = get_command(assemble())
EXAMPLE = re.compile(r"^ *(fastslow .+)$|`(fastslow [^`]+)`", re.MULTILINE)


@pytest.fixture(autouse=True)
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the folders are that the examples name: some commands look before they begin."""
    for name in ("data", "stores/data", "DATA"):
        (tmp_path / name).mkdir(parents=True, exist_ok=True)  # two are one on macOS
    monkeypatch.chdir(tmp_path)


def list_commands(command: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    yield name, command
    for word, child in getattr(command, "commands", {}).items():
        yield from list_commands(child, f"{name} {word}".strip())


def find_examples() -> list[str]:
    """What the help of every command and of its options shows, once each."""
    texts = []
    for _, command in list_commands(PROGRAM):
        texts += [command.help, command.epilog, *(getattr(p, "help", "") for p in command.params)]
    found = (match for text in texts for match in EXAMPLE.finditer(text or ""))
    return sorted({" ".join((match[1] or match[2]).split()) for match in found})


def parse(line: str) -> None:
    """Parse a line as the command line does; a usage error where it cannot be given."""
    command, words = PROGRAM, shlex.split(line)[1:]
    while words and words[0] in getattr(command, "commands", {}):
        command, *words = command.commands[words[0]], *words[1:]
    if hasattr(command, "commands"):
        raise typer.BadParameter(f"no such command: {line}")
    command.make_context(command.name, words).close()


@pytest.mark.parametrize("line", find_examples())
def test_an_example_can_be_given(line: str) -> None:
    parse(line)


def test_every_command_shows_an_example() -> None:
    shown = {line.split()[1] for line in find_examples()}
    assert shown >= {name for name, command in PROGRAM.commands.items()
                     if not hasattr(command, "commands")}  # fmt: skip


def test_every_command_and_every_group_of_them_stands_in_a_panel() -> None:
    panels = {name: command.rich_help_panel for name, command in PROGRAM.commands.items()}
    assert panels == {name: panel for panel, names in GROUPS.items() for name in names}
