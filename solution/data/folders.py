"""Find the npz files in the folder shapes that people have.

The competition's download (npz_all/npz/layout/...), the same without npz_all, a Kaggle mount with
either below it, one collection's folder or a single file: in all of them the last parts of the path
say collection, split and graph, so nothing else is looked at.
"""

import csv
import os
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatch
from itertools import takewhile
from pathlib import Path
from typing import TypeVar

from solution.data.npz import detect_kind
from solution.domain.collection import BY_NAME, SAMPLE_SUBMISSION, SPLITS, Collection, collection
from solution.system.errors import InputError
from solution.system.wording import count, join_names

Given = TypeVar("Given", Path, Path | None)

SAMPLE = Path(__file__).parent / "sample"  # the bundled data

HIDDEN = (".", "__MACOSX", "lost+found")  # the last is root's own, on many disks
MAX_NAME = 1000  # characters of a line in which a graph's name ends
MAX_SHOWN = 3
PATTERN = "*.npz"
LIKE_PATTERN = "*.[Nn][Pp][Zz]*"  # also one that was renamed, or whose download was stopped
SAMPLE_HEADER = ["ID", "TopConfigs"]
SAMPLE_ROWS = tuple(f"{name}:" for name in BY_NAME)
EXPECTED = "layout/{xla,nlp}/{default,random}/{train,valid,test}/*.npz or tile/xla/{...}/*.npz"
SPEAKING = {*SPLITS, *(part for name in BY_NAME for part in name.split(":"))}  # names of folders
DEEPEST = 4  # of them say what a graph is


@dataclass(frozen=True)
class GraphFile:
    """Where one graph lies and what the path says of it."""

    path: Path
    collection: Collection
    split: str

    @property
    def name(self) -> str:
        return self.path.stem

    @property
    def size(self) -> int:
        """Its bytes; 0 where it cannot be looked at, which reading it will say."""
        try:
            return self.path.stat().st_size
        except OSError:
            return 0


def check_exists(folder: Given) -> Given:
    """The folder again; raises InputError where one was named that is not there."""
    if folder is not None and not folder.exists():
        raise InputError(f"{folder}: there is no such folder. Give the folder with the npz files.")
    return folder


def find_files(folder: Path) -> list[GraphFile]:
    """Every graph below `folder` (or the one file that it is), sorted by collection, split, name.

    Raises InputError where there is none, where one graph is there twice, or where a folder cannot
    be read.
    """
    check_exists(folder)
    if folder.is_file() and folder.suffix != ".npz":
        raise InputError(f"{folder}: expected a folder or an npz file, found another file.")
    visible = [folder] if folder.is_file() else sorted(_walk(folder))
    files = [file for path in visible if (file := parse_path(path)) is not None]
    if not files:
        others = f" (of {len(visible)} npz files, none lies in such a folder)" if visible else ""
        raise InputError(f"{folder}: expected {EXPECTED} in it, found none{others}.")
    _check_unique(files)
    order = {name: index for index, name in enumerate(BY_NAME)}
    return sorted(files, key=lambda f: (order[f.collection.name], SPLITS.index(f.split), f.name))


def find_left_out(folder: Path) -> list[str]:
    """What is called as data is, but does not lie or read as such: a sentence for each kind of it.

    Nobody may see before the result that a graph is missing whose folder or ending is slightly off.
    """
    strays = sorted(path for path in _walk(folder, LIKE_PATTERN) if not _is_graph(path))
    others = [path for path in _list_samples(folder) if not _is_sample_submission(path)]
    said = []
    if strays:
        said.append(
            f"{count(len(strays), 'npz file')} left out, not called and placed as {EXPECTED}: "
            f"{join_names(strays, MAX_SHOWN)}."
        )
    if others:
        said.append(
            f"{count(len(others), 'file')} called {SAMPLE_SUBMISSION} left out, not beginning "
            f"with {','.join(SAMPLE_HEADER)} and a row of a collection: "
            f"{join_names(others, MAX_SHOWN)}."
        )
    return said


def _is_graph(path: Path) -> bool:
    return fnmatch(path.name, PATTERN) and parse_path(path) is not None


def find_roots(folder: Path) -> dict[Path, int]:
    """The folders below which npz files lie in their shape, and how many: as find_files takes them.

    Where other things lie beside the data, as in a kernel's inputs, this tells them apart.
    """
    roots: dict[Path, int] = {}
    for path in _walk(folder):
        found = parse_path(path)
        if found is not None:
            root = path.parents[1 + len(found.collection.name.split(":"))]
            while root.name in ("npz", "npz_all") and root != folder:
                root = root.parent
            roots[root] = roots.get(root, 0) + 1
    return roots


