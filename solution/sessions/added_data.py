"""Make the training data of a notebook that adds its graphs to the bundled sample."""

import shutil
from collections.abc import Sequence
from pathlib import Path

from solution.data.folders import SAMPLE


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
