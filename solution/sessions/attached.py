"""Find what is attached to a notebook: data (npz files or a store) and bundles, at any mount
point.

Make the training data of a notebook that adds its graphs to the bundled sample.
"""

import os
import shutil
from collections.abc import Mapping, Sequence, Set
from pathlib import Path

from solution.data.folders import SAMPLE, GraphFile, find_files, find_roots
from solution.serving.archive import ZIP, is_archive
from solution.serving.record import RECORD as BUNDLE_RECORD
from solution.sessions.record import KERNEL_RECORD
from solution.store.store import RECORD as STORE_RECORD
from solution.store.store import is_store
from solution.system.errors import InputError

# the end of the path at which this project contains a bundle
OWN_BUNDLES = str(Path("solution", "serving"))


def find_inputs() -> Path:
    """Return the folder in which Kaggle mounts a notebook's inputs."""
    return Path(os.environ.get("FASTSLOW_INPUT") or "/kaggle/input")


def find_attached_data(inputs: Path, *, prepared: bool = True) -> Path | None:
    """Return a store below `inputs`, otherwise a folder with npz files; None if there is neither.

    The sample inside a copy or an unpacked wheel of this project is ignored. If several folders
    have data, the one that contains the data of all others is returned; InputError if none does,
    because part of the data would be left out.

    Args:
        prepared: whether a store is accepted; otherwise only npz files are.
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
    """Return the first folder that contains the contents of all others; None if there is no folder.

    Raises InputError if no folder does.
    """
    everything = frozenset[object]().union(*contents.values())
    for folder, held in contents.items():
        if held == everything:
            return folder
    if contents:
        raise InputError(
            f"{', '.join(map(str, contents))}: hold different data, but only one folder can be "
            "used. Name it in FASTSLOW_DATA, or put all into one folder."
        )
    return None


def find_attached_bundles(inputs: Path) -> list[Path]:
    """Return the bundles below `inputs`: zip files, and folders, because Kaggle unpacks some zips.

    Bundles in a notebook's outputs, and the bundle in an unpacked wheel of this project, are left
    out.
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


def add_to_sample(paths: Sequence[Path], root: Path, folder: Path) -> Path:
    """Fill `folder` with the sample and these files, remove everything else in it, and return it.

    Files of an earlier session are removed, because this session may hold them out.

    Args:
        paths: npz files below `root`, in the same subfolders as in the sample.
    """
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(SAMPLE, folder)
    for path in paths:
        target = folder / path.relative_to(root)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)
    return folder
