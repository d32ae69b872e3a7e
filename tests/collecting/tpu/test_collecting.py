"""Collecting for a TPU: the same files as for the CPU, and labels that say that they are estimates.

The real compiler is asked: these tests need the extra `tpu`.
"""

import os
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import polars as pl
import pytest

pytest.importorskip("libtpu", reason="the TPU's compiler comes with the extra `tpu`")


from solution.collecting.cpu import Workers
from solution.collecting.journal import CANDIDATE_FILE, STATE, read_state
from solution.collecting.tpu.kernels import VARIABLE
from solution.collecting.tpu.space import make_tpu_space
from solution.collecting.tpu.target import find_libtpu_version
from solution.data.npz import read_graph
from solution.domain.collection import collection
from solution.domain.vocabulary import TPU_OPTION_CHOICES
from solution.features.candidates import CHANGES
from solution.programs.hlo.messages import read_records
from solution.programs.program import Program
from solution.system.files import write_sealed
from solution.system.sealing import read_record
from tests.conftest import FastSlow, assert_refused, assert_said
from tests.made.timed import DENSE, read_file
from tests.processes import FASTSLOW

PLACE = "layout/xla/random/train"
LAYOUTS = ("collect", "layout", "--target", "tpu:v3", "--configs", "9", "--keep-flat")
SOURCE = f"estimated: tpu:v3, libtpu {find_libtpu_version()}"


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A cache of compilations for these tests alone, which start without one."""
    folder = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(VARIABLE, str(folder))
        yield folder


@pytest.fixture(scope="module")
def dense(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("programs") / "dense.py"
    path.write_text(DENSE, encoding="utf-8")
    return path


@pytest.fixture
def program(dense: Path, workers: Workers) -> Program:
    return read_file(dense, workers, "tpu")


@pytest.fixture(scope="module")
def collected(cache: Path, dense: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("collected")
    said = assert_said(FASTSLOW.run(*LAYOUTS, dense, "--out", out, cwd=out.parent))
    assert "Estimates" in said and "tpu:v3" in said and "Programs" in said
    assert "dense: " in said and "9 compilations will take" in said
    return out


def read_candidates(out: Path, kind: str = PLACE) -> pl.DataFrame:
    return pl.read_parquet(out / "log" / kind / "dense" / CANDIDATE_FILE)


def test_labels_say_everywhere_that_they_are_estimates(
    collected: Path, fastslow: FastSlow, tmp_path: Path
) -> None:
    npz, record = collected / "npz" / PLACE / "dense.npz", collected / "pb" / PLACE / "dense.pb"
    assert str(np.load(npz)["label_source"]) == SOURCE
    assert read_records(record)[0].label_source == SOURCE
    graph = read_graph(npz, collection("layout:xla:random"))
    assert graph.label_source == SOURCE and graph.num_configs == 9
    picture = ("--picture", tmp_path / "picture.png")
    for command in (("check", collected), ("inspect", npz, *picture), ("module", record),
                    ("collect", "report", collected)):  # fmt: skip
        assert "stimate" in assert_said(fastslow(*command)), command
    assert_said(fastslow("module", record, "--to", tmp_path))
    assert (tmp_path / "npz" / PLACE / "dense.npz").read_bytes() == npz.read_bytes()


def test_a_label_is_the_estimate_and_equal_programs_are_known_as_such(collected: Path) -> None:
    candidates, state = read_candidates(collected), read_state(collected / "log" / PLACE / "dense")
    graph = read_graph(collected / "npz" / PLACE / "dense.npz", collection("layout:xla:random"))
    assert graph.runtimes is not None
    assert graph.runtimes.tolist() == candidates["nanoseconds"].round().to_list()
    assert state["programs"] == candidates["program"].n_unique()
    estimates = candidates.group_by("program").agg(pl.col("nanoseconds").n_unique())
    assert (estimates["nanoseconds"] == 1).all()
    assert state["identity"]["target"] == "tpu:v3" and "machine" not in state["identity"]


def snapshot(out: Path) -> dict[str, bytes | str]:
    """What was collected; of the log all but the time that compiling took."""
    files: dict[str, bytes | str] = {
        str(path.relative_to(out)): path.read_bytes()
        for kind in ("npz", "pb")
        for path in sorted((out / kind).rglob("*.*"))
    }
    candidates = read_candidates(out).drop("compile_seconds")
    return files | {"log": repr(candidates.rows())}


@pytest.mark.parametrize(
    "kills", [2, pytest.param(10, marks=pytest.mark.slow)], ids=["twice", "ten times"]
)
def test_killed_and_continued_it_ends_with_the_same_bytes(
    collected: Path, dense: Path, tmp_path: Path, kills: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also in other processes that begin without a cache."""
    monkeypatch.setenv(VARIABLE, str(tmp_path / "cache"))
    words = (*LAYOUTS, dense, "--out", tmp_path / "out")
    log = tmp_path / "out/log" / PLACE / "dense" / CANDIDATE_FILE
    killed = 0
    for number in range(kills):
        process = FASTSLOW.start(*words, group=0)
        known = log.stat().st_mtime_ns if log.exists() else None
        while process.poll() is None and (
            not log.exists() or log.stat().st_mtime_ns == known or number % 3 == 2
        ):
            time.sleep(0.01)
            if number % 3 == 2 and log.exists():
                break
        killed += process.poll() is None
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    assert killed >= kills - 1
    assert_said(FASTSLOW.run(*words))
    assert snapshot(tmp_path / "out") == snapshot(collected)


