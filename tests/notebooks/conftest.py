"""One day on Kaggle: every notebook is pushed, executed as it was pushed, and pulled, once.

What Kaggle does in between happens here: the uploaded dataset and the pushed source, and nothing
else of this project, go into a sandbox; what it leaves is what the stand-in offers as outputs.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from ensembles import DEFAULT_RECIPE
from solution.system.processes import STACK
from submissions.kernels.notebooks import list_notebooks
from tests.kaggle.desk import USER, Desk, Done
from tests.kaggle.server import KaggleServer
from tests.notebooks.sandbox import COMPETITION, Session, find_version, make_image, settle
from tests.processes import KERNEL_LIBRARIES, KernelServer

WHEELS = f"{USER}/fast-or-slow-wheels"
TRAINING = ("2-train-layout", "3-train-tile-and-lightgbm")
MEASURING = "6-measure-your-own"
QUICK = ("LIMIT=true", "NUM_FOLDS=2")
FEW = ("FAMILY=mlp", "COLLECTION=layout:xla:random", "COUNT=2", "HELD_OUT=1", "CONFIGS=8",
       "MINUTES=8", "KEEP_FLAT=true")  # fmt: skip
PROGRAM = Path(__file__).with_name("kernel_program.py")
LAST = "4-ensemble-and-submit"
BUNDLE = "fast-or-slow-bundle-day"


def slug(name: str) -> str:
    """What Kaggle calls the notebook."""
    return f"fast-or-slow-{name}"


@dataclass
class Day:
    """What happened, by the names of the notebooks."""

    desk: Desk
    pushed: dict[str, Done] = field(default_factory=dict)
    pulled: dict[str, Done] = field(default_factory=dict)
    executed: dict[str, dict[str, Any]] = field(default_factory=dict)
    sessions: dict[str, Session] = field(default_factory=dict)
    alone: Session | None = None  # of the last notebook with a bundle, and without any run

    def outputs(self, name: str) -> Path:
        """Where a pull puts the outputs of a notebook."""
        return self.desk.folder / "runs" / name

    @property
    def wheels(self) -> dict[str, bytes]:
        """The dataset as it was uploaded last."""
        return self.desk.world.datasets[WHEELS][-1]


@contextmanager
def open_kernels(python: Path) -> Iterator[KernelServer]:
    """Forks kernels of an image, whose workers are forked as well."""
    settings = settle(python)
    server = KernelServer(PROGRAM, KERNEL_LIBRARIES, workers=STACK, python=python, **settings)
    try:
        yield server
    finally:
        server.close()


@pytest.fixture(scope="session")
def image(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of a fresh kernel image."""
    return make_image(tmp_path_factory.mktemp("image"))


@pytest.fixture(scope="session")
def kernels_of_image(image: Path) -> Iterator[KernelServer]:
    """Forks kernels of the image."""
    with open_kernels(image) as server:
        yield server


@pytest.fixture(scope="session")
def day(
    tmp_path_factory: pytest.TempPathFactory, image: Path, kernels_of_image: KernelServer
) -> Iterator[Day]:
    """The whole day; mounts are of the old style and of the new one by turns."""
    folder = tmp_path_factory.mktemp("day")
    begin = (kernels_of_image.stand_in,)
    server = KaggleServer()
    found = Day(Desk(folder, server))
    found.desk.more |= {
        "FASTSLOW_WHEELS": str(folder / "wheels"),
        "FASTSLOW_KERNEL_PYTHON": find_version(),
        "FASTSLOW_UPLOAD_SECONDS": "120",
        "FASTSLOW_DOWNLOAD_SECONDS": "120",
    }
    pack(found.desk.more)
    try:
        for number, notebook in enumerate(list_notebooks()):
            # A short name: where the temporary files' is long, workers are not forked.
            session = Session(folder / str(number), image, begin)
            live(found, notebook.name, session, old=number % 2 == 0)
        found.alone = predict(found, Session(folder / "alone", image, begin))
        yield found
    finally:
        server.stop()


def pack(settings: dict[str, str]) -> None:
    """`fastslow kernels package`, which is the one thing here that needs pip's index."""
    command = [str(Path(sys.executable).parent / "fastslow"), "kernels", "package", "--allow-dirty"]
    done = subprocess.run(command, env={**os.environ, **settings}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def live(day: Day, name: str, session: Session, *, old: bool) -> None:
    """Push the notebook, execute it, pull it."""
    quick = (*QUICK, f"RECIPE={DEFAULT_RECIPE}")  # a quick look trains another recipe
    values = {MEASURING: (*QUICK, *FEW), **dict.fromkeys(TRAINING, quick)}.get(name, ())
    options = [word for value in values for word in ("--set", value)]
    day.pushed[name] = day.desk.call("kernels", "push", name, "--allow-dirty", *options)
    assert day.pushed[name].code == 0, day.pushed[name].words
    kernel = day.desk.world.kernels[f"{USER}/{slug(name)}"]
    session.mount("fast-or-slow-wheels" if old else f"datasets/{WHEELS}", day.wheels)
    if kernel.saved[-1].get("competitionDataSources"):
        session.mount_competition(COMPETITION if old else f"competitions/{COMPETITION}")
    for source in kernel.saved[-1].get("kernelDataSources", []):
        mount = source.partition("/")[2] if old else f"notebooks/{source}"
        session.mount(mount, day.sessions[source.partition("/fast-or-slow-")[2]].working)
    day.executed[name], day.sessions[name] = session.run(kernel.notebook), session
    kernel.outputs = session.outputs()
    day.pulled[name] = day.desk.call("kernels", "pull", name)


def predict(day: Day, session: Session) -> Session:
    """Share the bundle that was pulled, push the last notebook with it, execute that.

    The wheels are in the image since the first session.
    """
    bundle = str(day.outputs(LAST) / "bundle.zip")
    for words in (
        ("share", bundle, "--name", "day"),
        ("push", LAST, "--allow-dirty", "--bundle", "day"),
    ):
        done = day.desk.call("kernels", *words)
        assert done.code == 0, done.words
    kernel = day.desk.world.kernels[f"{USER}/{slug(LAST)}"]
    assert kernel.saved[-1]["datasetDataSources"] == [WHEELS, f"{USER}/{BUNDLE}"]
    session.mount(f"datasets/{USER}/{BUNDLE}", day.desk.world.datasets[f"{USER}/{BUNDLE}"][-1])
    session.mount_competition(f"competitions/{COMPETITION}")
    session.run(kernel.notebook)
    return session
