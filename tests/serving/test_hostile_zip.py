"""A zip that is not what was packed gets one message, and nothing is unpacked beside it."""

import json
import stat
import zipfile
from pathlib import Path

import pytest

from solution.serving.archive import unpack, write_archive
from solution.serving.record import RECORD
from solution.system.errors import InputError
from tests.serving.test_hostile import PLACE, made, refused

__all__ = ["made"]  # a fixture


def test_a_zip_that_says_it_unpacks_to_more_than_there_is(made: Path, tmp_path: Path) -> None:
    path = write_archive(made, tmp_path / "made.zip")
    content = path.read_bytes()
    name = f"{PLACE}/model.safetensors".encode()
    size = (made / PLACE / "model.safetensors").stat().st_size.to_bytes(4, "little")
    central = content.rindex(name)
    head = content[:central].rindex(size + size)
    huge = (0xFFFFFFF0).to_bytes(4, "little")
    path.write_bytes(content[:head] + huge + huge + content[head + 8 :])
    refused(path, "bytes, expected|truncated")


def attack_zip(made: Path, path: Path, name: str, content: bytes = b"x", mode: int = 0) -> None:
    write_archive(made, path)
    with zipfile.ZipFile(path, "a") as archive:
        info = zipfile.ZipInfo(name)
        info.external_attr = mode << 16
        archive.writestr(info, content)


@pytest.mark.parametrize(
    ("name", "mode", "words"),
    [
        ("../escaped", 0, "leads out of the folder"),
        ("models/../../escaped", 0, "leads out of the folder"),
        ("/tmp/escaped", 0, "leads out of the folder"),
        ("C:\\escaped", 0, "leads out of the folder"),
        ("link", stat.S_IFLNK | 0o777, "is a link"),
        ("extra", 0, "not both in the zip and in its record"),
        ("models//twice", 0, "in another form"),
        ("models/", 0, "lists the folder 'models/'.* Make the zip with `fastslow pack`"),
    ],
)
def test_a_zip_with_more_in_it(
    name: str, mode: int, words: str, made: Path, tmp_path: Path
) -> None:
    path = tmp_path / "bad.zip"
    attack_zip(made, path, name, b"" if name.endswith("/") else b"/etc/passwd", mode)
    refused(path, words)
    (tmp_path / "here").mkdir()
    with pytest.raises(InputError):
        unpack(path, tmp_path / "here")
    assert not list(tmp_path.rglob("escaped"))


def test_a_zip_that_is_compressed_or_cut_or_none(made: Path, tmp_path: Path) -> None:
    path = write_archive(made, tmp_path / "made.zip")
    whole = path.read_bytes()
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(RECORD, json.dumps({"a": 1}) * 1000)
    refused(path, "compressed")
    path.write_bytes(whole[: len(whole) // 2])
    refused(path, "truncated or no zip")
    path.write_bytes(b"")
    refused(path, "truncated or no zip")
