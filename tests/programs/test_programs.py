"""Programs as people write them: with LAPACK, dataclasses, files beside them, keys, callbacks.

And what the child answers: replies arrive as they were sent; bytes that are no reply are refused.
"""

from multiprocessing import Pipe
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as st_numpy

from solution.collecting.child import Load, Open, Run
from solution.collecting.cpu import Builder, Workers
from solution.programs import compiler
from solution.programs.arguments import PART
from solution.programs.child import Refusal
from solution.programs.given import give_arguments
from solution.programs.program import Program, read_programs
from solution.programs.replies import MARK, SIZE_BYTES, decode_reply, send_reply
from solution.system.errors import InputError

BEGIN = "import jax\nimport jax.numpy as jnp\nX = jnp.ones((32, 32))\narguments = (X,)\n"


def write(folder: Path, text: str, name: str = "written.py") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    "body", ["jnp.linalg.cholesky(x @ x.T + 10 * jnp.eye(32))", "jnp.linalg.solve(x + X, x)"]
)
def test_what_lapack_computes_runs(body: str, workers: Workers, tmp_path: Path) -> None:
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
def test_what_is_drawn_is_always_the_same(arguments: str, workers: Workers, tmp_path: Path) -> None:
    text = (
        "import random\nimport numpy as np\nDRAWN = (np.random.rand(3),)\n"
        f"def program(x):\n    return x + {{random.random()}}.pop()\narguments = {arguments}\n"
    )
    path = write(tmp_path, text)
    assert len({next(read_programs(path, workers.compiling)).digest for _ in range(2)}) == 1


def test_random_arguments_are_drawn_when_asked_for(workers: Workers, tmp_path: Path) -> None:
    """Who only ranks needs none: they may be larger than the memory, or of a type without any."""
    text = "HloModule m\nENTRY e {{ ROOT p = {}[{}] parameter(0) }}\n"
    large, size = write(tmp_path, text.format("f32", PART + 5), "large.hlo"), PART + 5
    for kind, count in (("f32", 1 << 50), ("s1", 4)):
        path = write(tmp_path, text.format(kind, count), f"{kind}.hlo")
        (program,) = read_programs(path, workers.compiling)
        assert program.nodes.opcodes.tolist()
    with pytest.raises(InputError, match="parameter.*0"):
        program.arguments  # noqa: B018
    (program,) = read_programs(large, workers.compiling)
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


@pytest.mark.parametrize("platform", ["cpu", "tpu"])
def test_callbacks_into_python_are_refused_by_name(
    platform: str, workers: Workers, tmp_path: Path
) -> None:
    text = f"{BEGIN}def program(x):\n    jax.debug.print('{{}}', x[0, 0])\n    return x @ x\n"
    with pytest.raises(InputError, match="calls back"):
        list(read_programs(write(tmp_path, text), workers.compiling, platform=platform))


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


@pytest.fixture(scope="module")
def program(workers: Workers, tmp_path_factory: pytest.TempPathFactory) -> Program:
    path = write(tmp_path_factory.mktemp("m"), TEXT, "m.hlo")
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


def test_arrays_are_found_by_the_names_in_a_python_program(
    workers: Workers, tmp_path: Path
) -> None:
    text = f"{BEGIN}def program(left, right):\n    return left @ right\narguments = (X, X)\n"
    (program,) = read_programs(write(tmp_path, text), workers.compiling)
    path, left, right = tmp_path / "arguments.npz", np.eye(32), np.ones((32, 32))
    np.savez(path, left=left, right=right)
    given = give_arguments(program, path, 100).given
    assert given is not None
    np.testing.assert_array_equal(given, [left, right])


