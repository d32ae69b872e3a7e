"""`fastslow choose --target tpu:...`: the compiler estimates, and nothing claims to be faster.

The real compiler is asked: these tests need the extra `tpu`.
"""

import json
import os
import runpy
import signal
import time
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import kendalltau

pytest.importorskip("libtpu", reason="the TPU's compiler comes with the extra `tpu`")

from solution.choosing.estimated import Estimates, find_limit, find_memory
from solution.choosing.handing import CHOICE, MODULE
from solution.choosing.in_jax import SNIPPET
from solution.choosing.journal import RECORD, Journal, Trial
from solution.choosing.live_prior import open_prior
from solution.choosing.savings import GONE, NEW, compare_compiled
from solution.choosing.tpu_files import FILES
from solution.choosing.verify import VERDICT
from solution.collecting.cpu import Workers
from solution.collecting.tpu.duration import Duration
from solution.collecting.tpu.estimator import Answer, Estimator
from solution.collecting.tpu.kernels import VARIABLE
from solution.collecting.tpu.space import make_search_space
from solution.collecting.tpu.target import TpuTarget
from solution.domain.vocabulary import TPU_OPTION_CHOICES
from solution.programs.hlo.messages import read_records
from solution.programs.program import Program
from solution.serving.bundle import load_bundle
from solution.system.files import read_sealed, write_sealed
from tests.conftest import FastSlow, assert_refused, assert_said
from tests.made.timed import DENSE, HUGE, SCALAR, read_file, read_text
from tests.processes import TRAINING

V3 = TpuTarget("tpu:v3")
# The default copies the convolution's result, and a chosen layout saves a part of that.
IMAGES = '''
"""A convolution and a product of its pixels."""
from solution.collecting.families import build

program, arguments = build(
    family="convnet", depth=1, width=48, batch=4, length=32, activation="softplus", norm="none",
    residual=False, gated=True, causal=False, pooled=False, train=False,
)
'''
CHOOSE = ("choose", "images.py", "--target", "tpu:v3")
WRITTEN = ("default", "chosen")


