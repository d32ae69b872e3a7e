"""What looks like an address and is none is refused, and never taken for a folder."""

from collections.abc import Callable
from pathlib import Path

import pytest

from solution.collecting.tpu.kernels import find_cache_folder
from solution.runs.folder import find_runs, find_stores
from solution.sessions.session import find_inputs
from solution.system.buckets import Mirror
from solution.system.errors import InputError
from solution.system.names import check_address, is_address, refuse_address
from tests.conftest import FastSlow


@pytest.mark.parametrize(("given", "right"), [
    ("s3://", "s3://BUCKET/NAME"), ("s3:///run", "s3://BUCKET/NAME"),
    ("s3:/bucket/x", "s3://bucket/x"), ("s3:bucket/x", "s3://bucket/x"),
    ("S3://bucket/x", "s3://bucket/x"), ("Gs://bucket", "gs://BUCKET/NAME"),
    ("s3:/", "s3://BUCKET/NAME"), ("s3://bucket/../x", r"without \. and \.\."),
    ("s3://bucket/./x", r"without \. and \.\."),
])  # fmt: skip
def test_what_is_no_sound_address_says_what_is(given: str, right: str) -> None:
    with pytest.raises(InputError, match=f"^{given}: expected .*{right}") as caught:
        check_address(given)
    assert f"./{given}" in str(caught.value)  # a local folder of this name


@pytest.mark.parametrize("given", ["S3://key:secret@bucket/x", "s3:/key:secret@bucket/x"])
def test_a_password_is_not_shown(given: str) -> None:
    for check in (check_address, lambda text: refuse_address(text, "")):
        with pytest.raises(InputError, match="the environment") as caught:
            check(given)
        assert "secret" not in str(caught.value)


def test_names_of_this_machine_and_sound_addresses_stay() -> None:
    for given in ("runs/one", "./s3:/x", "layout:xla:random", "/a/b:c", "C", ""):
        assert check_address(given) == refuse_address(given, "") == given
        assert not is_address(given)
    for given in ("s3://bucket/x/", "gs://bucket/x", "file:///tmp/x", "s3://b"):
        assert check_address(given) == given and is_address(given)


def test_what_is_written_needs_a_name_in_the_bucket() -> None:
    assert check_address("s3://bucket/run", named=True) == "s3://bucket/run"
    for given in ("s3://bucket", "s3://bucket//"):
        with pytest.raises(InputError, match="a name in the bucket"):
            check_address(given, named=True)


@pytest.mark.parametrize(("name", "find"), [
    ("FASTSLOW_RUNS", find_runs), ("FASTSLOW_STORES", find_stores),
    ("FASTSLOW_MIRRORS", lambda: Mirror.of("s3://bucket/x")),
    ("FASTSLOW_TPU_CACHE", find_cache_folder),
])  # fmt: skip
def test_a_variable_names_a_folder_of_this_machine(
    name: str, find: Callable[[], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, "s3://bucket/x")
    with pytest.raises(InputError, match=f"{name} is s3:/bucket/x: expected a folder of this"):
        find()


def test_a_variable_that_is_empty_is_not_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, find in (("RUNS", find_runs), ("STORES", find_stores), ("INPUT", find_inputs)):
        monkeypatch.delenv(f"FASTSLOW_{name}", raising=False)
        usual = find()
        monkeypatch.setenv(f"FASTSLOW_{name}", "")
        assert find() == usual != Path()


@pytest.mark.parametrize(("words", "said"), [
    (("run", "--run", "s3://"), "s3://: expected"),
    (("run", "--run", "s3://bucket"), "s3://bucket: expected"),
    (("run", "--store", "S3://bucket/s"), "S3://bucket/s: expected"),
    (("run", "s3:/bucket/x"), "s3:/bucket/x: expected"),
    (("train", "nothing_001", "--run", "s3:/b/x"), "s3:/b/x: expected"),
    (("tune", "tile_lightgbm_001", "--data", "s3://"), "s3://: expected"),
])  # fmt: skip
def test_commands_refuse_it_before_anything_is_written(
    fastslow: FastSlow, tmp_path: Path, words: tuple[str, ...], said: str
) -> None:
    done = fastslow(*words)
    assert done.returncode == 2 and said in " ".join(done.stderr.split())
    assert not list(tmp_path.iterdir())
