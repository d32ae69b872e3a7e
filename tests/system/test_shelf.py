"""Results kept in files: found again alike, computed again if damaged, the oldest deleted."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis.extra import numpy as hnp

from solution.system import shelf
from solution.system.errors import InputError
from solution.system.shelf import keeping, recall


@dataclass(frozen=True)
class Result:
    values: np.ndarray
    total: float
    is_large: bool


class Maker:
    """Counts how often a result is computed."""

    def __init__(self, values: np.ndarray) -> None:
        self.values, self.calls = values, 0

    def __call__(self) -> Result:
        self.calls += 1
        return Result(self.values, 0.5, True)

    def recall(self, version: str = "code") -> Result:
        with keeping(version):
            return recall(Result, self, [self.values, "part"])


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FASTSLOW_TABLES", str(tmp_path / "tables"))
    monkeypatch.setattr(shelf, "LEFT_FREE", 0)
    return tmp_path / "tables" / shelf.FOLDER


ARRAYS = hnp.arrays(hnp.scalar_dtypes(), hnp.array_shapes(min_side=0))


@given(values=ARRAYS.filter(lambda array: array.dtype.kind not in "Mm"))
@settings(max_examples=15, deadline=None)
def test_what_was_kept_is_found_alike(
    values: np.ndarray, tmp_path_factory: pytest.TempPathFactory
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FASTSLOW_TABLES", str(tmp_path_factory.mktemp("tables")))
        patch.setattr(shelf, "LEFT_FREE", 0)
        maker = Maker(values)
        for result in (maker.recall(), maker.recall()):
            assert result.values.dtype == values.dtype
            np.testing.assert_array_equal(result.values, values)
            assert (result.total, result.is_large) == (0.5, True)
        assert maker.calls == 1
        maker.recall("other code")
        assert maker.calls == 2


def _turn(kept: Path) -> None:
    content = bytearray(kept.read_bytes())
    content[300] ^= 1  # in the middle of the values
    kept.write_bytes(content)


@pytest.mark.parametrize("damage", [
    _turn, lambda kept: os.truncate(kept, 150), lambda kept: kept.write_bytes(b"no array"),
    lambda kept: np.savez(kept, values=np.zeros(3)),
])  # fmt: skip
def test_a_damaged_result_is_computed_again(folder: Path, damage: Callable[[Path], None]) -> None:
    maker = Maker(np.arange(100.0))
    maker.recall()
    (kept,) = folder.iterdir()
    damage(kept)
    for _ in range(2):
        np.testing.assert_array_equal(maker.recall().values, maker.values)
    assert maker.calls == 2


def test_the_folder_keeps_its_size(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was not used longest goes; nothing is kept on a full disk, or outside of training."""
    monkeypatch.setattr(shelf, "MOST_BYTES", 4000)
    first, second, third = (Maker(np.full(125, value)) for value in (1.0, 2.0, 3.0))
    for age, maker in enumerate((first, second)):
        maker.recall()
        newest = max(folder.iterdir(), key=lambda kept: kept.stat().st_mtime)
        os.utime(newest, (age + 1, age + 1))
    (folder.parent / "data of others").write_bytes(b"0" * 9999)
    first.recall()
    third.recall()
    first.recall()
    second.recall()
    assert [maker.calls for maker in (first, second, third)] == [1, 2, 1]
    monkeypatch.setattr(shelf, "LEFT_FREE", 1 << 62)
    before, fourth = sorted(folder.iterdir()), Maker(np.zeros(2))
    fourth.recall()
    recall(Result, fourth, ["part"])
    assert sorted(folder.iterdir()) == before and fourth.calls == 2
    assert (folder.parent / "data of others").exists()


def test_a_folder_that_cannot_be_used_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    maker = Maker(np.arange(9))
    monkeypatch.setenv("FASTSLOW_TABLES", "s3://bucket/tables")
    with pytest.raises(InputError, match="FASTSLOW_TABLES"):
        maker.recall()
    (tmp_path / "file").touch()
    monkeypatch.setenv("FASTSLOW_TABLES", str(tmp_path / "file"))
    for calls in (1, 2):
        np.testing.assert_array_equal(maker.recall().values, maker.values)
        assert maker.calls == calls
