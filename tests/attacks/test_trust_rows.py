"""Code that would trust what it reads: none is there, and what changes meanwhile is noticed."""

import ast
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from submissions.page import build
from tests.attacks.making import make_store
from tests.attacks.stories import REPOSITORY
from tests.processes import TRAINING

pytestmark = pytest.mark.slow
PACKAGES = ("solution", "ensembles", "submissions")
UNPICKLERS = {"pickle", "cPickle", "dill", "cloudpickle", "marshal", "shelve", "yaml", "jsonpickle"}
CALLS = {
    "pickles": {"torch.load", "joblib.load", "pl.read_ipc", "pandas.read_pickle", "safe_load"},
    "code": {"eval", "exec", "compile", "__import__", "runpy.run_path"},
    "shells": {"os.system", "os.popen", "subprocess.getoutput"},
    "predictable files": {"tempfile.mktemp", "os.tmpnam"},
}
# A file that the user's own command names is a program of theirs.
ALLOWED = {"importlib.util.spec_from_file_location"}


def calls() -> Iterator[tuple[Path, str, ast.Call]]:
    """Every call of the three packages, by its dotted name."""
    for package in PACKAGES:
        for path in sorted((REPOSITORY / package).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text("utf-8"))):
                if isinstance(node, ast.Call):
                    yield path, ast.unparse(node.func), node


@pytest.mark.parametrize("kind", CALLS)
def test_no_such_call_is_made(kind: str) -> None:
    found = [f"{path}: {name}" for path, name, _ in calls() if name in CALLS[kind]]
    assert not found


def test_no_module_that_unpickles_is_imported() -> None:
    for package in PACKAGES:
        for path in (REPOSITORY / package).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text("utf-8"))):
                names = [name.name for name in node.names] if isinstance(node, ast.Import) else []
                names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
                assert not {name.partition(".")[0] for name in names} & UNPICKLERS, path


def test_arrays_are_loaded_without_pickles_and_programs_without_a_shell() -> None:
    for path, name, call in calls():
        options = {option.arg: ast.unparse(option.value) for option in call.keywords}
        assert options.get("shell", "False") == "False", path
        assert options.get("allow_pickle", "False") == "False", path
        if name in ("np.load", "np.lib.format.read_array"):
            assert options.get("allow_pickle") == "False", path


def test_temporary_names_cannot_be_foreseen(tmp_path: Path) -> None:
    from solution.system.files import replace_file, replace_folder

    names = set()
    for _ in range(5):
        for replace in (replace_file, replace_folder):
            with replace(tmp_path / "it") as temporary:
                assert temporary.parent == tmp_path
                names.add(temporary.name)
            (tmp_path / "it").unlink() if replace is replace_file else (tmp_path / "it").rmdir()
    assert len(names) == 10


def test_the_page_escapes_what_it_shows() -> None:
    templates = Path(build.__file__).parent / "templates"
    for path in templates.iterdir():
        text = path.read_text("utf-8")
        assert not re.search(r"""[^"'\s]\s*\|\s*safe""", text), f"{path}: more than its own words"
        assert "autoescape false" not in text, path
        assert "<script" not in text, path
    source = Path(build.__file__).read_text("utf-8")
    assert "autoescape=True" in source


CHANGING = """
import os
from dataclasses import dataclass
from pathlib import Path

from solution.domain.collection import TILE
from solution.experiments.base import Experiment
from solution.models.nothing import NothingRanker
from solution.models.base import RankerSettings


@dataclass(frozen=True)
class Settings(RankerSettings):
    def build(self, seed):
        return Changing()


class Changing(NothingRanker):
    is_job = False

    def keep_checkpoints(self, folder):
        self.is_job = True

    def fit(self, graphs, validation, report=None):
        if self.is_job:
            with Path(os.environ["CHANGED"]).open("a") as file:
                file.write("# somebody works on it")
        return self


EXPERIMENT = Experiment(name="changing", collections=TILE, ranker=Settings())
"""


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_changed_experiment_is_noticed(workers: str, tmp_path: Path) -> None:
    store, path = make_store(tmp_path).folder, tmp_path / "changing.py"
    path.write_text(CHANGING)
    words = ("run", store, "--experiment", path, "--folds", "2", "--scheme", "graph")
    done = TRAINING.run(
        *words, "--workers", workers, cwd=tmp_path, env={**os.environ, "CHANGED": str(path)}
    )
    assert done.returncode == 2, done.stderr
    assert "was changed while its models were trained" in " ".join(done.stderr.split())
    assert not list(tmp_path.rglob("submission.csv"))
