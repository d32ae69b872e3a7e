"""verify.py, as it is copied to a machine with a TPU; here it runs on the CPU."""

import hashlib
import json
import math
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("jax")  # the extra `collect`

from solution.choosing import harness, verdict
from solution.choosing import verify as script
from solution.choosing.handing import CHOICE, MODULE
from solution.choosing.journal import RECORD, Journal
from solution.choosing.measured import judge_rounds
from solution.choosing.tpu_files import ARGUMENTS, DEFAULT_MODULE, SCRIPT
from solution.collecting import comparison, timing
from solution.programs.compiler import Compiler
from tests.conftest import FastSlow

# the script's numbers of repetitions and so on, and smaller ones, with which a test takes seconds
LONG = "ROUNDS, COPIES = 6, 3\nPASSES, LEAST_PASSES, PASS_SECONDS = 30, 4, 5.0\n"
SHORT = "ROUNDS, COPIES = 3, 1\nPASSES, LEAST_PASSES, PASS_SECONDS = 8, 4, 1.0\n"
# A product; then the same result with two more products that add almost nothing.
HALF = """HloModule half
ENTRY main {
  left = f32[256,256]{1,0} parameter(0)
  right = f32[256,256]{1,0} parameter(1)
  one = f32[256,256]{1,0} dot(left, right), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT end = f32[256,256]{1,0} tanh(one)
}
"""
WASTED = """HloModule wasted
ENTRY main {
  left = f32[256,256]{1,0} parameter(0)
  right = f32[256,256]{1,0} parameter(1)
  one = f32[256,256]{1,0} dot(left, right), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  again = f32[256,256]{1,0} dot(right, left), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  more = f32[256,256]{1,0} dot(again, left), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  small = f32[256,256]{1,0} multiply(more, more)
  tiny = f32[] constant(1e-30)
  tinies = f32[256,256]{1,0} broadcast(tiny), dimensions={}
  scaled = f32[256,256]{1,0} multiply(small, tinies)
  sum = f32[256,256]{1,0} add(one, scaled)
  ROOT end = f32[256,256]{1,0} tanh(sum)
}
"""


def write_folder(folder: Path, default: str, chosen: str, result: str | None = "c") -> Path:
    """Write what `choose` writes for a TPU, with a shorter script, and a record of the search."""
    folder.mkdir()
    for name, text in ((DEFAULT_MODULE, default), (MODULE, chosen)):
        (folder / name).write_bytes(Compiler().parse_hlo(text))
    choice = {
        "program": "made",
        "choice": "c",
        "compiler_options": {},
        "parameters": [[[256, 256], "float32"]] * 2,
        "checksums": {
            name: hashlib.sha256((folder / name).read_bytes()).hexdigest()
            for name in (DEFAULT_MODULE, MODULE)
        },
    }
    (folder / CHOICE).write_text(json.dumps(choice))
    text = Path(script.__file__).read_text()
    assert LONG in text
    (folder / SCRIPT).write_text(text.replace(LONG, SHORT))
    Journal(folder, {}, result={"choice": result, "measured": []}).write()
    return folder


