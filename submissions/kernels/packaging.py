"""Pack this project, and packages that Kaggle's image lacks, into a dataset for offline install.

    FOLDER/
        dataset-metadata.json       for the kaggle CLI
        fastslow_install.py         which a notebook runs first
        fast-or-slow-wheels.json    the commit, and the SHA-256 of every wheel
        *.whl                       this project as committed, and its requirements

The wheels are for the image's Python version. pip installs from the folder only packages that are
missing in the image or too old; large packages that the image has are never packed.
"""

import hashlib
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from solution.system.errors import InputError
from solution.system.files import checksum, replace_folder, write_json
from solution.system.progress import console
from submissions.calls import stopped_by_signals
from submissions.credentials import redact
from submissions.kernels import installing
from submissions.kernels.datasets import write_metadata
from submissions.provenance import PROJECT, SourceTree

PROJECT_NAME = "fast-or-slow"
SLUG = "fast-or-slow-wheels"
# stands for the user's name; a push replaces it
PLACEHOLDER = "INSERT_USERNAME"
# packages of Kaggle's image (its tests import them: github.com/Kaggle/docker-python), never packed
IN_THE_IMAGE = {"torch", "numba", "numpy", "scipy", "lightgbm", "matplotlib", "polars", "optuna"}
UNPACKED = ("tests/", "benchmarks/", "notebooks/")  # folders that are not in the wheel
PLATFORMS = ("manylinux_2_28_x86_64", "manylinux_2_17_x86_64", "manylinux2014_x86_64")


@dataclass(frozen=True)
class Package:
    """The dataset folder with the project's wheels, and the commit that they were built from."""

    folder: Path
    commit: str  # the commit, with a suffix -dirty-HASH if there were uncommitted changes
    python: str
    wheels: dict[str, str]  # SHA-256 of each wheel, by file name

    @property
    def megabytes(self) -> float:
        return sum((self.folder / name).stat().st_size for name in self.wheels) / 1e6


def package(tree: SourceTree, folder: Path, python: str) -> Package:
    """Build the dataset folder of the tree's code for a Python version such as 3.12. Raises
    InputError if the code is not in a git checkout, a wheel is not available, or the folder has
    other contents than an older package."""
    if not tree.commit:
        why = tree.defect or "no git checkout"
        raise InputError(f"{PROJECT}: {why}, so there is no commit to pack. Clone it.")
    _check_place(folder)
    commit = name_commit(tree)
    # resolve: if `folder` is a link, replace the folder behind it
    with replace_folder(folder.resolve()) as temporary:
        with console.status("Building the wheel of this project"):
            _build_wheel(commit, temporary)
        with console.status("Fetching the wheels of what it needs"):
            _fetch_wheels(list_needs(python), python, temporary)
        wheels = {path.name: checksum(path) for path in sorted(temporary.glob("*.whl"))}
        record = {"project": PROJECT_NAME, "commit": commit, "python": python, "wheels": wheels}
        write_json(record, temporary / installing.MANIFEST)
        shutil.copyfile(installing.__file__, temporary / installing.SCRIPT)
        write_metadata(temporary, PLACEHOLDER, SLUG)
    return Package(folder, commit, python, wheels)


def provide_package(tree: SourceTree, folder: Path, python: str) -> Package:
    """Return the package in `folder` if it has the tree's code; else build a new one there."""
    try:
        found = json.loads((folder / installing.MANIFEST).read_text(encoding="utf-8"))
        kept = Package(folder, found["commit"], found["python"], found["wheels"])
        is_whole = all(checksum(folder / name) == value for name, value in kept.wheels.items())
    except (OSError, ValueError, KeyError):
        return package(tree, folder, python)
    if is_whole and (kept.commit, kept.python) == (name_commit(tree), python):
        return kept
    return package(tree, folder, python)


def _check_place(folder: Path) -> None:
    """Raise InputError if the folder holds anything but an older package."""
    if not folder.exists() or (folder / installing.MANIFEST).is_file():
        return
    if not folder.is_dir() or any(folder.iterdir()):
        raise InputError(
            f"{folder}: expected an older package, with {installing.MANIFEST} in it, or nothing; "
            "found other files, which would be deleted. Move them away, or name another folder "
            "in FASTSLOW_WHEELS."
        )


def name_commit(tree: SourceTree) -> str:
    """Return the commit, with a hash of the difference if there are uncommitted changes."""
    if not tree.changed:
        return tree.commit
    return f"{tree.commit}-dirty-{hashlib.sha256(tree.difference.encode()).hexdigest()[:8]}"


def list_needs(python: str) -> list[str]:
    """Return NAME==VERSION of every requirement that the image may lack. The versions are installed
    in this environment, so a kernel runs the packages that were tested here."""
    needed: dict[str, str] = {}
    waiting = [PROJECT_NAME]
    while waiting:
        name = canonicalize_name(waiting.pop())
        if name in needed or name in IN_THE_IMAGE:
            continue
        try:
            found = metadata.distribution(name)
        # not installed here, because only the image's Python version requires it: take any version
        except metadata.PackageNotFoundError:
            needed[name] = name
            continue
        needed[name] = f"{name}=={found.version}"
        waiting += _required_by(found, python)
    return sorted(pinned for name, pinned in needed.items() if name != PROJECT_NAME)


def _required_by(found: metadata.Distribution, python: str) -> list[str]:
    image = {
        "python_version": python,
        "python_full_version": f"{python}.0",
        "sys_platform": "linux",
        "platform_system": "Linux",
        "platform_machine": "x86_64",
        "os_name": "posix",
        "extra": "",
    }
    required = [Requirement(text) for text in found.requires or []]
    return [item.name for item in required if item.marker is None or item.marker.evaluate(image)]


def _build_wheel(commit: str, into: Path) -> None:
    """Build the project's wheel from a copy, so that no files of another build get into it."""
    listed = subprocess.run(
        ["git", "-C", str(PROJECT), "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        capture_output=True,
        check=True,
    )
    with tempfile.TemporaryDirectory() as name:
        copy = Path(name)
        for path in map(os.fsdecode, filter(None, listed.stdout.split(b"\0"))):
            if (PROJECT / path).is_file() and not path.startswith(UNPACKED):
                (copy / path).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(PROJECT / path, copy / path)
        (copy / installing.COMMIT_FILE).write_text(f"{commit}\n", encoding="utf-8")
        _pip("wheel", "--no-deps", "--wheel-dir", str(into), str(copy))


def _fetch_wheels(needs: list[str], python: str, into: Path) -> None:
    machine = [] if platform.system() == "Darwin" else [f"linux_{platform.machine()}"]
    where = [option for name in (*PLATFORMS, *machine) for option in ("--platform", name)]
    target = ["--python-version", python, "--implementation", "cp", *where]
    _pip("download", "--no-deps", "--only-binary=:all:", *target, "--dest", str(into), *needs)


def _pip(*arguments: str) -> None:
    command = [sys.executable, "-m", "pip", *arguments, "--quiet", "--disable-pip-version-check"]
    with stopped_by_signals():
        done = subprocess.run(command, capture_output=True, text=True, errors="replace")
    if done.returncode:
        words = [line for line in done.stderr.splitlines() if "ERROR" in line]
        said = redact(" ".join(words[-3:] or done.stderr.splitlines()[-1:]))
        raise InputError(
            f"pip {arguments[0]} failed: {said} Check the network and pip's index, then try again."
        )
