"""Programs of several devices, with callbacks or without numbers, and flags of other XLAs."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from solution.collecting.builder import Builder
from solution.collecting.labelling import Workers
from solution.programs.child import find_flag_defect
from solution.programs.program import read_programs
from solution.serving.reading import read_questions
from solution.system.errors import InputError


@pytest.mark.parametrize(
    ("name", "facts"),
    [
        (
            "gathered-from-eight-devices/gathered.hlo",
            ("8 partitions", "num_partitions=8", "one device"),
        ),
        ("shard-map-as-text/sharded.hlo", ("shard_map", "8 devices")),
        ("a-print-in-a-dump/printed.hlo", ("calls back into Python", "jax.debug.print")),
    ],
)
def test_what_cannot_be_run_here_is_ranked_and_refused_by_name(
    name: str, facts: tuple[str, ...], cases: Path, workers: Workers
) -> None:
    with pytest.raises(InputError) as raised:
        list(read_programs(cases / name, workers.compiling))
    for fact in (str(cases / name), *facts):
        assert fact in str(raised.value)
    (question,) = read_questions(cases / name)
    assert question.graph.num_configs > 8


def test_a_callback_in_mlir_is_refused_too(workers: Workers, tmp_path: Path) -> None:
    text = """module {
  func.func public @main(%x: tensor<4xf32>) -> tensor<4xf32> {
    stablehlo.custom_call @xla_ffi_python_cpu_callback(%x) {api_version = 4 : i32,
      has_side_effect = true, backend_config = {index = 0 : ui64}} : (tensor<4xf32>) -> tuple<>
    return %x : tensor<4xf32>
  }
}
"""
    (tmp_path / "printed.mlir").write_text(text)
    with pytest.raises(InputError, match="calls back into Python"):
        list(read_programs(tmp_path / "printed.mlir", workers.compiling))


def test_a_partition_that_needs_no_other_is_run_and_said(cases: Path, workers: Workers) -> None:
    (program,) = read_programs(cases / "partition-number" / "numbered.hlo", workers.compiling)
    assert "4 partitions" in program.notes[0] and "the first" in program.notes[0]
    # The first one's number is 0, and so are all results, which compare nothing.
    with pytest.raises(InputError, match="all results are 0"):
        Builder(workers.compiling, program).open()


def test_a_program_that_is_not_divided_yet_is_run_as_a_whole(
    workers: Workers, tmp_path: Path
) -> None:
    text = (
        "HloModule m, num_partitions=4\nENTRY e {\n  x = f32[8,16]{1,0} parameter(0)\n"
        "  y = f32[8,16]{1,0} custom-call(x), sharding={replicated}, "
        'custom_call_target="Sharding"\n'
        "  ROOT z = f32[8,16]{1,0} tanh(y)\n}\n"
    )
    (tmp_path / "whole.hlo").write_text(text)
    (program,) = read_programs(tmp_path / "whole.hlo", workers.compiling)
    assert "4 partitions" in program.notes[0] and "whole" in program.notes[0]
    Builder(workers.compiling, program).open()


def test_arguments_without_numbers_are_drawn(cases: Path, workers: Workers, tmp_path: Path) -> None:
    path = cases / "shapes-for-arguments" / "shapes.py"
    (program,) = read_programs(path, workers.compiling)
    assert [array.shape for array in program.arguments] == [(64, 128), (128, 32)]
    assert all(np.ptp(array) > 0 for array in program.arguments)
    text = (
        '"""A tree of arrays and shapes."""\nimport jax, jax.numpy as jnp\n'
        "arguments = ({'w': jax.ShapeDtypeStruct((3, 4), jnp.bfloat16), 'x': jnp.ones((2, 3))},\n"
        "             [jax.ShapeDtypeStruct((), jnp.int32)])\n"
        "def program(tree, scalars):\n    return tree['x'] @ tree['w'] + scalars[0]\n"
    )
    (tmp_path / "tree.py").write_text(text)
    (program,) = read_programs(tmp_path / "tree.py", workers.compiling)
    weights, x, scalar = program.arguments
    assert (str(weights.dtype), weights.shape, scalar.shape) == ("bfloat16", (3, 4), ())
    np.testing.assert_array_equal(x, np.ones((2, 3), np.float32))
    (again,) = read_programs(tmp_path / "tree.py", workers.compiling)
    assert again.digest == program.digest


@pytest.mark.parametrize(
    ("flags", "fact"),
    [
        ("--xla_tpu_enable_latency_hiding_scheduler=true", "--xla_tpu_enable_latency_hiding"),
        ("--xla_force_host_platform_device_count=many", "many"),
    ],
)
def test_a_flag_that_xla_does_not_take_is_named(flags: str, fact: str, cases: Path) -> None:
    command = [sys.executable, "-m", "solution", "rank", cases / "flags-of-a-tpu" / "plain.hlo"]
    done = subprocess.run(
        command, env=os.environ | {"XLA_FLAGS": flags}, capture_output=True, text=True
    )
    assert done.returncode == 2
    assert "XLA_FLAGS" in done.stderr and fact in done.stderr
    assert "plain.hlo" not in done.stderr and "Traceback" not in done.stderr


def test_what_a_program_prints_is_no_flag() -> None:
    assert not find_flag_defect("Error: hello\nXLA_FLAGS are fine")