def test_a_search_varies_the_fastest_estimates(
    cache: Path, dense: Path, fastslow: FastSlow, program: Program, tmp_path: Path
) -> None:
    """As layout:xla:default of TpuGraphs: a search around the fastest configurations so far."""
    words = ("--collection", "layout:xla:default", "--out", tmp_path)
    assert_said(fastslow(*LAYOUTS, dense, *words))
    place = "layout/xla/default/train"
    graph = read_graph(tmp_path / "npz" / place / "dense.npz", collection("layout:xla:default"))
    assert graph.label_source == SOURCE and graph.num_configs == 9
    candidates = read_candidates(tmp_path, place)
    space = make_tpu_space(program, "layouts")
    configs = np.array([space.from_bytes(data) for data in candidates["values"]])
    fastest = configs[:3][candidates["nanoseconds"][:3].arg_sort()]  # what the first round knew
    changed = (configs[3:, None] != fastest).sum(axis=2).min(axis=1)
    assert (changed <= CHANGES).mean() > 0.5


def test_options_of_a_tpu_are_collected_by_their_own_names(
    cache: Path, dense: Path, fastslow: FastSlow, tmp_path: Path
) -> None:
    words = ("--target", "tpu:v5e", "--configs", "8", "--keep-flat", "--out", tmp_path)
    assert_said(fastslow("collect", "options", dense, *words))
    npz = tmp_path / "npz" / PLACE / "dense.npz"
    graph = read_graph(npz, collection("layout:xla:random"))
    assert graph.option_names == tuple(TPU_OPTION_CHOICES)
    assert graph.label_source.startswith("estimated: tpu:v5e, libtpu")
    assert graph.options is not None and not graph.options[0].any() and graph.options[1:].any()
    assert_said(fastslow("check", tmp_path))
    table = tmp_path / "t.parquet"
    assert_said(fastslow("features", "layout:xla:random", "--data", tmp_path, "--out", table))
    assert any("vmem" in column for column in pl.read_parquet(table).columns)


@pytest.mark.parametrize(
    ("kind", "target", "fact"),
    [
        ("tile", "tpu:v3", "tile"),  # its compiler chooses tiles
        ("layout", "tpu:v8", "tpu:v5e"),  # there is no such target
        ("layout", "tpu:v5e", "tpu:v3"),  # the collection is of another target
        ("layout", "cpu", "tpu:v3"),
    ],
)
def test_another_target_is_refused_by_name(
    kind: str, target: str, fact: str, collected: Path, dense: Path, fastslow: FastSlow
) -> None:
    before = snapshot(collected)
    said = assert_refused(fastslow("collect", kind, dense, "--target", target, "--out", collected))
    assert target in said and fact in said
    assert snapshot(collected) == before and not list(collected.rglob("tile"))


