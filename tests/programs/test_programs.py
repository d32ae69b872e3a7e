"""Programs as people write them: with LAPACK, dataclasses, files beside them, keys, callbacks."""

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from solution.collecting.child import Load, Open, Run
from solution.collecting.cpu import Builder, Workers
from solution.programs.arguments import PART
from solution.programs.given import give_arguments
from solution.programs.program import Program, read_programs
from solution.system.errors import InputError

BEGIN = "import jax\nimport jax.numpy as jnp\nX = jnp.ones((32, 32))\narguments = (X,)\n"


def write(folder: Path, text: str, name: str = "written.py") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    "body", ["jnp.linalg.cholesky(x @ x.T + 10 * jnp.eye(32))", "jnp.linalg.solve(x + X, x)"]
)
def test_what_lapack_computes_runs_where_nothing_was_lowered(
    body: str, workers: Workers, tmp_path: Path
) -> None:
    path = write(tmp_path, f"{BEGIN}def program(x):\n    return {body}\n")
    (program,) = read_programs(path, workers.compiling)
    compiled = Builder(workers.compiling, program).open()
    workers.timing.ask(Open(b"", program.arguments))
    assert workers.timing.ask(Load("it", compiled.executable)) > 0
    assert len(workers.timing.ask(Run("it", 3)).wall)


def test_dataclasses_and_files_beside_a_program_are_found(workers: Workers, tmp_path: Path) -> None:
    """Two programs may have files of one name beside them."""
    text = (
        "from __future__ import annotations\nfrom dataclasses import dataclass\n"
        f"from sizes import SIZE\n{BEGIN}"
        "@dataclass\nclass Times:\n    n: int = SIZE\n"
        "def program(x):\n    return 2 * x[: Times().n]\n"
    )
    for size in (2, 3):
        folder = tmp_path / str(size)
        folder.mkdir()
        write(folder, f"SIZE = {size}\n", "sizes.py")
        (program,) = read_programs(write(folder, text), workers.compiling)
        shapes = [list(i.shape.dimensions) for c in program.module.computations
                  for i in c.instructions]  # fmt: skip
        assert [size, 32] in shapes


def test_what_a_file_changes_ends_with_it(workers: Workers, tmp_path: Path) -> None:
    """jax's settings, the environment and libraries are as if no other file had been read."""
    change = (
        "import jax, os\njax.config.update('jax_enable_x64', True)\nos.environ['ROWS'] = '2'\n"
        "jax.numpy.ones = jax.numpy.zeros\n"
    )
    plain = (
        "import os\nimport jax.numpy as jnp\nimport numpy as np\n"
        "arguments = (jnp.ones((int(os.environ.get('ROWS', 3)), 4)), np.ones((4, 5)))\n"
        "def program(x, y):\n    return x @ y\n"
    )
    paths = write(tmp_path, plain), write(tmp_path, change + plain, "changes.py")
    alone, changed = (next(read_programs(path, workers.compiling)) for path in paths)
    (after,) = read_programs(paths[0], workers.compiling)
    assert changed.arguments[1].dtype == np.float64
    assert after.digest == alone.digest
    np.testing.assert_array_equal(after.arguments[0], np.ones((3, 4), np.float32))


@pytest.mark.parametrize("arguments", ["DRAWN", "lambda: (np.random.rand(3),)"])
def test_what_is_drawn_without_a_seed_is_the_same_each_time(
    arguments: str, workers: Workers, tmp_path: Path
) -> None:
    text = (
        "import random\nimport numpy as np\nDRAWN = (np.random.rand(3),)\n"
        f"def program(x):\n    return x + {{random.random()}}.pop()\narguments = {arguments}\n"
    )
    path = write(tmp_path, text)
    assert len({next(read_programs(path, workers.compiling)).digest for _ in range(2)}) == 1


def test_random_arguments_are_drawn_when_they_are_asked_for(
    workers: Workers, tmp_path: Path
) -> None:
    """Who only ranks needs none: they may be larger than the memory, or of a type without any."""
    text = "HloModule m\nENTRY e {{ ROOT p = {}[{}] parameter(0) }}\n"
    for kind, size in (("f32", 1 << 50), ("s1", 4)):
        path = write(tmp_path, text.format(kind, size), f"{kind}.hlo")
        (program,) = read_programs(path, workers.compiling)
        assert program.nodes.opcodes.tolist()
    with pytest.raises(InputError, match="parameter.*0"):
        program.arguments  # noqa: B018
    size = PART + 5
    (program,) = read_programs(
        write(tmp_path, text.format("f32", size), "large.hlo"), workers.compiling
    )
    expected = np.random.default_rng(0).standard_normal(size)
    np.testing.assert_array_equal(program.arguments[0], expected.astype(np.float32))


def test_keys_of_random_numbers_are_arguments(workers: Workers, tmp_path: Path) -> None:
    text = (
        f"{BEGIN}arguments = (jax.random.key(3), X)\n"
        "def program(key, x):\n    return x + jax.random.normal(key, x.shape)\n"
    )
    (program,) = read_programs(write(tmp_path, text), workers.compiling)
    np.testing.assert_array_equal(program.arguments[0], [0, 3])
    Builder(workers.compiling, program).open()


def test_callbacks_into_python_are_refused_by_name(workers: Workers, tmp_path: Path) -> None:
    text = f"{BEGIN}def program(x):\n    jax.debug.print('{{}}', x[0, 0])\n    return x @ x\n"
    with pytest.raises(InputError, match="calls back"):
        list(read_programs(write(tmp_path, text), workers.compiling))


def test_what_jax_cannot_hand_on_is_said_so(workers: Workers, tmp_path: Path) -> None:
    text = f"{BEGIN}def program(x):\n    return jnp.sort(x @ x, axis=0)\n"
    (program,) = read_programs(write(tmp_path, text), workers.compiling)
    with pytest.raises(InputError, match="process that") as raised:
        Builder(workers.compiling, program).open()
    assert ".." not in str(raised.value)


def test_what_another_program_printed_is_no_reason(workers: Workers, tmp_path: Path) -> None:
    loud = f"{BEGIN}print('Error: hello')\ndef program(x):\n    return x @ x\n"
    list(read_programs(write(tmp_path, loud), workers.compiling))
    ends = write(tmp_path, "import os\nos._exit(3)\n", "ends.py")
    with pytest.raises(InputError, match="process.*3"):
        list(read_programs(ends, workers.compiling))


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
