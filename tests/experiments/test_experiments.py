"""An experiment is one file that holds one frozen value of its own name."""

import dataclasses
import sys
from pathlib import Path

import pytest

from ensembles import DEFAULT_RECIPE, SAMPLE_RECIPE
from ensembles.recipe import find_recipe
from solution.domain.collection import NAMES
from solution.experiments.base import find_experiment, list_experiments, read_sources
from solution.system.errors import InputError
from tests.conftest import REPOSITORY

NAMED = """
from solution import Experiment
from solution.models.nothing import NothingSettings
EXPERIMENT = Experiment(name="{}", collections=("tile:xla",), ranker=NothingSettings())
"""


@pytest.fixture(autouse=True)
def search_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """Loading an experiment lengthens the search path of modules; restore it."""
    monkeypatch.setattr(sys, "path", list(sys.path))


QUICK = REPOSITORY / "tests" / "made" / "experiments" / "quick_tile_gnn.py"


@pytest.mark.parametrize("name", list_experiments())
def test_every_experiment_loads_and_is_frozen(name: str) -> None:
    experiment = find_experiment(name)
    assert experiment.name == name
    assert set(experiment.collections) <= set(NAMES)
    with pytest.raises(dataclasses.FrozenInstanceError):
        experiment.name = "other"  # type: ignore[misc]


@pytest.mark.parametrize("name", [DEFAULT_RECIPE, SAMPLE_RECIPE])
def test_a_default_recipe_has_several_kinds_of_rankers_in_every_collection(name: str) -> None:
    recipe = find_recipe(name)
    experiments = [find_experiment(member) for member in recipe.and_fallback(recipe.names())]
    for collection in NAMES:
        rankers = [e.ranker for e in experiments if collection in e.collections]
        assert len({type(ranker) for ranker in rankers}) >= 3


KINDS = ("file", "package", "folder")


def write_beside(folder: Path, name: str, kind: str) -> tuple[str, Path]:
    """What an experiment imports from beside it: the module's name, and its file."""
    if kind == "file":
        module, path = name, folder / f"{name}.py"
    else:
        module, path = f"{name}.deep.wide", folder / name / "deep" / "wide.py"
        path.parent.mkdir(parents=True)
    if kind == "package":
        (folder / name / "__init__.py").write_text("")
    path.write_text(f"WIDTH = 2\nimport {module}\n")
    return module, path


@pytest.mark.parametrize("kind", KINDS)
def test_what_it_imports_from_beside_it_counts_as_its_source(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "mine_001.py"
    module, beside = write_beside(tmp_path, f"beside_{kind}", kind)
    path.write_text(f"import {module}\n" + NAMED.format("mine_001"))
    first = find_experiment(str(path)).source
    assert find_experiment(str(path)).source == first
    written = {file.relative_to(tmp_path).as_posix() for file in tmp_path.rglob("*.py")}
    assert set(read_sources(path)) == written
    beside.write_text("WIDTH = 3\n")
    assert find_experiment(str(path)).source != first


def test_a_folder_that_is_called_as_what_is_installed_is_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "mine_001.py"
    path.write_text("import json, numpy, time\nimport solution\n" + NAMED.format("mine_001"))
    for name in ("json", "numpy", "solution", "time"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "other.py").write_text("")
    find_experiment(str(path))
    assert list(read_sources(path)) == ["mine_001.py"]


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_else_is_taken_for_what_lies_beside_it(tmp_path: Path, kind: str) -> None:
    for folder in (tmp_path / "one", tmp_path / "two"):
        folder.mkdir()
        module, beside = write_beside(folder, f"in_both_{kind}", kind)
        text = f"from {module} import WIDTH\n" + NAMED.format(f"mine_{folder.name}")
        (folder / f"mine_{folder.name}.py").write_text(text)
    find_experiment(str(tmp_path / "one" / "mine_one.py"))
    find_experiment(str(tmp_path / "two" / "mine_two.py"))  # a copy is as good
    beside.write_text("WIDTH = 3\n")
    with pytest.raises(InputError, match=rf"mine_two\.py: imports in_both_{kind}.*one.*Rename"):
        find_experiment(str(tmp_path / "two" / "mine_two.py"))


def test_a_file_that_is_called_as_ours_is_refused(tmp_path: Path) -> None:
    (tmp_path / "ensembles.py").write_text("")
    (tmp_path / "mine_001.py").write_text("import ensembles\n" + NAMED.format("mine_001"))
    with pytest.raises(InputError, match=r"imports ensembles.py .*Rename"):
        find_experiment(str(tmp_path / "mine_001.py"))


@pytest.mark.parametrize(("text", "message"), [
    ("", "found nothing"), ("EXPERIMENT = 3", "expected.*EXPERIMENT"),
    (NAMED.format("other_001"), "other_001.*experiment"),
    (NAMED.format("my model"), "the experiment"), ("import no_such_module", "ModuleNotFoundError"),
    ("def broken(:", "SyntaxError"), ("raise SystemExit(4)", "importing it failed: SystemExit: 4"),
])  # fmt: skip
def test_a_broken_experiment_is_named_by_file(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "mine_001.py"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=message) as caught:
        find_experiment(str(path))
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("name", ["my model", "...", "é", "a/b"])
def test_an_experiment_is_called_so_that_a_folder_and_a_recipe_can_be(name: str) -> None:
    quick = find_experiment(str(QUICK))
    with pytest.raises(InputError, match="expected a"):
        dataclasses.replace(quick, name=name)


@pytest.mark.parametrize("seed", [-1, 2**31, 2**63])
def test_a_seed_that_some_library_does_not_take_is_refused_at_once(seed: int) -> None:
    quick = find_experiment(str(QUICK))
    with pytest.raises(InputError, match=f"seeds has {seed}, expected numbers from 0 to"):
        dataclasses.replace(quick, seeds=(0, seed))


@pytest.mark.parametrize("name", ["no_such_experiment", "nowhere/mine.py", "base"])
def test_an_unknown_experiment_is_refused(name: str) -> None:
    with pytest.raises(InputError, match=name):
        find_experiment(name)


def test_a_link_to_a_file_is_found_by_its_own_name(tmp_path: Path) -> None:
    link = tmp_path / "quick_tile_gnn.py"
    real = tmp_path / "real.py"
    real.write_bytes(QUICK.read_bytes())
    link.symlink_to(real)
    assert find_experiment(find_experiment(str(link)).origin).name == "quick_tile_gnn"
