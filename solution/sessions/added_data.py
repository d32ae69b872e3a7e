"""The training data of a notebook that adds graphs of its own to the bundled sample."""

import shutil
from collections.abc import Sequence
from pathlib import Path

from solution.data.folders import SAMPLE


def add_to_sample(paths: Sequence[Path], root: Path, folder: Path) -> Path:
    """Make `folder` hold the sample and these files, and nothing else; returns it.

    What an earlier session learned from here is removed: it may be kept aside in this one.

    Args:
        paths: npz files below `root`, at places as those of the sample.
    """
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(SAMPLE, folder)
    for path in paths:
        target = folder / path.relative_to(root)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)
    return folder
