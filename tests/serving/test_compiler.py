"""The way back into the compiler: the documents' example, on a program of jax's."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from solution import load_bundle, read_graph
from solution.serving.ranking import Ranking
from tests.conftest import REPOSITORY

jax = pytest.importorskip("jax")  # the extra `collect`; make test installs it

ROWS, INNER, COLUMNS = 24, 16, 40


def rank_program(folder: Path) -> Ranking:
    """Made layouts of one matrix product, ranked by the bundle that ships."""
    shapes = (jax.ShapeDtypeStruct((ROWS, INNER), "float32"),
              jax.ShapeDtypeStruct((INNER, COLUMNS), "float32"))  # fmt: skip
    lowered = jax.jit(lambda left, right: jax.numpy.tanh(left @ right)).lower(*shapes)
    module = lowered.compiler_ir("hlo").as_serialized_hlo_module_proto()
    (folder / "program.pb").write_bytes(module)
    return load_bundle().rank(read_graph(folder / "program.pb", "layout:xla:random", configs=50))


def constrain(page: str, value: Any, ranking: Ranking, position: int) -> Any:
    """What the example makes of `value`, the configuration at this position of the order."""
    text = (REPOSITORY / page).read_text(encoding="utf-8")
    blocks = re.findall(r"```py(?:thon)?\n(.*?)```", text, re.DOTALL)
    (example,) = (block for block in blocks if "with_layout_constraint" in block)
    names = {"value": value, "ranking": ranking}
    exec(example.replace("order[0]", f"order[{position}]"), names)
    return names["value"]


@pytest.mark.parametrize("page", ["docs/serving.md"])
def test_the_chosen_layouts_reach_the_compiler(page: str, tmp_path: Path) -> None:
    ranking = rank_program(tmp_path)
    left = np.linspace(-1, 1, ROWS * INNER, dtype=np.float32).reshape(ROWS, INNER)
    right = np.linspace(1, -1, INNER * COLUMNS, dtype=np.float32).reshape(INNER, COLUMNS)
    layouts = ranking.graph.layouts.expand()[ranking.order][:, 0, :2].tolist()
    for layout in [[-1, -1], [0, 1], [1, 0]]:  # minor to major; the first leaves it to the compiler
        position = layouts.index(layout)

        def multiply(left: Any, right: Any, position: int = position) -> Any:
            return jax.numpy.tanh(constrain(page, left @ right, ranking, position))

        lowered = jax.jit(multiply).lower(left, right)
        asked = re.findall(r"LayoutConstraint.*result_layouts = .dense<(.*?)>", lowered.as_text())
        assert asked == ([str(layout)] if layout != [-1, -1] else [])
        np.testing.assert_allclose(
            lowered.compile()(left, right), np.tanh(left @ right), rtol=1e-5, atol=1e-5
        )
