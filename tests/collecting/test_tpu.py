"""Estimates of the TPU's own compiler, on a machine without a TPU."""

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from benchmarks.fewest_compilations import PatientEstimator
from solution.collecting.target import parse_target
from solution.collecting.tpu import isolating
from solution.collecting.tpu.compiled import Cost, Tile
from solution.collecting.tpu.devices import find_entry_layouts
from solution.collecting.tpu.estimator import Answer, Estimator
from solution.collecting.tpu.kernels import FILE, VARIABLE, KernelCache
from solution.collecting.tpu.reading import count_bytes
from solution.collecting.tpu.target import DEVICES, TpuTarget
from solution.programs.arguments import TYPE_NAMES
from solution.programs.child import Limits
from solution.programs.compiler import Compiler, Flags
from solution.programs.hlo.messages import MESSAGES
from solution.system.errors import InputError
from tests.conftest import REPOSITORY
from tests.made.timed import HUGE

pytest.importorskip("libtpu", reason="the extra `tpu` is not installed: no TPU's compiler")

V3, V5E = TpuTarget("tpu:v3"), TpuTarget("tpu:v5e")


def enter(*lines: str) -> str:
    """The text of a module whose entry has these lines."""
    return "\n  ".join(("HloModule entered\nENTRY main {", *lines)) + "\n}\n"


SUMMED = "lhs_contracting_dims={1}, rhs_contracting_dims={0}"
BEGIN = (
    "left = f32[256,512] parameter(0)",
    "right = f32[512,384] parameter(1)",
    f"product = f32[256,384] dot(left, right), {SUMMED}",
)
PRODUCT = enter(*BEGIN, "ROOT result = f32[256,384] tanh(product)")
# The same program, other names.
RENAMED = PRODUCT.replace("product", "other").replace("result", "end").replace("entered", "renamed")
# Two products, one of them that of PRODUCT.
MORE = (*BEGIN, "last = f32[384,640] parameter(2)", "first = f32[256,384] tanh(product)")
TWICE = enter(*MORE, f"ROOT end = f32[256,640] dot(first, last), {SUMMED}")
# Three products, and a transpose that is a copy. On v5e it reads what stays in VMEM.
THRICE = enter(
    *MORE,
    f"second = f32[256,640] dot(first, last), {SUMMED}",
    "third = f32[384,384] dot(first, first), lhs_contracting_dims={0}, rhs_contracting_dims={0}",
    "turned = f32[640,256]{1,0} transpose(second), dimensions={1,0}",
    "ROOT end = (f32[384,384], f32[256,640], f32[640,256]{1,0}) tuple(third, second, turned)",
)
WITHOUT_COPY = THRICE.replace("f32[640,256]{1,0} transpose", "f32[640,256]{0,1} transpose").replace(
    ", f32[640,256]{1,0}) tuple(third, second, turned)", ") tuple(third, second)"
)
LOOP = """HloModule loop
body {
  before = (s32[], f32[256,256]{1,0}) parameter(0)
  count = s32[] get-tuple-element(before), index=0
  one = s32[] constant(1)
  next = s32[] add(count, one)
  value = f32[256,256]{1,0} get-tuple-element(before), index=1
  product = f32[256,256]{1,0} dot(value, value), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT after = (s32[], f32[256,256]{1,0}) tuple(next, product)
}
condition {
  state = (s32[], f32[256,256]{1,0}) parameter(0)
  counter = s32[] get-tuple-element(state), index=0
  bound = s32[] constant(7)
  ROOT less = pred[] compare(counter, bound), direction=LT
}
ENTRY main {
  start = f32[256,256]{1,0} parameter(0)
  zero = s32[] constant(0)
  state = (s32[], f32[256,256]{1,0}) tuple(zero, start)
  end = (s32[], f32[256,256]{1,0}) while(state), condition=condition, body=body
  ROOT value = f32[256,256]{1,0} get-tuple-element(end), index=1
}
"""
EIGHT = """HloModule eight, replica_count=8
add {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT sum = f32[] add(a, b)
}
ENTRY main {
  value = f32[256,512]{1,0} parameter(0)
  ROOT all = f32[256,512]{1,0} all-reduce(value), replica_groups={{0,1,2,3,4,5,6,7}}, to_apply=add
}
"""
HALVES = """HloModule halves, num_partitions=2
add {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT sum = f32[] add(a, b)
}
ENTRY main {
  left = f32[64,128]{1,0} parameter(0)
  right = f32[128,128]{1,0} parameter(1)
  part = f32[64,128]{1,0} dot(left, right), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT all = f32[64,128]{1,0} all-reduce(part), channel_id=1, replica_groups={{0,1}},
    use_global_device_ids=true, to_apply=add
}
"""
NAME_DEVICES = """import sys
from pathlib import Path
from solution.collecting.tpu.libtpu import Libtpu, prepare_environment
from solution.collecting.tpu.target import TpuTarget
prepare_environment(Path(sys.argv[1]))
for name in sys.argv[2:]:
    print(Libtpu(TpuTarget(name))._smallest[0].device_kind)
"""
SHARDY = enter(
    "value = f32[64,128] parameter(0)",
    'part = f32[32,128] custom-call(value), custom_call_target="xla.sdy.GlobalToLocalShape"',
    "ROOT end = f32[32,128] tanh(part)",
)
WIDE = enter("value = f64[16] parameter(0)", "ROOT end = f64[16] tanh(value)")
CALL = enter(
    "value = f32[4,4] parameter(0)",
    "ROOT end = (f32[4,4]{0,1}, s32[4], s32[]) custom-call(value),"
    ' custom_call_target="lapack_sgetrf_ffi"',
)
TURNED = enter("value = f32[256,384]{0,1} parameter(0)", "ROOT end = f32[256,384]{1,0} tanh(value)")


