"""What is not merged, and which names and files a recipe may not have."""

from pathlib import Path

import pytest

from ensembles.merge import merge_run
from ensembles.recipe import EQUAL_WEIGHTS, Recipe, find_recipe
from ensembles.search import MARK, check_replaceable
from ensembles.tables import show_search
from solution.system.errors import InputError
from solution.system.files import remove, write_sealed
from tests.ensembles.test_recipe_and_merge import write_run


def test_a_run_that_is_not_finished_is_not_merged(tmp_path: Path) -> None:
    """What a recipe may lack is what the run was not begun with, not what is still to come."""
    run = write_run(tmp_path, ["one", "two"])
    remove(tmp_path / "two")
    members = {"one": 1.0, "two": 1.0}
    with pytest.raises(InputError, match="is not finished: .* no predictions of two"):
        merge_run(run, Recipe(name="r", members=members, allow_missing=frozenset({"members"})))
    merge_run(run, Recipe(name="r", members={"one": 1.0}))


def test_a_member_of_which_nothing_is_to_come_is_left_out(tmp_path: Path) -> None:
    """None of the collections that it ranks has labels in the data of the run."""
    run = write_run(tmp_path, ["one", "two"])
    remove(tmp_path / "two")
    described = {
        "one": {"collections": ["tile:xla"]},
        "two": {"collections": ["layout:nlp:random"]},
    }
    write_sealed({"settings": {"experiments": described}}, tmp_path / "run.json")
    members = {"one": 1.0, "two": 1.0}
    merge_run(run, Recipe(name="r", members=members, allow_missing=frozenset({"members"})))
    remove(tmp_path / "one")
    with pytest.raises(InputError, match="one"):
        merge_run(run, Recipe(name="r", members=members, allow_missing=frozenset({"members"})))


def test_a_recipe_takes_the_place_of_nothing_in_the_run(tmp_path: Path) -> None:
    run = write_run(tmp_path, ["one", "two"])
    record = (tmp_path / "run.json").read_bytes()
    for name, words in (
        ("two", "has the name of an experiment"),
        ("run.json", "the name of a file"),
    ):
        with pytest.raises(InputError, match=words):
            merge_run(run, Recipe(name=name, members={"one": 1.0}))
    assert (tmp_path / "run.json").read_bytes() == record


def test_the_name_for_no_recipe_is_no_files_and_a_mark_before_the_text_is_no_mistake(
    tmp_path: Path,
) -> None:
    path = tmp_path / f"{EQUAL_WEIGHTS}.toml"
    path.write_text("[members]\none = 1.0\n")
    with pytest.raises(InputError, match="another name"):
        find_recipe(str(path))
    marked = tmp_path / "marked.toml"
    marked.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    assert find_recipe(str(marked)).members == {"one": 1.0}


def test_a_search_writes_over_its_own_proposals_alone(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    check_replaceable(path)
    path.write_text(f"{MARK}: mean_rank greedy. Mean over ...\n")
    check_replaceable(path)
    path.write_text("# mine\n[members]\none = 1.0\n")
    with pytest.raises(InputError, match="no search"):
        check_replaceable(path)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("mine best", "expected a name of letters"),
        ("ünder", "expected a name of letters"),
        ("a+b", "expected a name of letters"),
        ("-x", "expected a name of letters"),
        (EQUAL_WEIGHTS, "Give the file another name"),
        ("two", "has the name of an experiment of the run"),
    ],
)
def test_a_proposal_gets_no_name_that_no_recipe_may_have(
    name: str, words: str, tmp_path: Path
) -> None:
    """It is refused before the search, for `fastslow ensemble` would not take its file."""
    run = write_run(tmp_path / "run", ["one", "two"])
    path = tmp_path / f"{name}.toml"
    with pytest.raises(InputError, match=words):
        show_search(run, ("equal",), path)
    assert not path.exists()
