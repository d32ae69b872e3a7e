"""A configuration counts as sound only if the comparison would notice a wrong one."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from benchmarks.nonsense import count, examine
from solution.collecting.child import Compile, Tell
from solution.collecting.comparison import can_jump, can_tell_apart, find_deviation, find_doubtful
from solution.collecting.cpu import Builder, Workers
from solution.collecting.mutants import Kind, make_mutants
from solution.collecting.program_space import TILES, make_collected_space
from solution.programs.arguments import MANNERS, find_roles, make_arguments
from solution.programs.child import Child
from solution.programs.compiler import Compiler, Flags
from solution.programs.hlo.messages import MESSAGES
from solution.programs.program import Program
from solution.system.errors import InputError
from tests.made.timed import find_tile, read_file, read_text

CASES = Path(__file__).parent / "cases"
TYPES = "f8e5m2 f8e4m3fn f8e4m3b11fnuz f8e5m2fnuz f8e4m3fnuz f8e4m3 f8e3m4 f4e2m1fn f8e8m0fnu "
TYPES += "s4 u4 s2 u2 bf16 f16 f32 f64 c64 s8 u64 pred"
BLIND = {
    "are 0": "zero = f32[] constant(0)\n  z = f32[8,64] broadcast(zero), dimensions={}\n"
    "  ROOT r = f32[8,64] multiply(p, z)",
    "results are 0": "zero = f32[] constant(0)\n  z = f32[8,64] broadcast(zero), dimensions={}\n"
    "  q = f32[8,64] multiply(p, p)\n  ROOT r = pred[8,64] compare(q, z), direction=LT",
    "NaN": "one = f32[] constant(-1)\n  o = f32[8,64] broadcast(one), dimensions={}\n"
    "  s = f32[8,64] sqrt(o)\n  ROOT r = f32[8,64] add(p, s)",
    "constant": "one = f32[] constant(1)\n  ROOT r = f32[8,64] broadcast(one), dimensions={}",
}
PRODUCT = """
HloModule product
ENTRY main {{
  x = f32[8,48] parameter(0)
  w = f32[48,64] parameter(1)
  p = f32[8,64] dot(x, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
  {}
}}
"""
SWITCHED = """
import jax
import jax.numpy as jnp
import numpy as np

def program(x, w):
    y = jax.lax.fori_loop(0, 2, lambda _, y: jnp.tanh(y @ w), x)
    y = jax.lax.cond(y.sum() > 1e9, lambda y: y, lambda y: y @ w, y)
    return jax.jit(lambda y: y @ w.T)(y)

draw = np.random.default_rng(0).standard_normal
arguments = draw((8, 24), np.float32), draw((24, 24), np.float32) / 5
"""


@pytest.mark.parametrize("name", ["plain", "rooted", "finite", "wide", "half", "narrow"])
def test_tiles_that_compute_nonsense_are_found_wrong(name: str, workers: Workers) -> None:
    """Dots, also of roots of negative numbers; results in 16 and in 8 bits."""
    assert_told(read_file(CASES / f"{name}.hlo", workers), (4, 4, 4), (4, 4, 1), workers)


def assert_told(
    program: Program, wrong: tuple[int, ...], sound: tuple[int, ...], workers: Workers
) -> None:
    """Of two tiles, the one with wrong results."""
    space = make_collected_space(program, TILES)
    builder = Builder(workers.compiling, program, needs_edges=True)
    for tile, expected in ((wrong, "wrong"), (sound, "sound")):
        built = builder.build(Compile(*space.prepare(find_tile(space, tile))))
        assert built[0] == expected, built
        assert bool(built[2].executable) == (expected == "sound")  # a wrong one is never timed


@pytest.mark.parametrize("result", ["mod(p, 1e-3)", "floor(100 * p)", "argmax(p, -1)"])
def test_jumps_tell_right_tiles_from_wrong(result: str, workers: Workers, tmp_path: Path) -> None:
    """Another order of the sums moves some of them by any amount."""
    text = (
        "import jax\nimport jax.numpy as jnp\n"
        f"def program(x, w):\n    p = x @ w\n    return jnp.{result}\n"
        "arguments = tuple(jax.ShapeDtypeStruct(s, 'float32') for s in ((33, 100), (100, 40)))\n"
    )
    program = read_text(text, tmp_path / "jumps.py", workers)
    assert can_jump(program.module)
    assert_told(program, (4, 2, 4), (4, 4, 1), workers)


def test_numbers_next_to_a_jump_are_not_compared() -> None:
    x = np.array([0.30000001, 0.4, 0.5, 1.0, 0.0], np.float32)
    bounds = np.array([0.3, 0.3, 0.3, 1.0, 0.0], np.float32)

    def run(given: Sequence[np.ndarray]) -> list[np.ndarray]:
        return [given[0] > bounds, given[0] * 2]

    above, doubled = run([x])
    masks = find_doubtful(run, [x], [above, doubled])
    assert masks[0].tolist() == [True, False, False, False, False]  # whole numbers are exact
    assert not masks[1].any()
    flipped = above ^ masks[0]
    assert find_deviation([flipped, doubled], [above, doubled], None, masks) == ""
    assert not can_tell_apart([flipped, doubled], [above, doubled], None, masks)
    assert find_deviation([~above, doubled], [above, doubled], None, masks).startswith(
        "result 0: 4"
    )


@pytest.mark.parametrize(("line", "jumps"), [
    ("ROOT r = f32[4] floor(x)", True), ("ROOT r = s32[4] convert(x)", True),
    ("ROOT r = f16[4] convert(x)", False), ("ROOT r = f32[4] tanh(x)", False),
    ("n = s32[4] parameter(1)\n  ROOT r = pred[4] compare(n, n), direction=LT", False),
])  # fmt: skip
def test_a_program_jumps_where_floats_are_rounded_or_compared(line: str, jumps: bool) -> None:
    text = f"HloModule m\nENTRY e {{\n  x = f32[4] parameter(0)\n  {line}\n}}\n"
    assert can_jump(MESSAGES["Module"].FromString(Compiler().parse_hlo(text))) == jumps


@pytest.mark.slow
def test_no_wrong_result_of_a_random_program_is_sound(workers: Workers, tmp_path: Path) -> None:
    """Runs five programs of the benchmark's 200."""
    rows = [examine(number, tmp_path, workers.compiling) for number in range(5)]
    counts = count(rows)
    assert counts["nonsense"] > 5 and counts["nonsense called wrong"]
    assert counts["nonsense called sound"] == counts["right called wrong"] == 0


def test_a_variance_that_is_a_parameter_is_drawn_positive(workers: Workers) -> None:
    program = read_file(CASES / "normalised.hlo", workers)
    roles = find_roles(program.module)
    assert [role.is_positive for role in roles] == [False, False, False, True, False, False, False]
    assert [role.terms for role in roles] == [1, 48, 1, 1, 1, 1, 64]
    builder = Builder(workers.compiling, program)
    builder.open()
    assert (builder.arguments[3] > 0).all() and builder.note == ""
    values = Compiler().compile(program.plain, Flags())
    assert np.isfinite(values.run(Compiler().place(builder.arguments))[0]).all()


def test_roles_are_found_through_calls_loops_and_tuples(workers: Workers, tmp_path: Path) -> None:
    text = (
        "import jax\nimport jax.numpy as jnp\n"
        "def root(v):\n    return 1 / jnp.sqrt(v + 1e-5)\n"
        "def program(x, v, n):\n"
        "    def step(_, s):\n        return s[0] * jax.jit(root)(s[1]), s[1]\n"
        "    return jax.lax.fori_loop(0, 2, step, (x, v))[0] + n\n"
        "arguments = tuple(jnp.ones(4) for _ in range(3))\n"
    )
    program = read_text(text, tmp_path / "loop.py", workers)
    assert [role.is_positive for role in find_roles(program.module)] == [False, True, False]


@pytest.mark.parametrize("words", ["are 0", "NaN", "constant", "results are 0"])
def test_useless_results_are_refused(words: str, workers: Workers, tmp_path: Path) -> None:
    program = read_text(PRODUCT.format(BLIND[words]), tmp_path / "written.hlo", workers)
    with pytest.raises(InputError, match=f"written: .*{words}.*--arguments FILE.npz"):
        Builder(workers.compiling, program).open()


def test_a_program_that_never_repeats_is_refused_before_comparing(workers: Workers) -> None:
    with pytest.raises(InputError, match="noisy: .*same arguments.*2,048 numbers"):
        Builder(workers.compiling, read_file(CASES / "noisy.py", workers)).open()


def test_ones_are_timed_and_other_numbers_compared(workers: Workers, tmp_path: Path) -> None:
    """Swapped columns are not noticed if all columns are the same."""
    text = (
        "import numpy as np\ndef program(x, w):\n    return x @ w\n"
        "arguments = np.ones((64, 48), np.float32), np.ones((48, 70), np.float32)\n"
    )
    builder = Builder(workers.compiling, read_text(text, tmp_path / "ones.py", workers))
    builder.open()
    assert (builder.arguments[0] == 1).all() and (builder.arguments[1] == 1).all()
    text = text.replace("@ w", "@ w[:, ::-1]")
    turned = read_text(text, tmp_path / "turned.py", workers)
    status, note, _ = builder.build(Compile(turned.plain, Flags()))
    assert (status, note[:20]) == ("wrong", "with other arguments")


def test_a_step_of_training_is_compared_closely(workers: Workers, tmp_path: Path) -> None:
    """The change of the weights is a thousandth of the tolerance for other programs."""
    text = (
        "import numpy as np\nimport jax.numpy as jnp\n"
        "def program(x, w):\n    return w - 1e-6 * jnp.tanh(x.T @ (x @ w))\n"
        "draw = np.random.default_rng(0).standard_normal\n"
        "arguments = draw((8, 16), np.float32), draw((16, 32), np.float32)\n"
    )
    program = read_text(text.replace("1e-6", "1e-4"), tmp_path / "step.py", workers)
    builder = Builder(workers.compiling, program)
    builder.open()
    assert builder.build(Compile(program.plain, Flags()))[0] == "sound"
    other = read_text(text.replace("1e-6", "0.9e-4"), tmp_path / "other.py", workers)
    assert builder.build(Compile(other.plain, Flags()))[0] == "wrong"


def test_mutants_reach_all_and_change_nothing_when_off(workers: Workers, tmp_path: Path) -> None:
    program = read_text(SWITCHED, tmp_path / "switched.py", workers)
    mutants = make_mutants(program.module)
    assert len(mutants.sites) == 3
    compiler = Compiler()
    assert program.given is not None
    plain = compiler.compile(program.plain, Flags()).run(compiler.place(program.given))[0]
    spoiled = compiler.compile(mutants.module, Flags())

    def run(*on: int) -> np.ndarray:
        switches = np.zeros(mutants.switches, bool)
        switches[list(on)] = True
        return spoiled.run(compiler.place([*program.given, switches]))[0]

    np.testing.assert_allclose(run(), plain, rtol=1e-5, atol=1e-5)
    for site in mutants.sites:
        for number, kind in enumerate(site.kinds, site.first):
            assert np.abs(run(number) - plain).max() > 0.01, (site, kind)
    last = mutants.sites[0]  # the program's result
    zero, shifted, reversed_ = (
        run(last.first + last.kinds.index(kind)) for kind in (Kind.ZERO, Kind.SHIFT, Kind.REVERSE)
    )
    np.testing.assert_allclose(zero[:, -3:], np.zeros((8, 3)))
    np.testing.assert_allclose(shifted[:, -3:], plain[:, -6:-3], rtol=1e-5)
    np.testing.assert_allclose(reversed_, plain[::-1, ::-1], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", TYPES.split())
def test_numbers_are_drawn_of_every_type(kind: str, workers: Workers) -> None:
    compiler = Compiler()
    text = f"HloModule m\nENTRY e {{ ROOT p = {kind}[8,16] parameter(0) }}\n"
    module = MESSAGES["Module"].FromString(compiler.parse_hlo(text))
    for manner in MANNERS:
        (drawn,) = make_arguments(module, "m", manner)
        numbers = drawn.astype(np.complex128 if kind == "c64" else np.float64)
        assert np.isfinite(numbers).all()
        assert len(np.unique(numbers)) > 1 or manner.scale < 1  # narrow types round these to 0
        (same,) = compiler.compile(module.SerializeToString(), Flags()).run(compiler.place([drawn]))
        assert same.dtype == drawn.dtype
        np.testing.assert_array_equal(same.view(np.uint8), drawn.view(np.uint8))


@pytest.mark.parametrize("name", ["eight.hlo", "eight.py"])
def test_eight_bit_floats_are_collected(name: str, workers: Workers) -> None:
    builder = Builder(workers.compiling, read_file(CASES / name, workers))
    builder.open()
    assert {array.dtype.name for array in builder.arguments} == {"float8_e4m3fn"}


@pytest.mark.parametrize(("sizes", "amount"), [("[2500000000,2]", "19,073 MB"),
                                               ("[3037000500,3037000500]", "alone")])  # fmt: skip
def test_arguments_larger_than_the_memory_are_refused_before_they_are_drawn(
    sizes: str, amount: str, workers: Workers, tmp_path: Path
) -> None:
    text = f"HloModule m\nENTRY e {{ ROOT p = f32{sizes} parameter(0) }}\n"
    program = read_text(text, tmp_path / "written.hlo", workers)
    with pytest.raises(InputError, match=f"parameter 0 .*{amount}.*--megabytes"):
        Builder(workers.compiling, program).open()


def test_a_killed_child_is_replaced(workers: Workers, monkeypatch: pytest.MonkeyPatch) -> None:
    """The child is killed at each request in turn, as by the system when memory runs out."""
    program = read_file(CASES / "rooted.hlo", workers)
    ask, asked = Child.ask, list[object]()

    def ask_and_kill(child: Child, request: object, seconds: float | None = None) -> object:
        asked.append(request)
        if len(asked) == moment:
            child.end()
            child._start()
            child._process.kill()
        return ask(child, request, seconds)

    for moment in range(1, 6):
        asked.clear()
        with monkeypatch.context() as patch:
            patch.setattr(Child, "ask", ask_and_kill)
            Builder(workers.compiling, program, needs_edges=True).open()
        assert len(asked) > moment
    assert any(isinstance(request, Tell) for request in asked)
