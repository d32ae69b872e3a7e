"""Read the numbers that documents report, with their references, from published.toml."""

import tomllib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from pydantic import TypeAdapter

FILE = "published.toml"


@dataclass(frozen=True)
class Document:
    """A report or paper."""

    title: str
    # beginning of the name of the file with the document's text; empty if there is no such file
    file: str = ""


@dataclass(frozen=True)
class Number:
    """A number that a document reports."""

    document: str  # key of the document in Published.documents
    place: str  # the document's table or section
    what: str  # what the number measures, such as "top-5 slowdown of ridge on tiles"
    value: float
    unit: str = ""
    quote: str = ""  # the document's sentence around the number

    def __str__(self) -> str:
        return f"{self.value:,g}{self.unit}"


@dataclass(frozen=True)
class Published:
    """All documents and numbers by name."""

    documents: dict[str, Document]
    numbers: dict[str, Number]


@cache
def read_published() -> Published:
    """Read published.toml of this package."""
    text = (files("solution.papers") / FILE).read_text(encoding="utf-8")
    return TypeAdapter(Published).validate_python(tomllib.loads(text))


def tell_numbers(*names: str) -> str:
    """Return the named numbers as text, such as "top-5 slowdown of ridge on tiles: 52.5%"."""
    numbers = [read_published().numbers[name] for name in names]
    return "; ".join(f"{number.what}: {number}" for number in numbers)
