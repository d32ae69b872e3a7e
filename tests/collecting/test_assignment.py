"""Layouts as they are propagated, and as XLA assigns them: the real compiler, on training steps."""

from pathlib import Path

import numpy as np
import pytest

from benchmarks.propagation import compare_program, compile_program, dump_passes
from solution.collecting.families import draw_settings, write_file
from solution.programs.child import Child, Limits
from solution.programs.program import read_programs


@pytest.mark.parametrize("family", ["convnet", "gnn", "mlp", "transformer"])
def test_layouts_of_a_training_step_are_the_compilers(
    family: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of tensors that passes leave as they are; row-major is the most of what could be guessed."""
    settings = draw_settings((family,), np.random.default_rng(1))
    settings |= {"train": True, "depth": 3, "gated": False, "causal": False}
    (tmp_path / "program.py").write_text(write_file(settings), encoding="utf-8")
    monkeypatch.setenv("XLA_FLAGS", dump_passes(tmp_path / "dump"))
    with Child(Limits(seconds=120)) as child:
        (program,) = read_programs(tmp_path / "program.py", child)
        compile_program(program, tmp_path / family, 4, child, tmp_path / "dump")
    found = compare_program(tmp_path / family)
    assert found.tensors > 20
    assert found.right > max(0.98, found.default)