def test_a_collection_by_other_rules_of_requests_is_not_gone_on_with(
    collected: Path, dense: Path, fastslow: FastSlow, tmp_path: Path
) -> None:
    shutil.copytree(collected, tmp_path / "old")
    (path,) = (tmp_path / "old" / "log" / PLACE).glob(f"*/{STATE}")
    state = read_record(path, "collection")
    del state["identity"]["request_rules"]
    write_sealed(state, path)
    before = read_candidates(tmp_path / "old")
    words = ("collect", "layout", dense, "--target", "tpu:v3", "--out", tmp_path / "old")
    said = assert_refused(fastslow(*words))
    assert "request_rules" in said and "--replace" in said
    assert before.equals(read_candidates(tmp_path / "old"))


def test_a_program_that_the_compiler_does_not_know_costs_only_itself(
    cache: Path, dense: Path, fastslow: FastSlow, tmp_path: Path
) -> None:
    foreign = tmp_path / "foreign.hlo"
    foreign.write_text(
        "HloModule m\nENTRY e {\n  a = f32[8,8] parameter(0)\n"
        '  b = f32[8,8] custom-call(a), custom_call_target="__cublas$gemm"\n'
        "  c = f32[64] reshape(b)\n"
        "  ROOT d = f32[8,8] dot(b, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}\n}\n"
    )
    out = tmp_path / "out"
    said = assert_refused(fastslow(*LAYOUTS, foreign, dense, "--out", out))
    assert "foreign" in said and "__cublas$gemm" in said
    assert (out / "npz" / PLACE / "dense.npz").is_file()


FUSED = """HloModule fused
f {
  p = f32[16,16]{1,0} parameter(0)
  ROOT t = f32[16,16]{1,0} tanh(p)
}
ENTRY main {
  a = f32[16,16]{1,0} parameter(0)
  b = f32[16,16]{1,0} fusion(a), kind=kLoop, calls=f
  ROOT d = f32[16,16]{1,0} dot(b, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}
"""
EMPTY = """HloModule empty
ENTRY main {
  a = f32[SIZE,4]{1,0} parameter(0)
  b = f32[4,8]{1,0} parameter(1)
  ROOT d = f32[SIZE,8]{1,0} dot(a, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}
"""
SCHEDULED = EMPTY.replace("SIZE", "6").replace("HloModule empty", "HloModule e, is_scheduled=true")


REFUSED = {  # by a program's name: its text, and what a message about it has to say
    "fused": (FUSED, ("fusion", "before_optimizations")),
    "scheduled": (SCHEDULED, ("scheduled", "before_optimizations")),
    "empty": (EMPTY.replace("SIZE", "0"), ("f32[0,8]",)),
}


def test_programs_without_an_estimate_are_refused(fastslow: FastSlow, tmp_path: Path) -> None:
    """The table does not call them timed."""
    paths = [tmp_path / f"{name}.hlo" for name in REFUSED]
    for path, (text, _) in zip(paths, REFUSED.values(), strict=True):
        path.write_text(text)
    done = fastslow("collect", "layout", *paths, "--target", "tpu:v3", "--out", tmp_path / "out")
    assert done.returncode == 2
    said = done.stderr[done.stderr.index("Error: ") :].splitlines()
    for line, (name, (_, facts)) in zip(said, REFUSED.items(), strict=True):
        assert f"{name}: " in line and all(fact in line for fact in facts), line
    assert "tpu:v3" in done.stdout and "Timed" not in done.stdout
    assert not list((tmp_path / "out").rglob("*.npz"))


def test_what_is_asked_for_fits_the_instruction(program: Program) -> None:
    """Of a reshape both tensors, and no data move; of a product the two most minor dimensions."""
    space = make_tpu_space(program, "layouts")
    for config in space.draw(np.random.default_rng(0), 50):
        layouts = space.layouts(config[None])[0]
        assert len(space.list_choices(config)) == (layouts >= 0).any(axis=(1, 2)).sum() > 0
    space.learn({(site, 2) for site in range(space.sites)})
    later = space.draw(np.random.default_rng(0), 50)
    assert {choice for config in later for _, choice in space.list_choices(config)} == {1}
