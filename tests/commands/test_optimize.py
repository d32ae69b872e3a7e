"""`fastslow optimize`: what people see, and what is left on disk."""

import csv
import json
from pathlib import Path

from tests.conftest import FastSlow
from tests.made import modules


def test_a_module_is_optimised_and_everything_is_written(
    fastslow: FastSlow, tmp_path: Path
) -> None:
    modules.write(modules.make_layout_record(), tmp_path / "program.pb")
    result = fastslow(
        "optimize", "program.pb", "--tasks", "fusion,placement,schedule", "--devices", "2",
        "--evaluations", "60", "--timeline", "line.png", "--trace", "line.json", "--out", "all.csv",
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    for words in ("Before:", "After:", "lower bound", "0 P100", "1 P100", "and HEFT had",
                  "60 decisions simulated"):  # fmt: skip
        assert words in result.stdout
    assert " us" in result.stdout and "0.000 ms" not in result.stdout  # its products are tiny
    assert "Trace: line.json" in result.stdout and "Decision: all.csv" in result.stdout
    assert (tmp_path / "line.png").read_bytes().startswith(b"\x89PNG")
    events = json.loads((tmp_path / "line.json").read_text())["traceEvents"]
    rows = list(csv.DictReader((tmp_path / "all.csv").open()))
    assert [int(row["node"]) for row in rows] == list(range(len(rows)))
    kernels = [event for event in events if event["ph"] == "X" and event["name"] != "transfer"]
    assert kernels and len({row["kernel"] for row in rows}) >= len(kernels)


def test_what_cannot_be_done_is_one_message(fastslow: FastSlow) -> None:
    for words, message in (
        (("optimize", "nothing.xyz"), "expected an npz file, a module of XLA"),
        (("optimize", "rnnlm-2-small", "--tasks", "sleep"), "There is no task 'sleep'"),
        (("optimize", "rnnlm-2-small", "--machine", "abacus"), "There is no device 'abacus'"),
        (("optimize", "rnnlm-2-small", "--timeline", "line.doc"), "ends with .png"),
        (("optimize", "rnnlm-2-small", "--trace", "line.png"), "ends with .json"),
        (("optimize", "rnnlm-2-small", "--trace", "a.json", "--out", "./a.json"), "for --trace"),
    ):
        result = fastslow(*words)
        assert result.returncode == 2 and message in result.stderr, result.stderr


def test_what_is_read_stays_as_it_is(fastslow: FastSlow, tmp_path: Path) -> None:
    path = modules.write(modules.make_layout_record(), tmp_path / "program.pb")
    before = path.read_bytes()
    for words, message in (
        (("optimize", path, "--out", "program.pb"), "is what is read, or lies in it. Give --out"),
        (("optimize", path, "--out", "program.pb/a.csv"), "a file is in its place"),
        (("optimize", path, "--out", "/dev/null"), "is a device, where a file is to be written"),
        (("optimize", path, "--machine", "v100+p100+cpu"), "names 3 devices"),
        (("module", path, "--features", "program.pb"), "ends with .parquet"),
        (("module", path, "--split", "train"), "Give --to FOLDER"),
    ):
        result = fastslow(*words, *(("--evaluations", "3") if words[0] == "optimize" else ()))
        assert result.returncode == 2 and message in result.stderr, result.stderr
    assert path.read_bytes() == before


def test_a_folder_may_be_called_as_a_workload(fastslow: FastSlow, tmp_path: Path) -> None:
    """No file is read, so what lies in the folder may be written again."""
    (tmp_path / "rnnlm-1x4").mkdir()
    for _ in range(2):
        result = fastslow("optimize", "rnnlm-1x4", "--evaluations", "1", "--out", "rnnlm-1x4/a.csv")
        assert result.returncode == 0, result.stderr


def test_the_order_of_unlike_devices_means_nothing(fastslow: FastSlow, tmp_path: Path) -> None:
    """A name with signs of a formula is drawn; one device is tried on each kind."""
    modules.write(modules.make_layout_record(), tmp_path / r"a$\frac{$b.pb")
    few = ("--evaluations", "4", "--timeline", "line.svg")
    found = []
    for machine in ("cpu+v100", "v100+cpu"):
        result = fastslow("optimize", r"a$\frac{$b.pb", "--machine", machine, *few)
        assert result.returncode == 0, result.stderr
        found.append(result.stdout.partition("After: ")[2].partition(",")[0])
        first = (tmp_path / "line.svg").read_bytes()
    assert found[0] == found[1]
    fastslow("optimize", r"a$\frac{$b.pb", "--machine", machine, *few)
    assert (tmp_path / "line.svg").read_bytes() == first
