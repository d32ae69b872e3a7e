"""What ships ranks on a fresh clone, without torch, and says what it learned from."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from solution import load_bundle, read_graph
from solution.data.folders import SAMPLE
from solution.serving.bundle import DEFAULT
from solution.serving.ranking import Ranking
from solution.serving.record import CARD
from tests.conftest import REPOSITORY, FastSlow
from tests.made import modules

KERNEL = SAMPLE / "npz/tile/xla/test/bmm_007.npz"
PROGRAM = SAMPLE / "npz/layout/nlp/random/valid/gpt_L-2_H-80_A-5_b2_s40.npz"


def test_it_is_small_and_ranks_every_collection() -> None:
    bundle = load_bundle()
    assert DEFAULT.stat().st_size < 5e6
    assert set(bundle.collections) == {
        "layout:xla:default", "layout:xla:random", "layout:nlp:default", "layout:nlp:random",
        "tile:xla",
    }  # fmt: skip
    card = (bundle.folder / CARD).read_text()
    assert "ensemble `best`" in card and "any program of its family" in card
    assert "families" in bundle.rank(read_graph(KERNEL)).reason
    teacher = bundle.record.teacher
    assert teacher is not None
    assert set(teacher.scores) == set(bundle.record.scores) == set(bundle.collections)


LEARNED = [SAMPLE / "npz/tile/xla/train/bmm_000.npz", PROGRAM,
           SAMPLE / "npz/layout/xla/default/train/vgg_s3_b4.npz"]  # fmt: skip


@pytest.mark.parametrize("file", LEARNED)
def test_it_orders_what_it_learned_from(file: Path) -> None:
    """That code and weights still fit each other: the order is far from a random one."""
    graph = read_graph(file)
    ranking = load_bundle().rank(graph)
    assert graph.runtimes is not None and ranking.known
    quarter = len(ranking.order) // 4
    first, last = ranking.order[:quarter], ranking.order[-quarter:]
    assert graph.runtimes[first].mean() < graph.runtimes[last].mean()


@pytest.mark.parametrize("file", [KERNEL, PROGRAM])
def test_no_large_library_is_needed(file: Path) -> None:
    code = (
        "import sys; from solution import load_bundle, read_graph\n"
        "print(load_bundle().rank(read_graph(sys.argv[1])).order[:3].tolist())\n"
        "heavy = {'torch', 'lightgbm', 'sklearn', 'matplotlib', 'polars', 'scipy.sparse', 'rich'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    called = [sys.executable, "-c", code, str(file)]
    done = subprocess.run(called, capture_output=True, text=True, check=True)
    order, heavy = done.stdout.splitlines()
    assert order == str(load_bundle().rank(file).order[:3].tolist())
    assert heavy == "[]"


def test_a_dump_is_ranked_with_nothing_trained(cold_fastslow: FastSlow, tmp_path: Path) -> None:
    modules.write(modules.make_module(), tmp_path / "mine.pb")
    done = cold_fastslow("rank", "mine.pb", "--top", "2")
    assert done.returncode == 0, done.stderr
    assert "default bundle" in done.stdout and "generated here" in done.stdout


def constrain(value: Any, ranking: Ranking, position: int) -> Any:
    """What the documents' example makes of `value`, of the configuration at this position."""
    text = (REPOSITORY / "docs" / "serving.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```py(?:thon)?\n(.*?)```", text, re.DOTALL)
    (example,) = (block for block in blocks if "with_layout_constraint" in block)
    names = {"value": value, "ranking": ranking}
    exec(example.replace("order[0]", f"order[{position}]"), names)
    return names["value"]


def test_the_chosen_layouts_reach_the_compiler(tmp_path: Path) -> None:
    """The way back: made layouts of one matrix product, a program of jax's."""
    jax = pytest.importorskip("jax")  # the extra `collect`; make test installs it
    left = np.linspace(-1, 1, 24 * 16, dtype=np.float32).reshape(24, 16)
    right = np.linspace(1, -1, 16 * 40, dtype=np.float32).reshape(16, 40)
    lowered = jax.jit(lambda left, right: jax.numpy.tanh(left @ right)).lower(left, right)
    module = lowered.compiler_ir("hlo").as_serialized_hlo_module_proto()
    (tmp_path / "program.pb").write_bytes(module)
    graph = read_graph(tmp_path / "program.pb", "layout:xla:random", configs=50)
    ranking = load_bundle().rank(graph)
    layouts = graph.layouts.expand()[ranking.order][:, 0, :2].tolist()
    for layout in [[-1, -1], [0, 1], [1, 0]]:  # minor to major; the first leaves it to the compiler
        position = layouts.index(layout)

        def multiply(left: Any, right: Any, position: int = position) -> Any:
            return jax.numpy.tanh(constrain(left @ right, ranking, position))

        lowered = jax.jit(multiply).lower(left, right)
        asked = re.findall(r"LayoutConstraint.*result_layouts = .dense<(.*?)>", lowered.as_text())
        assert asked == ([str(layout)] if layout != [-1, -1] else [])
        found, expected = lowered.compile()(left, right), np.tanh(left @ right)
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
