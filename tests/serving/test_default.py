"""What ships ranks on a fresh clone, without torch, and says what it learned from."""

import subprocess
import sys
from pathlib import Path

import pytest

from solution import load_bundle, read_graph
from solution.data.folders import SAMPLE
from solution.features.preparation import VERSION
from solution.models import catalogue
from solution.serving.archive import unpack
from solution.serving.bundle import DEFAULT
from solution.serving.record import CARD, RECORD
from solution.system.errors import InputError
from solution.system.files import read_sealed, write_sealed
from solution.system.sealing import describe_file
from tests.conftest import FastSlow
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
    assert "ensemble `best`" in card
    assert "any program of its family" in card
    assert "families" in bundle.rank(read_graph(KERNEL)).reason
    teacher = bundle.record.teacher
    assert teacher is not None
    assert set(teacher.scores) == set(bundle.record.scores) == set(bundle.collections)


@pytest.mark.parametrize(
    "file",
    [SAMPLE / "npz/tile/xla/train/bmm_000.npz",
     SAMPLE / "npz/layout/xla/default/train/vgg_s3_b4.npz",
     SAMPLE / "npz/layout/nlp/random/valid/gpt_L-2_H-80_A-5_b2_s40.npz"],
)  # fmt: skip
def test_it_orders_what_it_learned_from(file: Path) -> None:
    """That code and weights still fit each other: the order is far from a random one."""
    graph = read_graph(file)
    ranking = load_bundle().rank(graph)
    assert graph.runtimes is not None
    assert ranking.known
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
    assert "default bundle" in done.stdout
    assert "generated here" in done.stdout


def change_model(folder: Path, **changes: object) -> None:
    """Make the records of a bundle fit a changed first model, as an attacker would."""
    found = read_sealed(folder / RECORD, "a bundle")
    path = folder / found["members"][0]["folder"] / catalogue.RECORD
    write_sealed(read_sealed(path, "a model") | changes, path)
    name = path.relative_to(folder).as_posix()
    found["files"][name], found["sizes"][name] = describe_file(path), path.stat().st_size
    write_sealed(found, folder / RECORD)


@pytest.mark.parametrize(("changes", "words"), [
    ({"kind": "tile_net"}, "be loaded"), ({"kind": "lambdarank"}, "'lambdarank'.*layout_net"),
    ({"preparation": {"version": VERSION, "hops": "many"}}, "keep 'many'"),
    ({"preparation": {"version": VERSION, "hops": 10**12}}, "keep 1000000000000 hops"),
    ({"settings": {"pruning": "no", "hops": 1, "rounds": [64, 64]}}, "cannot score"),
    ({"settings": {"pruning": "nothing", "hops": 1, "rounds": [1] * 99}}, "at most 64"),
    ({"settings": {"pruning": "nothing", "hops": 1, "rounds": 7}}, "be loaded"),
])  # fmt: skip
def test_a_hostile_student_is_refused(
    changes: dict[str, object], words: str, tmp_path: Path
) -> None:
    unpack(DEFAULT, tmp_path)
    change_model(tmp_path, **changes)
    graph = read_graph(PROGRAM)
    with pytest.raises(InputError, match=words):
        load_bundle(tmp_path).rank(graph)
