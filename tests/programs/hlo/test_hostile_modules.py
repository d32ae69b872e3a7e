"""Modules that want time without end, names that meet, and files that are none."""

import math
import os
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from solution.programs.hlo.messages import MESSAGES
from solution.programs.hlo.nodes import summarise
from solution.programs.hlo.records import read_module_file, write_record
from solution.system.errors import InputError
from solution.system.names import MAX_NAME
from tests.conftest import FastSlow
from tests.made import modules
from tests.made.guarded import Guard


@given(st.lists(st.integers(-(2**63), 2**63 - 1), max_size=12))
def test_a_product_wraps_as_numbers_of_64_bits_do(values: list[int]) -> None:
    with np.errstate(over="ignore"):
        product = np.array(values, np.int64).prod()
        total = np.array(values, np.int64).sum()
    assert summarise(values, 2)[2:] == [total, product]


def summarise_many(count: int) -> float:
    """Processor seconds for so many large sizes."""
    begin = time.process_time()
    summarise([2**62 - 1] * count, 6)
    return time.process_time() - begin


def test_a_product_of_many_sizes_takes_time_for_each_alone(guard: Guard) -> None:
    """A number of as many digits would take a thousand times longer for thirty times as many."""
    few, many = (min(guard.call(summarise_many, n) for _ in range(3)) for n in (20_000, 600_000))
    assert many < 300 * few
    assert math.isfinite(many)


def make_records(*names: tuple[str, int]) -> list[object]:
    return [
        modules.record(modules.tile_run(4), own=modules.make_module(name), fingerprint=number)
        for name, number in names
    ]


@pytest.mark.parametrize(
    "names",
    [
        [("a", 0), ("a", 0), ("a_0", 1)],
        [("a", 0), ("a", 0), ("a_0_0", 0), ("a_0", 0), ("a", 0)],
        [("a_0", 1), ("a", 0), ("a", 0), ("a_0_1", 0), ("a_0_2", 0)],
        [("x", 0), ("x", 0), ("x_0", 0), ("x_0", 0), ("x_0_0", 0), ("x_0_1", 0)],
        [("\U0001f600" * 150, 0), ("\U0001f600" * 150, 1)],
        [("ü" * 200, 0), ("ü" * 200, 0), ("ü" * 200, 1)],
    ],
)
def test_no_two_records_are_written_into_one_file(
    names: list[tuple[str, int]], tmp_path: Path
) -> None:
    records = make_records(*names)
    path = modules.write(MESSAGES["TuningRecords"](modules=records), tmp_path / "many.pb")
    found = read_module_file(path)
    written = {write_record(record, tmp_path / "data") for record in found}
    assert len(written) == len(names)
    assert all(len(os.fsencode(path.name)) < 200 for path in written)


def test_a_name_of_letters_that_take_many_bytes_is_cut_between_letters(tmp_path: Path) -> None:
    path = tmp_path / ("ü" * 120 + ".pb")  # 243 bytes
    modules.write(modules.make_layout_record(), path)
    (record,) = read_module_file(path)
    assert record.graph.name == "ü" * (MAX_NAME // 2)


def put_pipe(path: Path) -> None:
    os.mkfifo(path)


def put_device(path: Path) -> None:
    path.symlink_to("/dev/zero")


@pytest.mark.parametrize("put", [put_pipe, put_device])
def test_pipes_and_devices_are_refused(put: object, tmp_path: Path, guard: Guard) -> None:
    path = tmp_path / "module.pb"
    put(path)  # type: ignore[operator]
    with pytest.raises(InputError, match=r"module\.pb: expected a file, found a"):
        guard.call(read_module_file, path)


def test_a_file_called_like_markup_is_read(fastslow: FastSlow, tmp_path: Path) -> None:
    path = modules.write(modules.make_layout_record(), tmp_path / "[" / "b].pb")
    result = fastslow("module", path.relative_to(tmp_path))
    assert result.returncode == 0, result.stderr
    path = modules.write(modules.make_layout_record(), tmp_path / "[red]x.pb")
    assert "[red]x" in fastslow("module", path.name).stdout
