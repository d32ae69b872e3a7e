"""Pack measured programs as a zip file for a release: equal data give equal bytes.

    python -m benchmarks.release FOLDER --readme FILE --out FILE.zip

The zip file has one folder, named like FOLDER, with the npz files in the folder structure of the
competition, the sample submission, README.md (the given one, with a table of the contents) and
SHA256SUMS. `sha256sum --check SHA256SUMS` verifies the unpacked files.
"""

import argparse
import hashlib
import shutil
import zipfile
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl

from solution.analysis.data_check import check_files
from solution.data.folders import GraphFile, choose_sample, find_files
from solution.data.summaries import join_defects
from solution.domain.collection import COLLECTIONS, SAMPLE_SUBMISSION, SPLITS
from solution.domain.graph import warn_of_estimates
from solution.system.errors import InputError
from solution.system.files import checksum, replace_file
from solution.system.terminal import say
from solution.system.wording import count
from solution.system.zips import describe_member

README, SUMS = "README.md", "SHA256SUMS"


@dataclass(frozen=True)
class Release:
    """A zip file that `pack` has written, and what identifies its data."""

    path: Path
    graphs: int
    data_digest: str  # hash of SHA256SUMS without README.md: it identifies the data

    def describe(self) -> str:
        """Return the text to publish with the zip file."""
        return (
            f"{self.path}: {count(self.graphs, 'graph')}, {self.path.stat().st_size:,} bytes.\n"
            f"SHA-256 of the file: {checksum(self.path)}\n"
            f"SHA-256 of its {SUMS}, which names the data: {self.data_digest}"
        )


def pack(folder: Path, readme: Path, out: Path) -> Release:
    """Check every npz file of a folder, and pack all files into a zip.

    Args:
        folder: data in any folder structure that find_files knows.
        readme: Markdown on how the data were measured; it must not link to other files.
        out: path of the zip; an existing file is replaced.

    Raises InputError if there is no data, a file is defective, or `readme` cannot be read.
    """
    files = find_files(folder)
    summaries, defects, _ = check_files(files)
    if defects:
        raise InputError(
            f"{folder}: nothing is packed, because {count(len(defects), 'file')} cannot be used:\n"
            f"{join_defects(defects)}"
        )
    members = {place_of(file): file.path for file in files}
    sample = choose_sample(folder)
    if sample is not None:
        members[SAMPLE_SUBMISSION] = sample
    sums = "".join(f"{checksum(path)}  {name}\n" for name, path in sorted(members.items()))
    words = f"{_read(readme).rstrip()}\n\n{describe_contents(summaries)}"
    with replace_file(out) as temporary, zipfile.ZipFile(temporary, "w") as archive:
        top = folder.resolve().name
        for name, text in ((README, words), (SUMS, sums)):
            archive.writestr(describe_member(f"{top}/{name}"), text.encode())
        for name, path in sorted(members.items()):
            member = archive.open(describe_member(f"{top}/{name}"), "w")
            with path.open("rb") as file, member:
                shutil.copyfileobj(file, member)
    return Release(out, len(files), hashlib.sha256(sums.encode()).hexdigest())


def place_of(file: GraphFile) -> str:
    """Return a graph's path in the competition's download."""
    return f"npz/{file.collection.folder}/{file.split}/{file.path.name}"


def describe_contents(summaries: pl.DataFrame) -> str:
    """Return the section of the README that describes the packed files, as Markdown.

    Args:
        summaries: a row per graph, as check_files returns it.
    """
    lines = [
        "## What is in this file",
        "",
        f"| collection | {' / '.join(SPLITS)} | configurations | median slowest / fastest |",
        "|---|---|---|---|",
    ]
    for name in (collection.name for collection in COLLECTIONS):
        rows = summaries.filter(collection=name)
        if rows.is_empty():
            continue
        graphs = " / ".join(str(len(rows.filter(split=split))) for split in SPLITS)
        spreads = rows["spread"].drop_nulls().to_numpy()  # null for graphs without labels
        shown = f"{np.median(spreads):.2f}" if len(spreads) else "no labels"
        lines.append(f"| {name} | {graphs} | {rows['configs'].sum():,} | {shown} |")
    labelled = summaries.filter("labelled")
    lines += [
        "",
        f"{count(len(summaries), 'graph')}, of which {len(labelled):,} have labels. "
        f"{_describe_splits(summaries)} {warn_of_estimates(labelled['label_source'])}".rstrip(),
        "",
    ]
    return "\n".join(lines)


def _describe_splits(summaries: pl.DataFrame) -> str:
    """Say whether the test graphs' architectures also occur in the training graphs."""
    tests: dict[str, list[str]] = defaultdict(list)
    known: dict[str, set[str]] = defaultdict(set)
    for name, split, architecture in summaries.select(
        "collection", "split", "architecture"
    ).iter_rows():
        if split == "test":
            tests[name].append(architecture)
        else:
            known[name].add(architecture)
    if not tests:
        return "None is of the test split."
    shared = ", ".join(
        f"{name} {sum(one in known[name] for one in found)} of {len(found)}"
        for name, found in tests.items()
    )
    return f"Test graphs whose architecture is in train or valid as well: {shared}."


def _read(readme: Path) -> str:
    try:
        return readme.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(
            f"{readme}: expected a text file on how the data were measured: {error}."
        ) from error


def main() -> None:
    """Pack the archive of a release, and print the text to publish with it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="with the npz files")
    parser.add_argument("--readme", type=Path, required=True, help="how they were measured")
    parser.add_argument("--out", type=Path, required=True, help="the zip")
    options = parser.parse_args()
    try:
        say(pack(options.folder, options.readme, options.out).describe())
    except InputError as error:
        raise SystemExit(f"Error: {error}") from error


if __name__ == "__main__":
    main()
