"""What a notebook installs first: whole, of the pushed commit, from the attached wheels alone."""

import json
import shutil
import subprocess
import zipfile
from pathlib import Path

import pytest

from solution.system.files import checksum
from submissions.kernels.installing import COMMIT_FILE, MANIFEST, SCRIPT, InstallError, install
from submissions.kernels.packaging import IN_THE_IMAGE, list_needs
from tests.notebooks.conftest import Day
from tests.notebooks.sandbox import make_image


@pytest.fixture
def wheels(day: Day, tmp_path: Path) -> Path:
    """The dataset as it is attached to a kernel."""
    for name, data in day.wheels.items():
        (tmp_path / name).write_bytes(data)
    return tmp_path


def find_ours(wheels: Path) -> Path:
    (found,) = wheels.glob("fast_or_slow-*.whl")
    return found


def test_what_is_needed_is_pinned_and_nothing_large() -> None:
    needs = list_needs("3.12")
    names = {need.partition("==")[0] for need in needs}
    assert {"torch-geometric", "isal", "typer", "xxhash"} <= names
    assert not names & (IN_THE_IMAGE | {"fast-or-slow", "triton", "pytest"})
    assert all("==" in need for need in needs)


def test_damage_is_found_before_anything_is_installed(wheels: Path) -> None:
    with pytest.raises(InstallError, match="this notebook was pushed with 0123"):
        install(wheels, "0123")
    ours = find_ours(wheels)
    data = ours.read_bytes()
    ours.write_bytes(data[:-1])
    with pytest.raises(InstallError, match="is not what was packed"):
        install(wheels)
    ours.unlink()
    with pytest.raises(InstallError, match="this wheel is missing"):
        install(wheels)


@pytest.mark.parametrize("wheel", ["../evil.whl", "/tmp/evil.whl", "a/b.whl", ".."])
def test_a_wheel_whose_name_leads_elsewhere_is_refused(tmp_path: Path, wheel: str) -> None:
    manifest = {"project": "mine", "commit": "0123", "wheels": {wheel: "0" * 64}}
    (tmp_path / MANIFEST).write_text(json.dumps(manifest))
    with pytest.raises(InstallError, match="expected a file's name alone"):
        install(tmp_path, "0123")


def test_what_the_image_lacks_is_named(wheels: Path, image: Path) -> None:
    """pip's own words, and what they mean."""
    (wheels / MANIFEST).write_text(
        (wheels / MANIFEST).read_text().replace('"project": "fast-or-slow"', '"project": "other"')
    )
    done = subprocess.run([image, wheels / SCRIPT], capture_output=True, text=True)
    assert done.returncode != 0
    assert "other" in done.stderr
    assert "missing in Kaggle's image" in done.stderr


def show_commit(image: Path) -> str:
    """That of what is installed there, and the file that says so."""
    code = "import solution.system.commit as c; print(c.read_commit(), c.__file__)"
    command = [image, "-I", "-c", code]  # -I: whatever PYTHONPATH says
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def change_commit(wheels: Path, commit: str) -> None:
    """Let the dataset be of another commit, and its wheel of the same version as before."""
    ours = find_ours(wheels)
    with zipfile.ZipFile(ours) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(ours, "w") as archive:
        for name, data in {**files, COMMIT_FILE: commit.encode()}.items():
            archive.writestr(name, data)
    manifest = json.loads((wheels / MANIFEST).read_text())
    manifest["wheels"][ours.name] = checksum(ours)
    (wheels / MANIFEST).write_text(json.dumps({**manifest, "commit": commit}))


def test_a_wheel_that_arrives_unpacked_is_installed(wheels: Path, tmp_path: Path) -> None:
    """Once; one of another commit takes its place, though its version is the same."""
    image = make_image(tmp_path / "fresh")
    ours = find_ours(wheels)
    packed = ours.read_bytes()
    with zipfile.ZipFile(ours) as archive:
        archive.extractall(ours.with_suffix(""))
    ours.unlink()
    stamps = []
    for _ in range(2):
        subprocess.run([image, wheels / SCRIPT], check=True)
        commit, _, place = show_commit(image).strip().partition(" ")
        assert commit == json.loads((wheels / MANIFEST).read_text())["commit"]
        assert Path(place).is_relative_to(image.parent.parent)
        stamps.append(Path(place).stat().st_ctime_ns)
    assert stamps[0] == stamps[1]
    shutil.rmtree(ours.with_suffix(""))
    ours.write_bytes(packed)
    change_commit(wheels, "0123")
    subprocess.run([image, wheels / SCRIPT], check=True)
    assert show_commit(image).startswith("0123 ")
