"""Arguments from a file."""

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from solution.collecting.labelling import Workers
from solution.programs.given import give_arguments
from solution.programs.program import Program, read_programs
from solution.system.errors import InputError

TEXT = """
HloModule m
ENTRY e {
  x = bf16[4,8] parameter(0)
  n = s32[3] parameter(1)
  y = f32[4,8] convert(x)
  ROOT t = (f32[4,8], s32[3]) tuple(y, n)
}
"""
NUMBERS = np.arange(32).reshape(4, 8)


@pytest.fixture
def program(workers: Workers, tmp_path: Path) -> Program:
    path = tmp_path / "m.hlo"
    path.write_text(TEXT, encoding="utf-8")
    (found,) = read_programs(path, workers.compiling)
    return found


@pytest.mark.parametrize(
    ("first", "second"),
    [(("0", NUMBERS), ("1", [1, 2, 3])), (("x", NUMBERS.astype(float)), ("n", [1.0, 2.0, 3.0])),
     (("arr_0", NUMBERS.astype(ml_dtypes.bfloat16)), ("arr_1", np.array([1, 2, 3], np.int32)))],
)  # fmt: skip
def test_arrays_are_found_by_number_or_name(
    first: tuple[str, np.ndarray], second: tuple[str, np.ndarray], program: Program, tmp_path: Path
) -> None:
    path = tmp_path / "arguments.npz"
    np.savez(path, **dict([first, second]))
    given = give_arguments(program, path, 100).given
    assert given is not None
    assert [array.dtype.name for array in given] == ["bfloat16", "int32"]
    np.testing.assert_array_equal(given[0].astype(float), NUMBERS)
    assert given[1].tolist() == [1, 2, 3]


@pytest.mark.parametrize(
    ("arrays", "words"),
    [({"0": NUMBERS}, "expected one array for parameter 1, called 1 or arr_1 or n, found none"),
     ({"0": NUMBERS, "1": [1, 2, 3], "more": [1]}, "holds more"),
     ({"0": NUMBERS, "x": NUMBERS, "1": [1, 2, 3]}, "found several: 0, x"),
     ({"0": NUMBERS.T, "1": [1, 2, 3]}, "shape .8, 4., expected .4, 8."),
     ({"0": NUMBERS, "1": [1, 2, 3.5]}, "1 holds float64, expected int32"),
     ({"0": NUMBERS * 1j, "1": [1, 2, 3]}, "0 holds complex128, expected bfloat16"),
     ({"0": NUMBERS, "1": ["a", "b", "c"]}, "1 holds <U1, expected numbers")],
)  # fmt: skip
def test_what_does_not_fit_is_one_message(
    arrays: dict[str, np.ndarray], words: str, program: Program, tmp_path: Path
) -> None:
    path = tmp_path / "arguments.npz"
    np.savez(path, **arrays)
    with pytest.raises(InputError, match=f"arguments.npz: .*{words}"):
        give_arguments(program, path, 100)
