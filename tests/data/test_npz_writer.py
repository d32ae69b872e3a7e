"""What is written numpy reads again, and the same arrays are the same bytes at any time."""

import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays_of

from solution.data.npz_writer import Blocks, write_npz

DTYPES = st.sampled_from(["<f4", "<f8", "|u1", "<i8", "|i1", "|b1", "<U5"])


@given(DTYPES.flatmap(lambda dtype: arrays_of.arrays(dtype, arrays_of.array_shapes(min_dims=0))))
@settings(deadline=None, max_examples=60)
def test_numpy_reads_what_was_written(
    tmp_path_factory: pytest.TempPathFactory, array: np.ndarray
) -> None:
    path = write_npz({"a": array, "b": array.T}, tmp_path_factory.mktemp("npz") / "x.npz")
    with np.load(path) as found:
        assert found.files == ["a", "b"]
        assert found["a"].dtype == array.dtype
        np.testing.assert_array_equal(found["a"], array)
        np.testing.assert_array_equal(found["b"], array.T)


def test_blocks_are_the_array_that_they_make_up(tmp_path: Path) -> None:
    array = np.arange(60, dtype=np.float32).reshape(10, 2, 3)
    blocks = Blocks(array.shape, array.dtype, (array[k : k + 3] for k in range(0, 10, 3)))
    pieces = write_npz({"a": blocks}, tmp_path / "pieces.npz")
    whole = write_npz({"a": array}, tmp_path / "whole.npz")
    assert pieces.read_bytes() == whole.read_bytes()


def test_bytes_do_not_tell_the_time(tmp_path: Path) -> None:
    first = write_npz({"a": np.arange(5)}, tmp_path / "first.npz").read_bytes()
    time.sleep(2.1)  # zip files count in steps of two seconds
    assert write_npz({"a": np.arange(5)}, tmp_path / "second.npz").read_bytes() == first
