"""What is attached to a notebook: data, prepared or not, and bundles, wherever they are mounted."""

import os
from collections.abc import Mapping, Set
from pathlib import Path

from solution.data.folders import GraphFile, find_files, find_roots
from solution.serving.archive import ZIP, is_archive
from solution.serving.record import RECORD as BUNDLE_RECORD
from solution.sessions.record import KERNEL_RECORD
from solution.store.store import RECORD as STORE_RECORD
from solution.store.store import is_store
from solution.system.errors import InputError

OWN_BUNDLES = str(Path("solution", "serving"))  # where this project has one


def find_inputs() -> Path:
    """The tree of inputs of a kernel."""
    return Path(os.environ.get("FASTSLOW_INPUT") or "/kaggle/input")


def find_attached_data(inputs: Path, *, prepared: bool = True) -> Path | None:
    """A store below `inputs`; else the folder with npz files; None where there is none.

    What lies inside an unpacked wheel, or a copy, of this project is not data. Of several folders
    it is the one that holds what the others do; raises InputError where none does, for some of it
    would be left out.

    Args:
        prepared: whether a store serves; else it is passed over.
    """
    stores = [
        Path(here)
        for here, _, files in os.walk(inputs, followlinks=True)
        if prepared and "graphs.parquet" in files and is_store(Path(here))
    ]
    if stores:
        return _choose({store: {(store / STORE_RECORD).read_bytes()} for store in sorted(stores)})
    roots = find_roots(inputs)
    ours = {root for root in roots if root.parts[-3:-1] == ("solution", "data")}
    others = sorted(roots.keys() - ours, key=lambda root: (-roots[root], root))
    if len(others) == 1:
        return others[0]
    return _choose({root: {_name_graph(file) for file in find_files(root)} for root in others})


def _name_graph(file: GraphFile) -> tuple[str, str, str]:
    return file.collection.name, file.split, file.name


def _choose(contents: Mapping[Path, Set[object]]) -> Path | None:
    """The first folder that holds all that any of them does; None where there is no folder."""
    everything = frozenset[object]().union(*contents.values())
    for folder, held in contents.items():
        if held == everything:
            return folder
    if contents:
        raise InputError(
            f"{', '.join(map(str, contents))}: hold different data, of which one folder is used. "
            "Name it in FASTSLOW_DATA, or put all into one folder."
        )
    return None


def find_attached_bundles(inputs: Path) -> list[Path]:
    """Folders and zips of bundles below `inputs` that no notebook left there.

    Kaggle unpacks some zips. The bundle inside an unpacked wheel of this project does not count.
    """
    found = []
    for here, folders, files in os.walk(inputs, followlinks=True):
        is_passed_over = KERNEL_RECORD in files or here.endswith(OWN_BUNDLES)
        if is_passed_over or BUNDLE_RECORD in files:
            folders.clear()
        if BUNDLE_RECORD in files and not is_passed_over:
            found.append(Path(here))
        elif not is_passed_over:
            zips = [Path(here, name) for name in files if name.endswith(ZIP)]
            found += [path for path in zips if is_archive(path)]
    return sorted(found)
