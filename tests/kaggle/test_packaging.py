"""The folder of the package: it takes no place that is somebody else's."""

from pathlib import Path

import pytest

from tests.kaggle.place import Place
from tests.kaggle.test_kernels import FAILED, NAME


@pytest.mark.parametrize("command", [("package",), ("push", NAME)])
@pytest.mark.parametrize("is_folder", [True, False])
def test_a_folder_of_the_users_is_not_deleted(
    place: Place, tmp_path: Path, command: tuple[str, ...], *, is_folder: bool
) -> None:
    """Nor is a file; the message names it, and what to do."""
    photos = tmp_path / "photos"
    mine = photos / "mine.jpg" if is_folder else photos
    mine.parent.mkdir(exist_ok=True)
    mine.write_bytes(b"mine")
    place.more["FASTSLOW_WHEELS"] = str(photos)
    done = place.call("kernels", *command, "--allow-dirty")
    assert (done.code, f"{photos}: expected" in done.words) == (FAILED, True), done.words
    assert "FASTSLOW_WHEELS" in done.words
    assert mine.read_bytes() == b"mine"