def parse(text: str) -> bytes:
    return Compiler().parse_hlo(text)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def estimator(folder: Path) -> Iterator[PatientEstimator]:
    with PatientEstimator(V3, cache=folder) as opened:
        yield opened


def test_a_known_kernel_costs_no_full_compilation(
    estimator: PatientEstimator, folder: Path
) -> None:
    estimator.estimate_all([parse(PRODUCT), parse(TWICE)])
    module = parse(TWICE.replace("first", "middle"))
    quick = estimator.estimate(module)
    with Estimator(V3, cache=folder, is_always_full=True) as other:
        full = other.estimate(module)
    assert (quick.is_full, full.is_full) == (False, True)
    assert quick.nanoseconds == full.nanoseconds and quick.compiled == full.compiled
    assert estimator.conflicts == other.conflicts == 0


@pytest.mark.parametrize("target", [V3, V5E], ids=["v3", "v5e"])
def test_a_new_kernel_compiled_alone_costs_the_same(tmp_path: Path, target: TpuTarget) -> None:
    modules = [parse(text) for text in (WITHOUT_COPY, THRICE)]
    with Estimator(target, cache=tmp_path / "quick") as other:
        first, quick = (other.estimate(module) for module in modules)
    with Estimator(target, cache=tmp_path / "full", is_always_full=True) as other:
        full = other.estimate(modules[1])
    assert (first.is_full, first.isolated) == (True, 0)
    assert not quick.is_full
    assert 1 <= quick.isolated < len(_compiled(quick).kernels)
    assert quick.nanoseconds == full.nanoseconds and quick.compiled == full.compiled
    if target == V5E:
        assert any("S(1)" in tensor.layout for tensor in _compiled(quick).tensors)


