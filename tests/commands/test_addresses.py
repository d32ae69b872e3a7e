"""An address is refused by name wherever a file or folder of this machine is meant."""

import re
from pathlib import Path

import pytest

from solution.commands.assembly import read_path
from solution.system.errors import InputError
from tests.conftest import FastSlow

ADDRESS = "s3://bucket/r1"
COMMANDS = [
    "prepare --out s3://bucket/r1", "prepare s3://bucket/r1", "check s3://bucket/r1",
    "inspect s3://bucket/r1", "inspect a.npz --picture s3://bucket/r1",
    "features tile:xla --out s3://bucket/r1", "module a.pb --to s3://bucket/r1",
    "data s3://bucket/r1", "report --run s3://bucket/r1", "verify a.csv --run s3://bucket/r1",
    "ensemble --run s3://bucket/r1", "compare a b --run s3://bucket/r1",
    "submit --run s3://bucket/r1", "runs s3://bucket/r1",
    "collect layout a.py --out s3://bucket/r1", "collect report s3://bucket/r1",
    "kernels share s3://bucket/r1", "explain a b --run s3://bucket/r1",
    "explain a b --out s3://bucket/r1", "rank a.npz s3://bucket/r1",
    "rank a.npz --run s3://bucket/r1", "pack s3://bucket/r1 --out b.zip",
    "pack run --out s3://bucket/r1", "tune tile_lightgbm_001 --out s3://bucket/r1",
    "choose a.py --out s3://bucket/r1", "onnx s3://bucket/r1",
    "optimize rnnlm-2 --out s3://bucket/r1",
]  # fmt: skip


@pytest.mark.parametrize("line", COMMANDS)
def test_it_is_named_as_it_was_given_and_nothing_is_written(
    fastslow: FastSlow, tmp_path: Path, line: str
) -> None:
    done = fastslow(*line.split())
    assert done.returncode == 2
    said = " ".join(done.stderr.split())
    assert said.startswith(f"Error: {ADDRESS}: is an address, where a file or folder of this")
    assert f"`aws s3 sync {ADDRESS} FOLDER`" in said
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("words", "named"), [
    (("tune", "tile_lightgbm_001", "--out", ""), "--out"), (("run", ""), "DATA"),
    (("run", "--run", ""), "--run"), (("run", "--store", ""), "--store"),
    (("train", "tile_lightgbm_001", "--data", ""), "--data"), (("check", ""), "DATA"),
    (("rank", "a.npz", ""), "FILE"), (("collect", "report", ""), "FOLDER"),
])  # fmt: skip
def test_an_empty_one_is_refused_by_its_option(
    fastslow: FastSlow, tmp_path: Path, words: tuple[str, ...], named: str
) -> None:
    """What a shell makes of a variable that is not set would be the folder one is in."""
    done = fastslow(*words)
    assert done.returncode == 2
    said = " ".join(done.stderr.replace("│", " ").split())
    assert "empty" in said
    assert re.search(rf"Invalid value for \W*{named}", said, re.IGNORECASE)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("given", "words"), [
    ("s3:/bucket/x", "//bucket/x.*FOLDER"), ("GS://bucket/x", "--recursive gs.*//bucket/x.*FOLDER"),
    ("abfs://container/x", "the program"),
])  # fmt: skip
def test_how_to_fetch_it_is_said_of_what_is_nearly_an_address(given: str, words: str) -> None:
    with pytest.raises(InputError, match=words):
        read_path(given)


def test_a_folder_that_is_called_so_can_be_named() -> None:
    assert read_path("./s3:/bucket/x") == Path("s3:/bucket/x")