def parse_path(path: Path) -> GraphFile | None:
    """Read collection and split off the end of the path; None where they are not there."""
    # Not resolved: where a link stands counts, not where it leads.
    parts = Path(os.path.abspath(path)).parts  # noqa: PTH100
    for name in BY_NAME:
        folder = tuple(name.split(":"))
        if parts[-2 - len(folder) : -2] == folder and parts[-2] in SPLITS:
            return GraphFile(path, collection(name), parts[-2])
    return None


def identify_file(path: Path, collection_name: str | None = None) -> GraphFile:
    """Identify a single file: by its path, by `collection_name`, or by the arrays in it."""
    if path.is_dir():
        raise InputError(f"{path}: is a folder. Give one npz file in it.")
    if not path.is_file():
        raise InputError(f"{path}: there is no such file. Give one npz file.")
    if collection_name is not None:
        return GraphFile(path, collection(collection_name), "train")
    found = parse_path(path)
    if found is not None:
        return found
    if detect_kind(path) == "tile":
        return GraphFile(path, collection("tile:xla"), "train")
    raise InputError(
        f"{path}: a layout graph, but its path does not say of which collection. "
        "Add --collection, such as --collection layout:xla:random."
    )


def find_sample_submission(folder: Path) -> Path | None:
    """The competition's sample_submission.csv in the folder, below it, or beside npz folders.

    A mount may hold other competitions' samples: only one whose first row is of a known collection
    counts.
    """
    return next((path for path in _list_samples(folder) if _is_sample_submission(path)), None)


def _list_samples(folder: Path) -> list[Path]:
    """Files of the sample's name: below the folder, then beside it."""
    below = sorted(_walk(folder, SAMPLE_SUBMISSION), key=lambda path: len(path.parts))
    beside = [
        folder.parents[level] / SAMPLE_SUBMISSION
        for level in range(min(2, len(folder.parents)))
        if folder.name in ("npz", "npz_all")
    ]
    return [*below, *(path for path in beside if path.is_file())]


def _is_sample_submission(path: Path) -> bool:
    if not path.is_file():
        return False
    # A spreadsheet that saved it again may begin with a byte-order mark, and quote what it writes.
    with path.open(encoding="utf-8-sig", errors="replace") as file:
        header, first = (file.readline(MAX_NAME).strip() for _ in range(2))
    fields = next(csv.reader([header]), [])
    return fields == SAMPLE_HEADER and first.lstrip('"').startswith(SAMPLE_ROWS)


def _walk(folder: Path, pattern: str = PATTERN) -> Iterator[Path]:
    """Files below `folder` that match, also through links; hidden folders are passed over.

    Raises InputError where a folder cannot be read: what is in it would be left out.
    """
    if folder.is_file():
        return
    visited: set[tuple[str, tuple[str, ...]]] = set()
    for here, folders, files in os.walk(folder, onerror=_refuse_folder, followlinks=True):
        place = os.path.realpath(here), _name_role(here)
        # A folder counts again where a link makes it another split or collection.
        if place in visited or _leads_up(here, folder):
            folders.clear()
            continue
        visited.add(place)
        folders[:] = sorted(name for name in folders if not name.startswith(HIDDEN))
        for name in files:
            if fnmatch(name, pattern) and not name.startswith(HIDDEN):
                yield Path(here, name)


def _name_role(here: str) -> tuple[str, ...]:
    """The end of a folder's path, as far as it says what the graphs in it, or below it, are."""
    last = reversed(Path(os.path.abspath(here)).parts[-DEEPEST:])  # noqa: PTH100
    return tuple(takewhile(SPEAKING.__contains__, last))


def _leads_up(here: str, top: Path) -> bool:
    """Whether it is a link to a folder above it, which has no end."""
    if not Path(here).is_symlink() or Path(here) == top:
        return False
    above = [parent for parent in Path(here).parents if parent.is_relative_to(top)]
    return os.path.realpath(here) in map(os.path.realpath, above)


def _refuse_folder(error: OSError) -> None:
    raise InputError(
        f"{error.filename}: the folder cannot be read: {error.strerror}. Make it readable, or take "
        "it out of the data."
    ) from error


def _check_unique(files: list[GraphFile]) -> None:
    seen: dict[tuple[str, bool, str], Path] = {}
    for file in files:
        # Train and valid graphs are predicted together, so their names must differ.
        key = (file.collection.name, file.split == "test", file.name)
        if key in seen:
            raise InputError(
                f"{file.path}: the same graph lies at {seen[key]}. Give a folder that has it once."
            )
        seen[key] = file.path