def verify(folder: Path) -> tuple[subprocess.CompletedProcess[str], dict[str, Any]]:
    """Run the script as on another machine: none of this project's modules can be imported."""
    done = subprocess.run(
        [sys.executable, SCRIPT],
        cwd=folder,
        env={**os.environ, "JAX_PLATFORMS": "cpu", "PYTHONPATH": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    path = folder / script.VERDICT
    return done, json.loads(path.read_text()) if path.exists() else {}


def test_it_needs_jax_alone() -> None:
    text = Path(script.__file__).read_text()
    imported = set(re.findall(r"^ *(?:import|from) (\w+)", text, re.MULTILINE))
    # numpy and scipy come with jax
    assert imported - set(sys.stdlib_module_names) == {"jax", "jaxlib", "numpy", "scipy"}


def test_its_rules_are_those_of_choose() -> None:
    assert (script.ROUNDS, script.CONFIDENCE, script.LEAST_GAIN) == (
        verdict.ROUNDS,
        verdict.CONFIDENCE,
        verdict.LEAST,
    )
    assert (script.PASSES, script.LEAST_PASSES, script.PASS_SECONDS, script.COPIES) == (
        harness.FINAL_PASSES,
        harness.LEAST_FINAL,
        harness.FINAL_SECONDS,
        harness.COPIES,
    )
    assert (script.VISIT_NANOSECONDS, script.MIN_RUNS, script.MAX_RUNS) == (
        timing.VISIT_NANOSECONDS,
        timing.MIN_RUNS,
        timing.MAX_RUNS,
    )
    generator = np.random.default_rng(0)
    for _ in range(20):
        times = generator.lognormal(0, 0.1, (2, 6))
        expected, found = verdict.judge(*times), script.judge(*times)
        assert found == pytest.approx(
            {"gain": expected.gain, "low": expected.low, "high": expected.high}
        )
        assert script.describe(found).startswith("No gain") == (not expected.is_gain)


def test_its_comparison_is_that_of_choose() -> None:
    generator = np.random.default_rng(0)
    for dtype in (np.float32, np.float16, np.int32, np.complex64):
        for scale in (0.0, 1e-6, 1e-3, 1e-1, math.inf):
            right = (10 * generator.standard_normal((4, 50))).astype(dtype)
            with np.errstate(invalid="ignore"):
                wrong = right + (scale * generator.standard_normal(right.shape)).astype(dtype)
            allowed = [script.find_tolerance(right.dtype)]
            assert allowed == comparison.find_tolerances([right])
            found = script.find_deviation([wrong], [right], allowed)
            expected = comparison.find_deviation([wrong], [right])
            assert found == expected, (dtype, scale)


def test_a_gain_is_shown_and_the_record_takes_it_back(fastslow: FastSlow, tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "search", WASTED, HALF)
    done, found = verify(folder)
    assert done.returncode == 0, done.stderr
    assert found["gain"] > 1.5 and found["low"] > 1 and not found["defect"]
    assert len(found["nanoseconds"]) == 3 and found["platform"] == "cpu"
    expected = judge_rounds(found)
    assert expected.gain == pytest.approx(found["gain"]) and expected.is_gain
    assert f"{found['gain']:.3f}" in done.stdout
    taken = fastslow("choose", "--verdict", folder / script.VERDICT)
    assert taken.returncode == 0, taken.stderr
    assert f"{found['gain']:.3f}" in taken.stdout
    twice = fastslow("choose", "--verdict", folder / script.VERDICT)
    assert twice.returncode == 0, twice.stderr
    (measured,) = json.loads((folder / RECORD).read_text())["result"]["measured"]
    assert measured["nanoseconds"] == found["nanoseconds"]


def test_wrong_results_are_refused_and_not_timed(fastslow: FastSlow, tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "search", WASTED, HALF.replace("tanh", "sine"))
    done, found = verify(folder)
    assert done.returncode == 1
    assert "wrong" in found["defect"] and found["nanoseconds"] == []
    assert "Do not use" in done.stdout
    taken = fastslow("choose", "--verdict", folder / script.VERDICT)
    assert taken.returncode == 0 and "do not use" in taken.stdout


def test_results_that_show_nothing_are_refused(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "search", HALF, HALF)
    np.savez(folder / ARGUMENTS, **{"0": np.zeros((256, 256), np.float32)})
    done, found = verify(folder)
    assert done.returncode == 1 and "constant" in found["defect"]


def test_another_file_is_one_message(fastslow: FastSlow, tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "search", HALF, HALF, result="another")
    content = (folder / MODULE).read_bytes()
    (folder / MODULE).write_bytes(content[:-1])
    done, _ = verify(folder)
    assert done.returncode and MODULE in done.stderr and "Traceback" not in done.stderr
    (folder / MODULE).unlink()
    done, _ = verify(folder)
    assert done.returncode and MODULE in done.stderr and "Traceback" not in done.stderr
    found = {
        **dict.fromkeys(("program", "device", "platform", "jax", "clock"), "made"),
        "choice": "c", "defect": "", "nanoseconds": [[2.0, 1.0], [2.0, 1.1]],
    }  # fmt: skip
    path = folder / script.VERDICT
    path.write_text(json.dumps(found))
    taken = fastslow("choose", "--verdict", path)
    assert taken.returncode == 2 and "another configuration" in taken.stderr
    taken = fastslow("choose", "--verdict", path, "--out", tmp_path / "nowhere")
    assert taken.returncode == 2 and RECORD in taken.stderr
    path.write_text(json.dumps({**found, "nanoseconds": [[2.0, 1.0], [2.0, -1.1]]}))
    taken = fastslow("choose", "--verdict", path)
    assert taken.returncode == 2 and "nanoseconds" in taken.stderr
