"""An imitation of a Kaggle kernel: its image, its folders, its variables, no network.

The image is an interpreter with what Kaggle's has, such as torch, and without what it lacks: the
one that FASTSLOW_TEST_PYTHON names, or a Python 3.12 on the PATH that has what is never packed and
ipykernel, or else this environment's.
"""

import hashlib
import json
import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from solution.data.folders import SAMPLE, GraphFile, find_files
from submissions.kernels.notebooks import execute
from submissions.kernels.packaging import IN_THE_IMAGE

LACKING = ("__editable__", "fast_or_slow", "isal", "ipywidgets", "kaggle", "pymetis",
           "safetensors", "torch_geometric", "xxhash")  # fmt: skip
COMPETITION = "predict-ai-model-runtime"
NEEDED = sorted([*IN_THE_IMAGE, "ipykernel"])
LOOK = f"""
import importlib.util, sys, sysconfig
print(sysconfig.get_path("purelib"))
sys.exit(any(importlib.util.find_spec(name) is None for name in {NEEDED}))
"""
NO_NETWORK = """
import socket, sys

def refuse(event, arguments):
    if event == "socket.getaddrinfo":
        raise socket.gaierror("there is no network in this kernel")
    if event == "socket.connect" and isinstance(arguments[1], tuple):
        raise OSError(101, "there is no network in this kernel")

sys.addaudithook(refuse)
"""


@cache
def find_interpreter() -> tuple[str, Path]:
    """The interpreter of the image, and the folder of its packages."""
    for python in (os.environ.get("FASTSLOW_TEST_PYTHON"), shutil.which("python3.12")):
        if python:
            done = subprocess.run([python, "-c", LOOK], capture_output=True, text=True)
            if done.returncode == 0:
                return python, Path(done.stdout.strip())
    return sys.executable, Path(sysconfig.get_path("purelib"))


def find_version() -> str:
    """That of the image's interpreter, such as 3.12."""
    code = "import sys; print('%d.%d' % sys.version_info[:2])"
    command = [find_interpreter()[0], "-c", code]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def make_image(folder: Path) -> Path:
    """A fresh environment that sees the image's packages; returns its interpreter."""
    python, packages = find_interpreter()
    seen = folder / "image"
    seen.mkdir(parents=True)
    for path in packages.iterdir():
        if not path.name.startswith(LACKING) and path.suffix != ".pth":
            (seen / path.name).symlink_to(path)
    subprocess.run([python, "-m", "venv", "--without-pip", folder / "venv"], check=True)
    packages = next((folder / "venv" / "lib").glob("python3.*")) / "site-packages"
    (packages / "image.pth").write_text(f"{seen}\n")
    (packages / "sitecustomize.py").write_text(NO_NETWORK)
    return folder / "venv" / "bin" / "python"


def choose_files() -> list[GraphFile]:
    """Of the sample all layout graphs, and every sixth kernel: enough for all that is shown."""
    files = find_files(SAMPLE)
    kernels = [file for file in files if file.collection.kind == "tile"]
    return [*(file for file in files if file.collection.kind != "tile"), *kernels[::6]]


def settle(python: Path) -> dict[str, str]:
    """What the environment of a kernel of this image says however it is begun."""
    return {"PATH": f"{python.parent}:/usr/bin:/bin", "OMP_NUM_THREADS": "1", "LANG": "C.UTF-8"}


@dataclass
class Session:
    """One session of a kernel; `mount` first, then `run`.

    Attributes:
        begin: the words that begin a kernel; none: those that everybody has.
    """

    folder: Path
    python: Path
    begin: tuple[str | Path, ...] = ()

    @property
    def working(self) -> Path:
        """What is kept as output."""
        return self.folder / "working"

    def mount(self, mount: str, source: Path | Mapping[str, bytes]) -> None:
        """Put a folder, or files, at a path of the input tree, such as datasets/tester/wheels."""
        target = self.folder / "input" / mount
        if isinstance(source, Path):
            shutil.copytree(source, target)
            return
        target.mkdir(parents=True)
        for name, data in source.items():
            (target / name).write_bytes(data)

    def mount_competition(self, mount: str) -> None:
        """The sample, with fewer kernels, in the shape of the competition's download."""
        for file in choose_files():
            target = self.folder / "input" / mount / "npz_all" / file.path.relative_to(SAMPLE)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file.path, target)

    def environment(self) -> dict[str, str]:
        """The variables of a kernel."""
        for name in ("home", "tmp", "working"):
            (self.folder / name).mkdir(exist_ok=True)
        return {
            "HOME": str(self.folder / "home"),
            "TMPDIR": str(self.folder / "tmp"),
            "FASTSLOW_INPUT": str(self.folder / "input"),
            "KAGGLE_KERNEL_RUN_TYPE": "Batch",
            "KAGGLE_URL_BASE": "https://www.kaggle.com",
            **settle(self.python),
        }

    def run(self, notebook: Mapping[str, Any]) -> dict[str, Any]:
        """Execute the notebook as a kernel does; afterwards the inputs must be as they were."""
        inputs = self.folder / "input"
        for path in [inputs, *inputs.rglob("*")]:
            path.chmod(0o555 if path.is_dir() else 0o444)
        before = fingerprint(inputs)
        environment = self.environment()
        specification = self.folder / "jupyter" / "kernels" / "image"
        specification.mkdir(parents=True)
        begin = self.begin or (self.python, "-m", "ipykernel_launcher")
        command = [*map(str, begin), "-f", "{connection_file}"]
        values = {"argv": command, "display_name": "image", "language": "python"}
        (specification / "kernel.json").write_text(json.dumps(values))
        kept = os.environ.get("JUPYTER_PATH")
        os.environ["JUPYTER_PATH"] = str(self.folder / "jupyter")
        try:
            return execute(notebook, self.working, environment, "image")
        finally:
            os.environ.pop("JUPYTER_PATH")
            if kept is not None:
                os.environ["JUPYTER_PATH"] = kept
            assert fingerprint(inputs) == before, "the input tree is read-only"
            for path in [inputs, *inputs.rglob("*")]:
                if path.is_dir():
                    path.chmod(0o755)  # so that pytest can delete it

    def outputs(self) -> dict[str, bytes]:
        """What Kaggle keeps of the session."""
        return {
            path.relative_to(self.working).as_posix(): path.read_bytes()
            for path in sorted(self.working.rglob("*"))
            if path.is_file()
        }


def fingerprint(folder: Path) -> str:
    """A hash of the names and contents of all files."""
    total = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        total.update(path.relative_to(folder).as_posix().encode())
        if path.is_file():
            total.update(path.read_bytes())
    return total.hexdigest()


def read_text(notebook: Mapping[str, Any]) -> str:
    """All that the cells printed or showed as text."""
    parts = []
    for cell in notebook["cells"]:
        for output in cell.get("outputs", []):
            parts += [output.get("text", ""), output.get("data", {}).get("text/plain", "")]
    return "".join("".join(part) for part in parts)