def test_what_cannot_be_compiled_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It costs a full compilation."""
    monkeypatch.setattr(isolating, "NOT_ALONE", {"copy"})
    with Estimator(V3, cache=tmp_path) as other:
        other.estimate(parse(WITHOUT_COPY))
        answer = other.estimate(parse(THRICE))
    assert (answer.is_full, answer.isolated) == (True, 0)
    assert answer.nanoseconds


def test_of_several_some_are_compiled_in_full(estimator: Estimator, tmp_path: Path) -> None:
    """Of several modules; in another process and without a cache, each estimate is the same."""
    modules = [parse(text) for text in (PRODUCT, TWICE, WIDE, RENAMED)]
    with PatientEstimator(V3, cache=tmp_path) as other:
        (unknown,) = other.estimate_all(modules[:1], 0)
        assert unknown.nanoseconds is None and "its kernels" in unknown.refused
        answers = other.estimate_all(modules)
    assert answers[1].is_full  # it has more of them than the first
    assert not answers[3].is_full and answers[0].program == answers[3].program
    assert answers[0].nanoseconds and answers[0].nanoseconds == answers[3].nanoseconds
    assert "f64" in answers[2].refused
    alone = [estimator.estimate(module) for module in modules]
    assert [a.nanoseconds for a in answers] == [a.nanoseconds for a in alone]
    assert [a.program for a in answers] == [a.program for a in alone]


def test_two_processes_share_the_cache(estimator: Estimator, folder: Path) -> None:
    estimator.estimate(parse(PRODUCT))
    with Estimator(V3, cache=folder) as other:
        answer = other.estimate(parse(PRODUCT))
        assert answer.processor_seconds < 0.1  # nothing was compiled
        assert answer.nanoseconds
        # Options and targets have costs of their own.
        changed = other.estimate(parse(PRODUCT), [("xla_tpu_scoped_vmem_limit_kib", 4096)])
        assert changed.is_full
    with Estimator(V5E, cache=folder) as newer:
        assert newer.estimate(parse(PRODUCT)).nanoseconds < answer.nanoseconds


def test_what_was_compiled_is_described(estimator: Estimator) -> None:
    compiled = _compiled(estimator.estimate(parse(PRODUCT)))
    (kernel,) = compiled.kernels
    assert kernel.kind == "convolution"  # as which this compiler writes products
    assert kernel.shapes == ("f32[256,384]{1,0:T(8,128)}",)
    assert kernel.cost.cycles is not None
    assert kernel.cost.tile is not None and all(kernel.cost.tile.output)
    sizes = np.array([256 * 512, 512 * 384, 256 * 384]) * 4
    assert kernel.bytes == kernel.hbm_bytes == sizes.sum()
    assert compiled.memory_bytes >= sizes.sum()


def test_a_layout_of_the_entry_is_copied_or_kept(estimator: Estimator) -> None:
    module = parse(TURNED)
    layouts = find_entry_layouts(MESSAGES["Module"].FromString(module))
    assert layouts == (("{0,1}",), ("{1,0}",))
    kept, plain = estimator.estimate(module, layouts=layouts), estimator.estimate(module)
    (copy,) = _compiled(kept).copies
    assert copy.source_layout == "{0,1:T(8,128)}" and copy.target_layout == "{1,0:T(8,128)}"
    assert copy.bytes == 256 * 384 * 4 and copy.cycles
    assert not copy.is_beside
    assert _compiled(plain).copies == ()
    assert kept.nanoseconds > plain.nanoseconds
    entry = {tensor.opcode: tensor for tensor in _compiled(kept).tensors if not tensor.is_fused}
    assert entry["parameter"].minor_to_major == (0, 1)


def test_a_loop_takes_its_trips(estimator: Estimator) -> None:
    seven = _compiled(estimator.estimate(parse(LOOP)))
    assert {kernel.trips for kernel in seven.kernels if kernel.kind == "convolution"} == {7}
    nine = estimator.estimate(parse(LOOP.replace("constant(7)", "constant(70)")))
    assert {k.trips for k in _compiled(nine).kernels if k.kind == "convolution"} == {70}
    assert nine.nanoseconds > 5 * estimator.estimate(parse(LOOP)).nanoseconds


def test_too_little_memory_is_an_answer(estimator: Estimator) -> None:
    answer = estimator.estimate(parse(HUGE))
    assert answer.nanoseconds is None and answer.is_out_of_memory
    assert "48.00G" in answer.refused  # that it wanted
    assert estimator.estimate(parse(PRODUCT)).nanoseconds


def test_a_module_in_a_dump_has_the_same_estimate(estimator: Estimator) -> None:
    module = parse(PRODUCT)
    dump = MESSAGES["OptimisedModule"](module=MESSAGES["Module"].FromString(module))
    found = estimator.estimate(dump.SerializeToString())
    assert found.nanoseconds and found.nanoseconds == estimator.estimate(module).nanoseconds
    module = parse(PRODUCT.replace("256", "248"))  # not in the cache
    dump = MESSAGES["OptimisedModule"](module=MESSAGES["Module"].FromString(module))
    assert estimator.estimate(dump.SerializeToString()).nanoseconds


def test_several_chips_take_a_topology_that_has_them(estimator: Estimator) -> None:
    assert estimator.estimate(parse(EIGHT)).nanoseconds
    sixteen = EIGHT.replace("6,7}", "6,7,8,9,10,11,12,13,14,15}").replace("=8", "=16")
    assert estimator.estimate(parse(sixteen)).nanoseconds
    too_many = EIGHT.replace("6,7}", f"6,{','.join(map(str, range(7, 9000)))}}}")
    assert "9,000" in estimator.estimate(parse(too_many)).refused


@pytest.mark.parametrize("target", [V3, V5E], ids=["v3", "v5e"])
def test_partitions_are_compiled_for_as_many_chips(tmp_path: Path, target: TpuTarget) -> None:
    alone = HALVES.replace("{{0,1}}", "{{0}}")
    with Estimator(target, cache=tmp_path) as other:
        both, one = (other.estimate(parse(text)) for text in (HALVES, alone))
    assert not both.refused and not one.refused
    assert both.compiled != one.compiled


def test_the_devices_of_each_generation_have_the_names_that_libtpu_gives(tmp_path: Path) -> None:
    """In another process, because libtpu changes the one that loads it."""
    names = [f"tpu:{generation}" for generation in DEVICES]
    done = subprocess.run(
        [sys.executable, "-c", NAME_DEVICES, tmp_path, *names],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.splitlines() == [known[0] for known in DEVICES.values()]


def test_what_a_tpu_does_not_have_is_refused_at_once_by_name(estimator: Estimator) -> None:
    """So is what is no program, and one that is optimised for the CPU."""
    optimised = Compiler().compile(parse(TWICE), Flags()).optimised()
    for module, expected in (
        (parse(WIDE), "f64"),
        (parse(WIDE.replace("f64", "c128")), "c128"),
        (parse(CALL), "lapack_sgetrf_ffi"),
        (parse(SHARDY), "jax.shard_map"),
        (parse(SHARDY.replace("GlobalToLocalShape", "FuncResultSharding")), "out out_shardings"),
        (optimised, "optimised already"),
        *((module, "") for module in (b"", b"no module", MESSAGES["Module"]().SerializeToString())),
    ):
        answer = estimator.estimate(module)
        assert answer.nanoseconds is None
        assert answer.refused and expected in answer.refused
        assert answer.processor_seconds < 0.1


def test_a_compilation_that_takes_long_costs_one_answer(estimator: Estimator, folder: Path) -> None:
    module = parse(PRODUCT.replace("256", "264"))
    with Estimator(V3, Limits(seconds=0.01), cache=folder) as limited:
        answer = limited.estimate(module)
    assert answer.nanoseconds is None and "0.01 seconds" in answer.refused
    assert estimator.estimate(module).nanoseconds  # a limit is not remembered


def test_memory_that_does_not_suffice_for_the_compiler_alone_is_refused(folder: Path) -> None:
    module = parse(PRODUCT.replace("256", "272"))  # not in the cache
    limits = Limits(megabytes=1)
    with Estimator(V3, limits, cache=folder) as limited, pytest.raises(InputError, match="1 MB"):
        limited.estimate(module)


def test_a_damaged_cache_is_named(tmp_path: Path) -> None:
    (tmp_path / FILE).write_bytes(b"no database " * 1000)
    with pytest.raises(InputError) as caught:
        Estimator(V3, cache=tmp_path)
    assert str(tmp_path / FILE) in str(caught.value)
    (tmp_path / FILE).unlink()
    cache = KernelCache(tmp_path)
    cache.learn("context", {str(number): Cost(number) for number in range(3000)})
    cache.keep_compilation("key", "", b"passed")
    cache.close()
    with (tmp_path / FILE).open("r+b") as file:  # what lies behind the tables' descriptions
        size = file.seek(0, os.SEEK_END)
        file.seek(8192)
        file.write(os.urandom(size - 8192))
    cache = KernelCache(tmp_path)
    for ask in (
        lambda: cache.find("context", ["7", "2999"]), lambda: cache.find_compilation("key"),
        lambda: cache.learn("context", {"new": Cost(1)}),
        lambda: cache.keep_compilation("other", "", b"passed"),
    ):  # fmt: skip
        with pytest.raises(InputError, match=VARIABLE):
            ask()


def test_threads_share_one_cache(tmp_path: Path) -> None:
    cache = KernelCache(tmp_path)
    costs = {f"kernel {number}": Cost(number, Tile((number,))) for number in range(100)}
    with ThreadPoolExecutor(4) as pool:
        assert sum(pool.map(lambda _: cache.learn("context", costs), range(20))) == 0
        assert all(
            found == costs for found in pool.map(lambda _: cache.find("context", costs), "ab")
        )
    assert cache.learn("context", {"kernel 7": Cost(8)}) == 1
    assert cache.find("context", ["kernel 7"]) == {"kernel 7": costs["kernel 7"]}
    assert cache.find("another", costs) == {}
    cache.close()


def test_a_compiler_that_dies_is_started_again(tmp_path: Path) -> None:
    known = psutil.Process().children()
    with Estimator(V3, cache=tmp_path) as opened:
        first = opened.estimate(parse(PRODUCT))
        (child,) = set(psutil.Process().children()) - set(known)
        child.kill()
        second = opened.estimate(parse(TWICE))
        third = opened.estimate(parse(TWICE))
    assert first.nanoseconds
    assert second.nanoseconds or "process" in second.refused
    assert third.nanoseconds


def test_several_are_compiled_side_by_side_in_order(tmp_path: Path) -> None:
    texts = [PRODUCT.replace("256", str(size)) for size in (128, 512, 1024)]
    modules = [(parse(text), (), None) for text in texts]
    with Estimator(V3, cache=tmp_path, processes=2) as opened:
        answers = list(opened.estimate_many(modules))
        alone = [opened.estimate(*module) for module in modules]
    assert [a.nanoseconds for a in answers] == [a.nanoseconds for a in alone]
    assert sorted(a.nanoseconds or 0 for a in answers) == [a.nanoseconds for a in answers]


def test_nothing_is_written_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home, scratch, lock = tmp_path / "home", tmp_path / "scratch", Path("/tmp/libtpu_lockfile")
    for folder in (home, scratch):
        folder.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    before = lock.exists() and lock.stat().st_mtime_ns
    with Estimator(V3, cache=tmp_path / "cache") as opened:
        assert opened.estimate(parse(PRODUCT)).nanoseconds
    assert (lock.exists() and lock.stat().st_mtime_ns) == before
    assert not [*home.iterdir(), *scratch.iterdir()]


def test_what_a_killed_process_left_the_next_one_removes(tmp_path: Path) -> None:
    code = f"""