@pytest.fixture(scope="module")
def chosen(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with a program, and the result of a search among its layouts."""
    folder = tmp_path_factory.mktemp("estimated")
    (folder / "images.py").write_text(IMAGES, encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(VARIABLE, str(folder / "cache"))
        said = assert_said(TRAINING.run(*CHOOSE, "--compile", "6", "--over", "layouts", cwd=folder))
        (folder / "stdout.txt").write_text(said, encoding="utf-8")
        yield folder


def read(folder: Path, name: str) -> Any:
    return json.loads((folder / "chosen" / "images" / name).read_text())


def test_the_best_estimate_is_called_one_and_its_files_are_there(chosen: Path) -> None:
    said = (chosen / "stdout.txt").read_text()
    record, choice = read(chosen, RECORD), read(chosen, CHOICE)
    times = {trial["name"]: trial["nanoseconds"] for trial in record["trials"]}
    assert len(times) == 7  # the default among them
    assert record["identity"]["target"] == choice["target"] == "tpu:v3"
    assert times[record["result"]["winner"]] == min(times.values())
    assert choice["chosen"]["estimated_nanoseconds"] == min(times.values())
    assert "estimates" in said and "no measurement" in said
    # how long the search would take was said, because nothing was cached
    assert "images" in said and "7 compilations will take" in said and "processor time" in said
    assert all(trial["processor_seconds"] > 0 for trial in record["trials"])
    assert "speed-up" not in said and "faster" not in said and "times as fast" not in said
    for name in FILES:
        assert (chosen / "chosen" / "images" / name).stat().st_size, name
    assert len(read_records(chosen / "chosen" / "images" / MODULE)) == 1


@pytest.fixture(scope="module")
def answers(chosen: Path) -> list[Answer]:
    """The compiler's answers about both modules that were written."""
    folder = chosen / "chosen" / "images"
    with Estimator(V3) as estimator:
        return [estimator.estimate((folder / f"{name}.pb").read_bytes()) for name in WRITTEN]


def test_written_modules_have_the_reported_estimates(chosen: Path, answers: list[Answer]) -> None:
    choice = read(chosen, CHOICE)
    for name, answer in zip(WRITTEN, answers, strict=True):
        assert answer.nanoseconds == choice[name]["estimated_nanoseconds"]
        assert find_memory(answer) == choice[name]["memory_bytes"]


def test_the_snippet_has_the_options_and_layouts_of_the_choice(chosen: Path) -> None:
    choice = read(chosen, CHOICE)
    names = runpy.run_path(str(chosen / "chosen" / "images" / SNIPPET))
    assert names["COMPILER_OPTIONS"] == choice["compiler_options"]
    for (_, tensor, sizes, order), layout in zip(names["LAYOUTS"], choice["layouts"], strict=True):
        assert tensor == layout["tensor"] and sorted(order) == list(range(len(sizes)))
        # the choice names the most minor dimensions, from minor to major
        minor = layout["minor_to_major"]
        assert list(order)[::-1][: len(minor)] == minor
        names["Layout"](major_to_minor=order)


def test_the_changes_add_up_to_what_is_saved(chosen: Path, answers: list[Answer]) -> None:
    default, best = answers
    assert default.compiled and best.compiled and default.nanoseconds and best.nanoseconds
    both = default.nanoseconds, best.nanoseconds
    savings = compare_compiled(default.compiled, best.compiled, both, V3)
    assert savings.total == pytest.approx(1 - both[1] / both[0])
    assert savings.to_records() == read(chosen, CHOICE)["changes"]
    # what both programs have is in no change: the kernels and copies left are as many
    for program, kinds in ((default.compiled, (GONE,)), (best.compiled, (NEW,))):
        copies = [c for c in savings.changes if c.what == "copy" and c.how in kinds]
        assert len(copies) <= len(program.copies)
    backwards = compare_compiled(best.compiled, default.compiled, both[::-1], V3)
    assert sorted(c.how for c in backwards.changes) == sorted(
        {GONE: NEW, NEW: GONE}.get(c.how, c.how) for c in savings.changes
    )
    assert not compare_compiled(best.compiled, best.compiled, (both[1], both[1]), V3).changes


def test_the_same_command_continues_and_other_settings_are_refused(chosen: Path) -> None:
    before = read(chosen, RECORD)["trials"]
    texts = dict.fromkeys(("program", "platform", "jax", "clock"), "made")
    times = {"nanoseconds": [[200, 100], [201, 100], [202, 100]], "defect": ""}
    verdict = {**texts, **times, "device": "made chip", "choice": read(chosen, CHOICE)["choice"]}
    (chosen / "chosen" / "images" / VERDICT).write_text(json.dumps(verdict))
    taken = TRAINING.run("choose", "--verdict", f"chosen/images/{VERDICT}", cwd=chosen)
    assert "made chip" in assert_said(taken)
    said = assert_said(TRAINING.run(*CHOOSE, "--compile", "8", "--over", "layouts", cwd=chosen))
    assert "made chip: 2.010 times" in said
    assert "earlier choice" not in said and "nothing about tpu:v3" in said
    trials = read(chosen, RECORD)["trials"]
    assert trials[:7] == before and len(trials) == 9
    for words, expected in (
        (("--target", "tpu:v5e", "--over", "layouts"), "tpu:v5e"),
        (("--over", "layouts", "--memory"), "memory"),
        (("--over", "layouts", "--seed", "1"), "seed"),
    ):
        assert expected in assert_refused(
            TRAINING.run(*CHOOSE, "--compile", "8", *words, cwd=chosen)
        )
    assert read(chosen, RECORD)["trials"] == trials
    # a measurement is kept if the choice becomes another one
    journal = Journal.reopen(chosen / "chosen" / "images")
    assert journal.result is not None
    journal.result["choice"] = "before"
    journal.write()
    said = assert_said(TRAINING.run(*CHOOSE, "--compile", "8", "--over", "layouts", cwd=chosen))
    assert "For an earlier choice: Measured on made chip: 2.010 times" in said
    result = read(chosen, RECORD)["result"]
    assert result["measured"] == [] and len(result["earlier"]["before"]) == 1


def test_killed_it_continues_to_the_same_result(chosen: Path, tmp_path: Path) -> None:
    (tmp_path / "images.py").write_text(IMAGES, encoding="utf-8")
    words = [*CHOOSE, "--compile", "6", "--over", "layouts"]
    path = tmp_path / "chosen" / "images" / RECORD
    process = TRAINING.start(*words, cwd=tmp_path, group=0)
    while process.poll() is None and not path.exists():
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    assert_said(TRAINING.run(*words, cwd=tmp_path))
    found, whole = (
        [(trial["name"], trial["nanoseconds"]) for trial in read(folder, RECORD)["trials"][:7]]
        for folder in (tmp_path, chosen)
    )
    assert found == whole


@pytest.fixture
def program(workers: Workers, tmp_path: Path) -> Program:
    return read_text(DENSE, tmp_path / "dense.py", workers, "tpu")


def test_options_and_layouts_are_searched_together(program: Program) -> None:
    space = make_search_space(program)
    nodes = len(program.configurable)
    options = len(TPU_OPTION_CHOICES)
    values = sum(len(choices) - 1 for choices in TPU_OPTION_CHOICES.values())
    assert space.sites == nodes + options and len(space.settings) == values
    assert make_search_space(program, ("options",)).sites == options
    assert make_search_space(program, ("layouts",)).sites == nodes
    config = space.default.copy()
    config[nodes] = 2
    module, flags = space.prepare(config)
    assert flags.options == (("xla_tpu_scoped_vmem_limit_kib", 12288),)
    assert module == space.prepare(space.default)[0]
    drawn = space.draw(np.random.default_rng(0), 50)
    assert (drawn < space.sizes).all() and drawn[:, nodes:].any() and drawn[:, :nodes].any()


def test_what_leads_the_search_orders_the_estimates(chosen: Path, workers: Workers) -> None:
    program = read_file(chosen / "images.py", workers, "tpu")
    space = make_search_space(program, ("layouts",))
    prior = open_prior(load_bundle(), space, V3.name)
    assert prior.score is not None and "no model has learned from this TPU" in prior.note
    drawn = np.concatenate([space.default[None], space.draw(np.random.default_rng(0), 11)])
    scores = prior.score(drawn)
    again = open_prior(load_bundle(), space, V3.name)
    assert again.score is not None
    # a score does not depend on what else is scored
    alone = [again.score(row[None])[0] for row in drawn]
    np.testing.assert_allclose(alone, scores, atol=1e-12)
    with Estimator(V3, cache=chosen / "cache") as estimator:
        answers = Estimates(space, estimator).compile(drawn)
    times = [answer.nanoseconds for answer in answers]
    assert kendalltau(scores, times).statistic > 0.5
    # which of them compile to the same program is expected as well
    assert prior.beliefs.name_programs is not None
    named = prior.beliefs.name_programs(drawn)
    pairs = combinations(zip(answers, named, strict=True), 2)
    found, expected = np.array(
        [(a.program == b.program, name == other) for (a, name), (b, other) in pairs]
    ).T
    assert found.any() and not found.all()
    assert (found == expected).mean() > 0.8, (found, expected)
    assert found[expected].mean() > 0.9
    # options alone have no such order
    options = make_search_space(program, ("options",))
    assert open_prior(load_bundle(), options, V3.name).score is None


def test_the_time_of_a_search_is_predicted_and_corrected(program: Program) -> None:
    layouts, options = (make_search_space(program, (kind,)) for kind in ("layouts", "options"))
    each_alone = Duration(options, 20)
    each_alone.begin(3.0, 1.0)
    assert each_alone.total == pytest.approx(21 * 3.0)  # a change of options compiles everything
    duration = Duration(layouts, 40)
    assert not duration.is_known
    duration.begin(3.0, 1.0)
    # each needs the passes, few need as much code as the default
    assert duration.is_known and 3 + 40 < duration.total < 41 * 3
    assert "41 compilations" in duration.describe("dense", 2)
    for _ in range(7):
        duration.add(9.0)
        assert not duration.correct("dense", 2)
    before = duration.total
    duration.add(9.0)
    assert duration.total > before and "dense" in duration.correct("dense", 2)
    assert not duration.correct("dense", 2)  # once
    for _ in range(32):
        duration.add(1.0)
    assert duration.left == 0 and duration.total == pytest.approx(3 + 8 * 9 + 32)
    cached, endless = Duration(layouts, 40), Duration(layouts, 0)
    cached.begin(0.01, 0.0)
    endless.begin(3.0, 1.0)
    assert not cached.is_known and not endless.is_known


def test_memory_is_read_from_a_refusal() -> None:
    refused = (
        "RESOURCE_EXHAUSTED: Ran out of memory on HBM, the total memory required for HLO "
        "temporaries (48.00G) exceeds available HBM (15.48G)."
    )
    assert find_memory(Answer(None, refused)) == 48 << 30
    assert find_memory(Answer(None, "another reason")) is None
    trial = Trial("a", [0], None, refused)
    assert find_limit([trial], V3) == round(15.48 * 2**30)
    assert find_limit([], V3) == 16_000_000_000


def test_bad_input_is_one_message(fastslow: FastSlow, tmp_path: Path) -> None:
    (tmp_path / "dense.py").write_text(DENSE, encoding="utf-8")
    (tmp_path / "scalar.hlo").write_text(SCALAR, encoding="utf-8")
    for _ in range(2):  # the second time it reads the record
        words = ("scalar.hlo", "--target", "tpu:v3", "--compile", "3", "--out", "scalar")
        assert " of 0 " in assert_refused(fastslow("choose", *words))
    other = tmp_path / "other.json"
    other.write_text("{}")
    for words, expected in (
        (("dense.py", "--target", "tpu:v9"), "tpu:v5e"),
        (("dense.py", "--compile", "9"), "--target"),
        (("dense.py", "--memory"), "--target"),
        (("dense.py", "--target", "tpu:v3", "--measure", "9"), "--compile"),
        (("dense.py", "--target", "tpu:v3", "--over", "tiles"), "tiles"),
        (("dense.py", "--target", "tpu:v3", "--over", "tile"), "expected some of"),
        (("dense.py", "--target", "tpu:v3", "--replay"), "--target"),
        (("--verdict", other, "--seed", "1"), "--seed"),
        (("--verdict", other), "other.json"),
        (("--verdict", tmp_path / "missing.json"), "missing.json"),
        ((), "program"),
    ):
        assert expected in assert_refused(fastslow("choose", *words))
    assert not (tmp_path / "chosen").exists()


def test_less_memory_is_searched_for_and_a_program_fits_nowhere(chosen: Path) -> None:
    words = ("--over", "layouts", "--memory")
    assert_said(TRAINING.run(*CHOOSE, *words, "--compile", "3", "--out", "less", cwd=chosen))
    trials = json.loads((chosen / "less" / RECORD).read_text())["trials"]
    choice = json.loads((chosen / "less" / CHOICE).read_text())
    assert choice["chosen"]["memory_bytes"] == min(trial["memory"] for trial in trials)
    assert choice["chosen"]["memory_bytes"] < choice["default"]["memory_bytes"]
    (chosen / "huge.hlo").write_text(HUGE, encoding="utf-8")
    huge = ("choose", "huge.hlo", "--target", "tpu:v3", "--compile", "2", "--out", "huge")
    said = assert_refused(TRAINING.run(*huge, cwd=chosen))
    assert "--memory" in said and "15.48G" in said
    assert not (chosen / "huge" / CHOICE).exists()
    assert "refused" in assert_said(TRAINING.run(*huge, *words, cwd=chosen))
    memory = {t["memory"] for t in json.loads((chosen / "huge" / RECORD).read_text())["trials"]}
    assert 48 << 30 in memory


def test_options_of_another_generation_are_searched(chosen: Path) -> None:
    (chosen / "dense.py").write_text(DENSE, encoding="utf-8")
    words = ("dense.py", "--target", "tpu:v5e", "--over", "options", "--compile", "2")
    said = assert_said(TRAINING.run("choose", *words, cwd=chosen))
    assert "tpu:v5e" in said and "nothing was measured" in said
    record = json.loads((chosen / "chosen" / "dense" / RECORD).read_text())
    # each value of an option is tried alone first
    choices = np.array([trial["choices"] for trial in record["trials"]])
    assert choices.shape == (3, len(TPU_OPTION_CHOICES))
    assert (choices > 0).sum(axis=1).tolist() == [0, 1, 1] and len(np.unique(choices, axis=0)) == 3
    assert all(trial["nanoseconds"] > 0 for trial in record["trials"])

    # a search that knew fewer options is another search
    path = chosen / "chosen" / "dense" / RECORD
    sealed = read_sealed(path, "a search")
    write_sealed(sealed | {"identity": sealed["identity"] | {"options": "tpu_fewer"}}, path)
    assert "tpu_fewer" in assert_refused(TRAINING.run("choose", *words, cwd=chosen))
    assert read_sealed(path, "a search")["trials"] == sealed["trials"]
