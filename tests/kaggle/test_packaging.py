"""The folder of the package: no file of the user is replaced."""

from pathlib import Path

import pytest

from tests.kaggle.desk import Desk, check
from tests.kaggle.test_kernels import FAILED, NAME


@pytest.mark.parametrize("command", [("package",), ("push", NAME)])
@pytest.mark.parametrize("is_folder", [True, False])
def test_a_folder_of_the_users_is_not_deleted(
    desk: Desk, tmp_path: Path, command: tuple[str, ...], *, is_folder: bool
) -> None:
    """Nor is a file; the message names it, and what to do."""
    photos = tmp_path / "photos"
    mine = photos / "mine.jpg" if is_folder else photos
    mine.parent.mkdir(exist_ok=True)
    mine.write_bytes(b"mine")
    desk.more["FASTSLOW_WHEELS"] = str(photos)
    check(
        desk.call("kernels", *command, "--allow-dirty"),
        FAILED,
        f"{photos}: expected",
        "FASTSLOW_WHEELS",
    )
    assert mine.read_bytes() == b"mine"