import time
from pathlib import Path
from solution.collecting.tpu.target import TpuTarget
from solution.collecting.tpu.estimator import Estimator

with Estimator(TpuTarget("tpu:v3"), cache=Path({str(tmp_path / "cache")!r})) as opened:
    print(opened.estimate(b"no module").refused, flush=True)
    if {{wait}}:
        time.sleep(100)
"""
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    environment = {**os.environ, "TMPDIR": str(scratch)}
    environment.pop("FASTSLOW_TEMPORARY", None)

    def start(*, wait: bool) -> "subprocess.Popen[bytes]":
        called = [sys.executable, "-c", code.format(wait=wait)]
        return subprocess.Popen(called, cwd=REPOSITORY, env=environment, stdout=subprocess.PIPE)

    killed = start(wait=True)
    assert killed.stdout is not None and killed.stdout.readline()
    killed.kill()
    killed.wait()
    assert list(scratch.iterdir())
    assert start(wait=False).wait(60) == 0
    assert not list(scratch.iterdir())


def test_signals_end_a_process_with_libtpu_and_its_children_as_before(tmp_path: Path) -> None:
    """libtpu ignores SIGHUP as it is loaded, and children would inherit that."""
    code = f"""
import signal
from pathlib import Path
from solution.collecting.tpu import isolating
from solution.collecting.tpu.target import TpuTarget
from solution.collecting.tpu.libtpu import Libtpu, prepare_environment

