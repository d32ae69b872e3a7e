"""Find data and bundles attached to a notebook; add its graphs to the bundled sample."""

import os
import shutil
from collections.abc import Mapping, Sequence, Set
from pathlib import Path

from solution.data.folders import SAMPLE, find_files, find_roots
from solution.serving.archive import ZIP, is_archive
from solution.serving.record import RECORD as BUNDLE_RECORD
from solution.sessions.record import KERNEL_RECORD
from solution.store.store import RECORD as STORE_RECORD
from solution.store.store import is_store
from solution.system.errors import InputError

PACKAGED = str(Path("solution", "serving"))  # end of the path of this project's bundle


def find_inputs() -> Path:
    """Return the folder in which Kaggle mounts a notebook's inputs."""
    return Path(os.environ.get("FASTSLOW_INPUT") or "/kaggle/input")


def find_attached_data(inputs: Path, *, prepared: bool = True) -> Path | None:
    """Return a store below `inputs`, otherwise a folder with npz files; None if there is neither.

    The sample inside a copy of this project is ignored. If several folders have data, the one that
    contains the data of all others is returned; InputError if none does.

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
    files = {root: find_files(root) for root in others}
    return _choose({r: {(f.collection.name, f.split, f.name) for f in files[r]} for r in others})


def _choose(contents: Mapping[Path, Set[object]]) -> Path | None:
    """Return the first folder with the contents of all others; None without any folders."""
    everything = frozenset[object]().union(*contents.values())
    for folder, held in contents.items():
        if held == everything:
            return folder
    if contents:
        raise InputError(
            f"{', '.join(map(str, contents))}: have different data, but only one folder can be "
            "used. Name it in FASTSLOW_DATA, or put all into one folder."
        )
    return None


def find_attached_bundles(inputs: Path) -> list[Path]:
    """Return the bundles below `inputs`: zip files, and folders, because Kaggle unpacks some zips.

    Bundles in outputs of notebooks and in copies of this project are left out.
    """
    found = []
    for here, folders, files in os.walk(inputs, followlinks=True):
        if KERNEL_RECORD in files or here.endswith(PACKAGED):
            folders.clear()
        elif BUNDLE_RECORD in files:
            folders.clear()
            found.append(Path(here))
        else:
            zips = [Path(here, name) for name in files if name.endswith(ZIP)]
            found += [path for path in zips if is_archive(path)]
    return sorted(found)


def add_to_sample(paths: Sequence[Path], root: Path, folder: Path) -> Path:
    """Replace `folder` by the sample and these npz files, and return it.

    The files are below `root` in the same subfolders as in the sample.
    """
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(SAMPLE, folder)
    for path in paths:
        target = folder / path.relative_to(root)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)
    return folder