def test_a_shortened_name_is_no_other_parameters(workers: Workers, tmp_path: Path) -> None:
    """x.1 and x.2 would both be x, y.1 would be y, and arr_0.5 parameter 0."""
    names = ["x.1", "x.2", "y", "y.1", "arr_0.5", "z.12"]
    lines = [f"  {name} = f32[] parameter({number})" for number, name in enumerate(names)]
    text = "HloModule m\nENTRY e {\n" + "\n".join(lines) + "\n  ROOT s = f32[] add(y, z.12)\n}\n"
    (program,) = read_programs(write(tmp_path, text, "m.hlo"), workers.compiling)
    path, kept = tmp_path / "arguments.npz", ["x.1", "x.2", "y", "y.1", "arr_0.5", "z"]
    np.savez(path, **{name: np.float32(number) for number, name in enumerate(kept)})
    given = give_arguments(program, path, 100).given
    assert given is not None and [float(array) for array in given] == [0, 1, 2, 3, 4, 5]
    np.savez(path, **{name: np.float32(0) for name in ("x", *kept[1:])})
    with pytest.raises(InputError, match=r"parameter 0, called 0 or arr_0 or x\.1, found none"):
        give_arguments(program, path, 100)


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
    with pytest.raises(InputError, match=f"arguments.npz: .*{words}") as raised:
        give_arguments(program, path, 100)
    check_advice(str(raised.value))


def check_advice(message: str) -> None:
    """A message says which arrays the program takes, and does not speak of data sets."""
    for wanted in ("0 or arr_0 or x", "bfloat16 (4, 8)", "1 or arr_1 or n", "int32 (3)"):
        assert wanted in message
    assert "folder" not in message and "savez" in message


def test_a_file_without_arrays_is_one_message(program: Program, tmp_path: Path) -> None:
    path = write(tmp_path, "no arrays", "arguments.npz")
    with pytest.raises(InputError, match="arguments.npz: .*npz") as raised:
        give_arguments(program, path, 100)
    check_advice(str(raised.value))
    with pytest.raises(InputError, match="other.npz") as raised:
        give_arguments(program, tmp_path / "other.npz", 100)
    check_advice(str(raised.value))


def test_a_new_jax_is_taken_and_an_old_one_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    for found in ("0.9.0", "0.10rc1", "0.12.1", "1"):
        monkeypatch.setattr(compiler, "version", lambda _, found=found: found)
        assert compiler.check_installed() == found
    for found in ("0.8.3", "0.4"):
        monkeypatch.setattr(compiler, "version", lambda _, found=found: found)
        with pytest.raises(InputError, match=f"jax {found} is older than 0.9"):
            compiler.check_installed()


PLAIN = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
SMALL = (ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.int4)
TYPES = st.sampled_from([*map(np.dtype, ("?", "i1", "u8", "f2", "f8", "c16")), *SMALL])
REFUSALS = st.builds(Refusal, st.text(), st.booleans())


@st.composite
def arrays(draw: st.DrawFn) -> np.ndarray:
    shape = draw(st_numpy.array_shapes(min_dims=0, min_side=0, max_side=3))
    return (np.arange(np.prod(shape, dtype=int)) % 2).reshape(shape).astype(draw(TYPES))


REPLIES = st.recursive(PLAIN | st.binary() | arrays() | REFUSALS, st.lists, max_leaves=6)


@given(REPLIES)
def test_a_reply_arrives_as_it_was_sent(reply: Any) -> None:
    reading, writing = Pipe(duplex=False)
    with reading, writing:
        send_reply(writing, reply)
        content = reading.recv_bytes()
    assert content.startswith(MARK)
    check_equal(decode_reply(bytearray(content[len(MARK) :])), reply)


def check_equal(found: Any, expected: Any) -> None:
    assert type(found) is type(expected)
    if isinstance(expected, list):
        for one, other in zip(found, expected, strict=True):
            check_equal(one, other)
    elif isinstance(expected, np.ndarray):
        assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
        assert found.tobytes() == expected.tobytes() and found.flags.writeable
    else:
        assert found == expected


@pytest.mark.parametrize("text", [
    "{", "{}", "[" * 100_000, '{"reply": "Child", "fields": []}', '{"bytes": "8"}',
    '{"reply": "Refusal", "fields": 3}', '{"array": ["O"], "shape": [1], "bytes": 8}',
    '{"array": "object", "shape": [1], "bytes": 8}', '{"array": "O,i4", "shape": [1], "bytes": 12}',
    '{"array": "float32", "shape": [9], "bytes": 8}',
])  # fmt: skip
def test_what_is_no_reply_is_refused(text: str) -> None:
    content = len(text).to_bytes(SIZE_BYTES) + text.encode() + bytes(16)
    with pytest.raises(ValueError, match="no reply"):
        decode_reply(bytearray(content))
