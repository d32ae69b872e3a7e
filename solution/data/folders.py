"""Find the npz files of the competition's data in any usual arrangement of folders.

Supported are the competition's download (npz_all/npz/layout/...), the same without npz_all, a
Kaggle mount that contains either, the folder of one collection, or a single file. In all of them
the last parts of the path name the collection, the split and the graph; other parts are ignored.
"""

import csv
import filecmp
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

# prefixes of files and folders to skip; lost+found exists on many disks, readable only by root
HIDDEN = (".", "__MACOSX", "lost+found")
MAX_NAME = 1000  # at most this many characters of each line of sample_submission.csv are read
MAX_SHOWN = 3
PATTERN = "*.npz"
LIKE_PATTERN = "*.[Nn][Pp][Zz]*"  # like PATTERN, also for renamed files and unfinished downloads
SAMPLE_HEADER = ["ID", "TopConfigs"]
# prefixes of the first row after the header of a valid sample submission
SAMPLE_ROWS = tuple(f"{name}:" for name in BY_NAME)
EXPECTED = "layout/{xla,nlp}/{default,random}/{train,valid,test}/*.npz or tile/xla/{...}/*.npz"
# folder names that are part of a collection's name, or a split
SPEAKING = {*SPLITS, *(part for name in BY_NAME for part in name.split(":"))}
DEEPEST = 4  # maximum number of folders at the end of a path that name a collection and a split


@dataclass(frozen=True)
class GraphFile:
    """The npz file of one graph, with the graph's collection and split."""

    path: Path
    collection: Collection
    split: str

    @property
    def name(self) -> str:
        return self.path.stem

    @property
    def size(self) -> int:
        """The size in bytes; 0 if the file cannot be accessed, which reading it will report."""
        try:
            return self.path.stat().st_size
        except OSError:
            return 0


def check_exists(folder: Given) -> Given:
    """Return `folder`, which may be None; raise InputError if the folder does not exist."""
    if folder is not None and not folder.exists():
        raise InputError(f"{folder}: there is no such folder. Give the folder with the npz files.")
    return folder


def find_files(folder: Path) -> list[GraphFile]:
    """Return the files of all graphs, sorted by collection, split and name. `folder`: a folder,
    which is searched with all its subfolders; or a single npz file. Raises InputError if there is
    no graph, a graph occurs twice, or a folder cannot be read."""
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
    """Return warnings about files that look like data but are not used.

    They are npz files whose folders name no collection and split, or whose ending is not .npz, and
    files called sample_submission.csv that are not the competition's. Without a warning a missing
    graph would be noticed only in the results.
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
    """Return {root folder of a data set below `folder`: number of its npz files}. This finds data
    among other files, such as the inputs of a Kaggle notebook."""
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
    """Return the file with the collection and split that its path names; None if it names none."""
    # Symbolic links are not resolved: their own path is read, not the path of their target.
    parts = Path(os.path.abspath(path)).parts  # noqa: PTH100
    for name in BY_NAME:
        folder = tuple(name.split(":"))
        if parts[-2 - len(folder) : -2] == folder and parts[-2] in SPLITS:
            return GraphFile(path, collection(name), parts[-2])
    return None


def identify_file(path: Path, collection_name: str | None = None) -> GraphFile:
    """Return the file with its collection and split.

    The collection is `collection_name` if that is given, otherwise the collection that the path
    names. If the path names no collection, a file with the arrays of a tile graph belongs to
    tile:xla. A split is read only from a path that also gives the collection; otherwise it is
    "train".

    Raises InputError if the file does not exist, or is a layout graph of an unknown collection.
    """
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


def choose_sample(folder: Path) -> Path | None:
    """Return the competition's sample_submission.csv with the most rows, of several with as many
    rows the topmost; None if there is none. They are searched below `folder`, and also in the two
    folders above if `folder` is called npz or npz_all. A mount may hold samples of other
    competitions, so the first row must be of a known collection."""
    return max(_find_samples(folder), key=_count_lines, default=None)


def describe_other_samples(folder: Path) -> list[str]:
    """Return a list with a warning if the data has further sample submissions that differ from the
    chosen one; else an empty list."""
    found = _find_samples(folder)
    if len(found) < 2:
        return []
    chosen = max(found, key=_count_lines)
    others = [path for path in found if not filecmp.cmp(path, chosen, shallow=False)]
    if not others:
        return []
    return [
        f"{count(len(others), 'other file')} called {SAMPLE_SUBMISSION} left out: "
        f"{join_names(others, MAX_SHOWN)}. The rows of a submission are those of {chosen}, which "
        "has the most or, of several with as many, lies topmost. If another one is right, "
        "move the wrong ones away."
    ]


def _find_samples(folder: Path) -> list[Path]:
    return [path for path in _list_samples(folder) if _is_sample_submission(path)]


def _count_lines(path: Path) -> int:
    with path.open("rb") as file:
        return sum(not line.isspace() for line in file)


def _list_samples(folder: Path) -> list[Path]:
    """Return the files named sample_submission.csv: first the files below the folder, then, if the
    folder is called npz or npz_all, the files in the two folders above it."""
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
    # accept a byte-order mark and quoted fields, because a spreadsheet may write them
    with path.open(encoding="utf-8-sig", errors="replace") as file:
        header, first = (file.readline(MAX_NAME).strip() for _ in range(2))
    fields = next(csv.reader([header]), [])
    return fields == SAMPLE_HEADER and first.lstrip('"').startswith(SAMPLE_ROWS)


def _walk(folder: Path, pattern: str = PATTERN) -> Iterator[Path]:
    """Yield the files below `folder` that match; follow links, skip hidden files and folders.
    Raises InputError if a folder cannot be read, because its files would be missing."""
    if folder.is_file():
        return
    visited: set[tuple[str, tuple[str, ...]]] = set()
    for here, folders, files in os.walk(folder, onerror=_refuse_folder, followlinks=True):
        seen = os.path.realpath(here), _name_role(here)
        # A folder is walked again if a link to it names another split or collection.
        if seen in visited or _leads_up(here, folder):
            folders.clear()
            continue
        visited.add(seen)
        folders[:] = sorted(name for name in folders if not name.startswith(HIDDEN))
        for name in files:
            if fnmatch(name, pattern) and not name.startswith(HIDDEN):
                yield Path(here, name)


def _name_role(here: str) -> tuple[str, ...]:
    """Return the names of the last folders of the path `here`, last first: at most DEEPEST, and
    only while they name a collection or a split (SPEAKING)."""
    last = reversed(Path(os.path.abspath(here)).parts[-DEEPEST:])  # noqa: PTH100
    return tuple(takewhile(SPEAKING.__contains__, last))


def _leads_up(here: str, top: Path) -> bool:
    """Return True if `here` is a link to one of its parent folders: a walk would never end."""
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
