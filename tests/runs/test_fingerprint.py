"""What the fingerprint of the code covers: what decides predictions, and no text."""

import ast
import shutil
from pathlib import Path

import pytest

from solution.experiments.base import find_experiment, find_named_experiment
from solution.runs import fingerprint
from solution.runs.fingerprint import APART, ROOTS, fingerprint_code, fingerprint_modules, read_code
from tests.conftest import REPOSITORY

IGNORED = shutil.ignore_patterns("sample", "collected", "__pycache__", "*.zip")
TGRAPH = ("solution.papers.tgraph", "solution.papers.wrappers")


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The code in another folder, where nothing has been hashed yet."""
    root = tmp_path_factory.mktemp("clone")
    for package in ("solution", "ensembles"):
        shutil.copytree(REPOSITORY / package, root / package, ignore=IGNORED)
    return root


def hash_both(root: Path) -> tuple[str, str]:
    """The fingerprints of runs, and of an experiment of a paper, as the files are now."""
    fingerprint_code.cache_clear()
    fingerprint_modules.cache_clear()
    return fingerprint_code(root), fingerprint_modules(TGRAPH, root)


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text(encoding="utf-8")
    assert old in text, f"{path}: {old}"
    path.write_text(text.replace(old, new, 1), encoding="utf-8")


def hash_edited(root: Path, path: Path, old: str, new: str) -> tuple[str, str]:
    """The fingerprints with this edit, which is undone."""
    text = path.read_bytes()
    edit(path, old, new)
    found = hash_both(root)
    path.write_bytes(text)
    return found


@pytest.mark.parametrize(("file", "old", "new"), [
    ("training/distilling.py", "np.exp((scores", "np.exp(-(scores"),
    ("../ensembles/votes.py", "return ", "return -"),
    ("domain/dividing.py", 'f"{seed}/{name}"', 'f"{seed}:{name}"'),
    ("features/operations.py", " == ", " != "), ("models/nets/losses.py", " * ", " / "),
    ("models/layout/listed_net.py", "len(self.numbers) - 1", "len(self.numbers) - 2"),
    ("models/layout/layout_gnn.py", " = 0", " = 1"),
    ("training/fit.py", "INNER_SHARE = 0.15", "INNER_SHARE = 0.2"),
])  # fmt: skip
def test_code_that_decides_scores_is_covered(clone: Path, file: str, old: str, new: str) -> None:
    before = hash_both(clone)
    assert hash_edited(clone, clone / "solution" / file, old, new)[0] != before[0]
    assert hash_both(clone) == before


@pytest.mark.parametrize(("file", "old", "new"), [
    ("training/distilling.py", '"""Train small rankers', '"""Train tiny rankers'),
    ("training/distilling.py", "MADE_LAYOUTS = 240", "MADE_LAYOUTS = (240)  # a remark"),
    ("training/distilling.py", "def list_refits(", "\n\n\ndef list_refits("),
    ("training/distilling.py", "(experiment: Experiment, plan", "(experiment, plan"),
    ("training/distilling.py", "is a model from a file of yours", "of other code"),
    ("training/watch.py", "return ", "return not "),
    ("system/progress.py", "return ", "return not "),
    ("analysis/data_pictures.py", "return ", "return not "),
    ("papers/tpugraphs.py", "return ", "return not "),
])  # fmt: skip
def test_text_and_what_decides_nothing_is_not(clone: Path, file: str, old: str, new: str) -> None:
    before = hash_both(clone)
    assert hash_edited(clone, clone / "solution" / file, old, new) == before


def test_a_system_of_a_paper_is_covered_by_its_own_experiments_alone(clone: Path) -> None:
    before = hash_both(clone)
    changed = hash_edited(clone, clone / "solution/papers/tgraph.py", "return ", "return -")
    assert changed[0] == before[0] and changed[1] != before[1]
    assert find_named_experiment("layout_tgraph_001").source == fingerprint_modules(TGRAPH)


def test_a_module_may_move(clone: Path) -> None:
    before = hash_both(clone)[0]
    old, new = "solution.models.nets.losses", "solution.models.ranking_losses"
    kept = {path: path.read_text(encoding="utf-8") for path in clone.rglob("*.py")}
    users = {path: text for path, text in kept.items() if old in text}
    for path, text in users.items():
        path.write_text(text.replace(old, new), encoding="utf-8")
    path, moved = (clone / f"{name.replace('.', '/')}.py" for name in (old, new))
    path.rename(moved)
    after = hash_both(clone)[0]
    moved.rename(path)
    for path, text in users.items():
        path.write_text(text, encoding="utf-8")
    assert users and after == before


def test_every_module_is_hashed_alike_without_comments_and_formatted_anew() -> None:
    sources = fingerprint._Sources(REPOSITORY)
    found = sources.follow(ROOTS, APART)
    assert len(found) > 80
    for name in found:
        text = (REPOSITORY / str(sources._find(name))).read_text(encoding="utf-8")
        assert read_code(ast.unparse(ast.parse(text)).encode()) == read_code(text.encode()), name


NESTED = "def f():\n    x = 1\n    def g():\n        y = {}\n        return {}"
SAME = [
    ("def f(a):\n    b = a + 1\n    return b", "def f(a):\n    total = a + 1\n    return total"),
    ("_C = 2\ndef f():\n    return _C", "_D = 2\ndef f():\n    return _D"),
    (NESTED.format("x", "y"), NESTED.format("x", "y").replace("x", "a").replace("y", "b")),
    ("def f(a: int) -> int:\n    return a", "def f(a):\n    return a"),
    ("raise ValueError('a')", "raise ValueError('b')"),
]
OTHER = [
    ("def f(a):\n    b = a + 1\n    return b", "def f(a):\n    b = a + 1\n    return a"),
    (NESTED.format("2", "y"), NESTED.format("2", "x")),
    ("from solution.a import f, g\nf(g)", "from solution.a import f as g, g as f\nf(g)"),
    ("from numpy import sin\nsin(1)", "from numpy import cos as sin\nsin(1)"),
    ("def f(a):\n    return a", "def g(a):\n    return a"),
    ("class A:\n    x: int = 1", "class A:\n    x: int = 2"),
    ("class A:\n    x: int = 1", "class A:\n    x = 1"),
    ("raise ValueError('a')", "raise KeyError('a')"),
    ("x = 'a'", "x = 'b'"),
    ("x = 1", "x = 1.0"),
    ("x = 1", "x = True"),
]


@pytest.mark.parametrize(("one", "other"), SAME)
def test_renaming_what_is_private_changes_nothing(one: str, other: str) -> None:
    assert read_code(one.encode()) == read_code(other.encode())


@pytest.mark.parametrize(("one", "other"), OTHER)
def test_other_code_has_another_hash(one: str, other: str) -> None:
    assert read_code(one.encode()) != read_code(other.encode())


def test_an_experiment_in_a_file_is_the_same_with_another_comment(tmp_path: Path) -> None:
    usual = (REPOSITORY / "solution/experiments/nothing_001.py").read_text(encoding="utf-8")
    path, sources = tmp_path / "mine_001.py", []
    for added in ("", "# a remark\n", "TOLD = 1\n"):
        path.write_text(usual.replace("nothing_001", "mine_001") + added)
        sources.append(find_experiment(str(path)).source)
    assert sources[0] == sources[1] != sources[2]


def test_where_nothing_can_be_kept_the_hash_is_the_same(clone: Path) -> None:
    before, kept = hash_both(clone), clone / fingerprint.KEPT
    assert kept.is_file()
    kept.write_text("no JSON")
    assert hash_both(clone) == before
    shutil.rmtree(kept.parent)
    kept.parent.write_text("a file in the way")
    assert hash_both(clone) == before
    kept.parent.unlink()
