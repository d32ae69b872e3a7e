"""Estimates of the TPU's own compiler, on a machine without a TPU."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from solution.collecting.compiler import Compiler
from solution.collecting.target import Target
from solution.collecting.tpu.estimator import Estimator

pytest.importorskip("libtpu", reason="the extra `tpu` is not installed: no TPU's compiler")

V3 = Target("tpu:v3")
PRODUCT = """HloModule product
ENTRY main {
  left = f32[256,512]{1,0} parameter(0)
  right = f32[512,384]{1,0} parameter(1)
  product = f32[256,384]{1,0} dot(left, right), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT result = f32[256,384]{1,0} tanh(product)
}
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def estimator(folder: Path) -> Iterator[Estimator]:
    with Estimator(V3, cache=folder) as opened:
        yield opened


@pytest.fixture(scope="module")
def product() -> bytes:
    return Compiler().parse_hlo(PRODUCT)


def test_the_same_program_has_the_same_estimate_in_another_process(
    estimator: Estimator, product: bytes, tmp_path: Path
) -> None:
    first = estimator.estimate(product)
    with Estimator(V3, cache=tmp_path) as other:
        second = other.estimate(product)
    assert first.nanoseconds is not None
    assert first.nanoseconds > 0
    assert (first.nanoseconds, first.program) == (second.nanoseconds, second.program)
    assert second.is_full
