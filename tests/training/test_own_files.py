"""What a model of one's own must not do is said before it is trained, and where it stands."""

from pathlib import Path

import pytest

from solution.data.folders import find_files
from solution.features.preparation import Preparation
from solution.store.preparing import prepare_store
from solution.store.store import Store
from solution.system.errors import InputError
from solution.training.failures import load_experiment, rehearse
from solution.training.plan import make_plan
from tests.commands.test_first_minutes import make_data

OWN = """
import os
from dataclasses import dataclass
import numpy as np
from solution import Experiment
from solution.models.base import Ranker, RankerSettings

class Mine(Ranker):
    def fit(self, graphs, validation, report=None):
        return self
    def predict(self, graph):
        count = graph.num_configs
        return np.zeros(count)
    def save(self, folder):
        pass
    def load(self, folder):
        return self

@dataclass(frozen=True)
class Settings(RankerSettings):
    width: int = 1
    def build(self, seed):
        return Mine()

EXPERIMENT = Experiment(name="mine", collections=("tile:xla",), ranker=Settings())
"""


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    folder = tmp_path_factory.mktemp("kernels")
    return prepare_store(find_files(make_data(folder / "data")), folder / "store", Preparation())


def write(folder: Path, old: str = "", new: str = "") -> str:
    (folder / "mine.py").write_text(OWN.replace(old, new) if old else OWN, encoding="utf-8")
    return str(folder / "mine.py")


@pytest.mark.parametrize(
    ("old", "new", "meant"),
    [
        ("np.zeros(count)", "[0.0] * count", "predict returned a list for k0, expected an array"),
        ("np.zeros(count)", "None", "predict returned a NoneType"),
        ("np.zeros(count)", "[[1], [1, 2]]", "predict returned a list"),
        ("np.zeros(count)", "__import__('torch').zeros(count)", "predict returned a Tensor"),
        ("np.zeros(count)", "np.zeros(count) * 1j", "predict returned an array of complex128"),
        ("np.zeros(count)", "np.ma.zeros(count)", "predict returned a MaskedArray"),
        ("np.zeros(count)", "np.arange(count) + 2**40", "all the same in 32 bits.*their mean"),
        ("np.zeros(count)", "1e-9 * np.arange(count) + 1", "all the same in 32 bits"),
        ("np.zeros(count)", "np.zeros(count) if graph.runtimes is None else graph.runtimes",
         "predicts other scores for k0 where that has no runtimes"),
        ("np.zeros(count)", "np.random.default_rng().random(count)", "or draws at random"),
        ("Mine()", "None", "build of Settings returned NoneType, expected a ranker"),
        ("return self\n", "os.chdir('/')\n", "changes the working folder to /, expected"),
        ("return self\n", "open('no/weights')\n", ", line 10, in fit: FileNotFoundError"),
    ],
)  # fmt: skip
def test_its_scores_are_tried(old: str, new: str, meant: str, store: Store, tmp_path: Path) -> None:
    before = Path.cwd()
    experiment = load_experiment(write(tmp_path, old, new))
    with pytest.raises(InputError, match=rf"mine\.py.*{meant}"):
        rehearse(experiment, make_plan(store, "graph", 2))
    assert Path.cwd() == before


def test_one_that_is_sound_is_not_refused(store: Store, tmp_path: Path) -> None:
    rehearse(load_experiment(write(tmp_path)), make_plan(store, "graph", 2))


@pytest.mark.parametrize(
    ("old", "new", "meant"),
    [
        ("@dataclass(frozen=True)\n", "", "Settings is no dataclass.*Write @dataclass"),
        ("(RankerSettings):", "(RankerSettings):\n    needed_hops = 'all'",
         "needed_hops of Settings is 'all', expected a whole number"),
        ("import os\n", "import os\nos.chdir('/')\n", "changes the working folder to /"),
        ("import os\n", "import os\nos.nothing\n", r"AttributeError.*mine\.py, line 3\)"),
    ],
)  # fmt: skip
def test_what_cannot_be_trained_is_refused(old: str, new: str, meant: str, tmp_path: Path) -> None:
    before = Path.cwd()
    with pytest.raises(InputError, match=rf"mine\.py.*{meant}"):
        load_experiment(write(tmp_path, old, new))
    assert Path.cwd() == before


def test_a_slip_in_a_file_beside_it_is_one_line(store: Store, tmp_path: Path) -> None:
    model, _, experiment = OWN.partition("EXPERIMENT")
    beside = model.replace("np.zeros(count)", "np.zeroes(count)")
    (tmp_path / "my_slip.py").write_text(beside, encoding="utf-8")
    text = f"from solution import Experiment\nfrom my_slip import Settings\nEXPERIMENT{experiment}"
    (tmp_path / "mine.py").write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=r"my_slip\.py.*13, in.*AttributeError"):
        rehearse(load_experiment(str(tmp_path / "mine.py")), make_plan(store, "graph", 2))


def test_what_fails_to_be_imported_from_beside_it_is_named(tmp_path: Path) -> None:
    (tmp_path / "my_broken.py").write_text("\nimport nothing_like_it\n", encoding="utf-8")
    path = write(tmp_path, "import os\n", "import my_broken\n")
    with pytest.raises(InputError, match=r"named.*my_broken\.py, line 2"):
        load_experiment(path)
