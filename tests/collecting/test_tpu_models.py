"""Models of realistic size, made from a seed for a TPU's training set."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

jax = pytest.importorskip("jax")  # the extra `collect`; make test installs it

from benchmarks.fewest_compilations import PatientEstimator  # noqa: E402
from benchmarks.tpu_models import FAMILIES, build, draw_settings, write_file  # noqa: E402
from solution.collecting.target import parse_target  # noqa: E402
from solution.programs.child import Child, Limits  # noqa: E402
from solution.programs.program import read_programs  # noqa: E402

NAMES = [name for names in FAMILIES.values() for name in names]
SMALL = {"depth": 1, "width": 64, "batch": 2, "length": 32, "heads": 4}


def draw(family: str, seed: int, **changed: Any) -> dict[str, Any]:
    return {**draw_settings(family, np.random.default_rng(seed)), **SMALL, **changed}


@pytest.mark.parametrize("optimizer", ["sgd", "momentum", "adam"])
@pytest.mark.parametrize("family", NAMES)
def test_a_training_step_returns_parameters_and_moments_of_the_same_shapes(
    family: str, optimizer: str
) -> None:
    step, arguments = build(**draw(family, 1, optimizer=optimizer))
    found = jax.eval_shape(step, *arguments)
    given = arguments[:2]
    assert [(x.shape, x.dtype) for x in jax.tree.leaves(found)] == [
        (x.shape, x.dtype) for x in jax.tree.leaves(given)
    ]
    assert len(given[1]) == {"sgd": 0, "momentum": 1, "adam": 2}[optimizer] * len(given[0])


@pytest.mark.parametrize("family", NAMES)
def test_settings_change_the_program(family: str) -> None:
    drawn = [draw_settings(family, np.random.default_rng([n, 5])) for n in range(40)]
    assert len({str(settings) for settings in drawn}) == 40
    texts = {
        str(jax.make_jaxpr(program)(*arguments))
        for program, arguments in (build(**{**settings, **SMALL}) for settings in drawn[:6])
    }
    assert len(texts) >= 4, "the draws must differ in more than sizes"


def test_a_tpus_compiler_takes_them(tmp_path: Path) -> None:
    pytest.importorskip("libtpu", reason="the extra `tpu` is not installed: no TPU's compiler")
    programs, names = [], ["unet", "lstm", "dlrm", "message", "experts"]
    with Child(Limits()) as child:
        for number, family in enumerate(names):
            path = tmp_path / f"{family}.py"
            path.write_text(write_file(draw(family, number, optimizer="sgd")), encoding="utf-8")
            programs += read_programs(path, child, platform="tpu")
    assert [program.name for program in programs] == names
    assert all(len(program.configurable) for program in programs)
    with PatientEstimator(parse_target("tpu:v3"), cache=tmp_path / "cache") as estimator:
        answers = estimator.estimate_all(
            [program.module.SerializeToString() for program in programs], 0
        )
    # The passes over HLO took them: what is not known is only how long new kernels take.
    assert len(answers) == len(names)
    assert [one.refused for one in answers if "are not known" not in one.refused] == []
