"""Install this project in a kernel, without a network.

A notebook runs a copy of this file, which is in the attached dataset with the wheels, before its
imports. It needs only the standard library and pip. Kaggle may have unpacked the wheels.
"""

import hashlib
import importlib
import json
import shutil
import subprocess
import sys
import tempfile
from importlib import metadata
from pathlib import Path

SCRIPT = "fastslow_install.py"  # name of this file's copy in the dataset
MANIFEST = "fast-or-slow-wheels.json"
COMMIT_FILE = "solution/system/commit.txt"  # file with the commit, in this project's wheel


class InstallError(Exception):
    """Raised if the attached dataset cannot be installed. Not a SystemExit, which would only end
    the notebook's cell."""


def install(folder: Path, commit: str = "") -> str:
    """Install from the wheels in `folder`; return a sentence that names project and commit. Raises
    InstallError if the wheels were not built from `commit`. An empty `commit` allows any."""
    manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    if commit and manifest["commit"] != commit:
        raise InstallError(
            f"{folder}: contains the code of commit {manifest['commit']}, but this notebook was "
            f"pushed with {commit}. The dataset was changed or was not ready: push again."
        )
    with tempfile.TemporaryDirectory() as name:
        for wheel, digest in manifest["wheels"].items():
            _provide(folder, wheel, digest, Path(name))
        project, here = manifest["project"], _find_commit(manifest["project"])
        if here != manifest["commit"]:
            _pip(name, project)  # installs only packages that are missing or too old
            if here is not None:  # pip keeps another commit of the same version: replace it
                _pip(name, "--force-reinstall", "--no-deps", project)
    importlib.invalidate_caches()
    return f"{project} of commit {manifest['commit']}, from {folder}"


def _find_commit(project: str) -> str | None:
    """Return the commit of the installed project. The result is None if the project is not
    installed, and empty if its commit is unknown."""
    try:
        packed = metadata.distribution(project).locate_file(COMMIT_FILE)
    except metadata.PackageNotFoundError:
        return None
    path = Path(str(packed))
    return path.read_text(encoding="utf-8").strip() if path.is_file() else ""


def _provide(folder: Path, wheel: str, digest: str, target: Path) -> None:
    """Put one wheel into `target`: packed again if Kaggle unpacked it, else as a link. Raises
    InstallError if the wheel is missing, or if the SHA-256 of a linked wheel is not `digest`."""
    # the dataset chooses this name, which must not lead out of the folder
    if Path(wheel).name != wheel or not wheel.endswith(".whl"):
        raise InstallError(f"{folder}: expected the file name of a wheel, found {wheel!r}.")
    path = folder / wheel
    unpacked = next((p for p in (path, path.with_suffix("")) if p.is_dir()), None)
    if unpacked is not None:
        made = shutil.make_archive(str(target / path.stem), "zip", unpacked)
        Path(made).rename(target / wheel)
    elif not path.is_file():
        raise InstallError(f"{path}: this wheel is missing. Push again: the upload was cut short.")
    elif hashlib.sha256(path.read_bytes()).hexdigest() != digest:
        raise InstallError(f"{path}: has another checksum. Push again: the upload was cut short.")
    else:
        (target / wheel).symlink_to(path.resolve())


def _pip(wheels: str, *what: str) -> None:
    command = [sys.executable, "-m", "pip", "install", "--no-index", "--find-links", wheels]
    # Skip checking the image's packages for conflicts, which would take half of the time.
    options = ["--quiet", "--no-input", "--no-compile", "--no-warn-conflicts"]
    options += ["--disable-pip-version-check"]
    done = subprocess.run([*command, *options, *what], capture_output=True, text=True)
    if done.returncode:
        raise InstallError(
            f"pip could not install {what[-1]} from the attached wheels alone. It said:\n"
            f"{done.stderr.strip()}\nA package it names is missing in Kaggle's image or too old."
        )


if __name__ == "__main__":
    print(install(Path(__file__).parent, globals().get("COMMIT", "")))