for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
    signal.signal(number, signal.SIG_DFL)
prepare_environment(Path({str(tmp_path)!r}))
Libtpu(TpuTarget("tpu:v3"))
print(Path("/proc/self/status").read_text())
"""
    said = subprocess.check_output([sys.executable, "-c", code], cwd=REPOSITORY, text=True)
    found = dict(line.split(":", 1) for line in said.splitlines() if line.startswith("Sig"))
    for held in ("SigIgn", "SigCgt"):
        numbers = [n for n in range(1, 65) if int(found[held], 16) >> (n - 1) & 1]
        assert not {signal.SIGHUP, signal.SIGINT, signal.SIGTERM} & set(numbers), held


@pytest.mark.parametrize(
    ("name", "bits"), [("f4e2m1fn", 4), ("s4", 4), ("f8e4m3fn", 8), ("bf16", 16), ("pred", 8)]
)
def test_an_array_takes_the_bytes_of_its_type(name: str, bits: int) -> None:
    shape = MESSAGES["Shape"](element_type=TYPE_NAMES.index(name), dimensions=[16])
    shape.layout.minor_to_major.append(0)
    assert count_bytes(shape) == 16 * bits // 8


def test_the_cpu_is_not_estimated(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cpu"):
        Estimator(parse_target("cpu"), cache=tmp_path)


def _compiled(answer: Answer) -> Any:
    assert answer.compiled is not None, answer.refused
    return answer.compiled
