"""Recipes as data, and how a run's members are merged by one."""

import re
from pathlib import Path

import polars as pl
import pytest

from ensembles.coverage import describe_absent, list_present
from ensembles.merge import merge_files, merge_run, normalise, score_recipes
from ensembles.recipe import EQUAL_WEIGHTS, Recipe, find_recipe, list_recipes, make_recipe
from ensembles.search import MARK, check_replaceable
from ensembles.tables import show_search
from solution.domain import predictions
from solution.domain.predictions import SCHEMA, write
from solution.experiments.base import list_experiments
from solution.runs.folder import Run
from solution.system.errors import InputError
from solution.system.files import remove, write_sealed

VALID = """
method = "mean_rank"
fallback = "nothing"

[members]
one = 1.0
two = 3
"""


def write_recipe(folder: Path, text: str) -> str:
    path = folder / "mine.toml"
    path.write_text(text, encoding="utf-8")
    return str(path)


def test_a_recipe_is_read_by_path_and_named_after_its_file(tmp_path: Path) -> None:
    recipe = find_recipe(write_recipe(tmp_path, VALID))
    assert recipe.name == "mine"
    assert recipe.method == "mean_rank"
    assert recipe.fallback == "nothing"
    assert recipe.members == {"one": 1.0, "two": 3.0}
    assert all(isinstance(weight, float) for weight in recipe.members.values())
    alone = find_recipe(write_recipe(tmp_path, '[members]\none = 3\ntwo = 0.5\n"_3.a-b" = 1e-300'))
    assert alone == Recipe(name="mine", members={"one": 3.0, "two": 0.5, "_3.a-b": 1e-300})
    marked = tmp_path / "marked.toml"
    marked.write_bytes(b"\xef\xbb\xbf[members]\none = 1.0\n")
    assert find_recipe(str(marked)).members == {"one": 1.0}


@pytest.mark.parametrize(("text", "named"), [
    (VALID.replace("fallback", "falback"), "mean fallback?"),
    ('allow_missing = "members"\n' + VALID, "expected a"),
    (VALID + '[collections."tile:xal"]\none = 1.0\n', "mean tile"),
    (VALID + "extra = 1.0\n[more]\n", "more"),
    (VALID.replace("mean_rank", "median"), "method"),
    *((VALID.replace("1.0", weight), "members.one")
      for weight in ("-1.0", "0.0", "nan", "inf", '"heavy"', "true", '"1"')),
    (VALID.replace("one", '"../other/one"'), "'../other/one'"),
    (VALID.replace("one", '"/tmp/one"'), "'/tmp/one'"),
    (VALID.replace("one", '""'), "found ''"),
    (VALID.replace("one", '"a\\nb"'), r"'a\nb'"),
    (VALID + '[collections."tile:xla"]\n"../one" = 1.0\n', "'../one'"),
    (VALID.replace('"nothing"', '"../nothing"'), "'../nothing'"),
    ("[members]\n", "members"),
    ("members = 3\n", "members"),
    ('method = "mean_rank"\n', "members"),
    ("", "members"),
    ('name = "other"\n' + VALID, "name"),
    ("members = [", "TOML"),
    ("[members]\none = 1.0\none = 2.0\n", "TOML"),
    *(("members = " + opening * 5000 + "1" + closing * 5000, "nested too deeply")
      for opening, closing in (("[", ""), ("[", "]"), ("{a=", "}"))),
])  # fmt: skip
def test_a_mistake_is_refused_by_file_and_field(tmp_path: Path, text: str, named: str) -> None:
    name = write_recipe(tmp_path, text)
    with pytest.raises(InputError, match=re.escape(name)) as caught:
        find_recipe(name)
    assert named in str(caught.value)


@pytest.mark.parametrize(("name", "content", "words"), [
    *((name, VALID.encode(), "name: expected a name of letters")
      for name in ("..toml", "...toml", "....toml", "a b.toml", "-a.toml")),
    (f"{EQUAL_WEIGHTS}.toml", VALID.encode(), EQUAL_WEIGHTS),
    ("mine.toml", b"\xff\xfe\x00", "not a valid TOML recipe"),
])  # fmt: skip
def test_a_recipe_with_an_invalid_name_or_no_text_is_refused(
    tmp_path: Path, name: str, content: bytes, words: str
) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(InputError, match=re.escape(f"{name}: {words}")):
        find_recipe(str(path))


@pytest.mark.parametrize("name", ["nowhere/mine.toml", "mean_rank_999", ""])
def test_a_missing_recipe_is_refused_with_the_names_there_are(name: str) -> None:
    with pytest.raises(InputError) as caught:
        find_recipe(name)
    assert repr(name) in str(caught.value)
    assert list_recipes()[0] in str(caught.value)


def test_the_bundled_recipes_merge_experiments_that_exist() -> None:
    assert list_recipes()
    for name in list_recipes():
        recipe = find_recipe(name)
        used = {*recipe.members, *([recipe.fallback] if recipe.fallback else [])}
        assert recipe.name == name
        assert used <= set(list_experiments()), name


Scores = dict[tuple[str, str], list[float]]
ONE: Scores = {("tile:xla", "a"): [0.5, 1.0]}
TWO: Scores = {("tile:xla", "a"): [1.0, 0.5]}
NOTHING: Scores = {("layout:xla:random", "b"): [0.0, 0.0], ("tile:xla", "a"): [0.0, 0.0]}


def merge(
    folder: Path, scores: dict[str, Scores], fallback: str | None = None
) -> list[tuple[object, ...]]:
    """Write a prediction file for each experiment, and merge them."""
    recipe = Recipe(name="r", members={"one": 3.0, "two": 1.0}, fallback=fallback)
    paths = {name: folder / f"{name}.parquet" for name in scores}
    for name, of_graphs in scores.items():
        rows = [
            (*key, config, 0, 0, score)
            for key, values in of_graphs.items()
            for config, score in enumerate(values)
        ]
        write(pl.DataFrame(rows, schema=SCHEMA, orient="row"), paths[name])
    return [row for frame in merge_files(paths, recipe) for row in frame.rows()]


BOTH = [("tile:xla", "a", 0, 0.625), ("tile:xla", "a", 1, 0.875)]


def test_the_fallback_ranks_only_the_collections_that_no_member_predicts(tmp_path: Path) -> None:
    assert merge(tmp_path, {"one": ONE, "two": TWO, "nothing": NOTHING}, "nothing") == [
        ("layout:xla:random", "b", 0, 0.75), ("layout:xla:random", "b", 1, 0.75), *BOTH
    ]  # fmt: skip


def test_a_member_may_be_absent_from_a_collection_or_from_all(tmp_path: Path) -> None:
    layout: Scores = {("layout:xla:random", "b"): [2.0, 1.0]}
    assert merge(tmp_path, {"one": ONE, "two": {**TWO, **layout}}) == [
        ("layout:xla:random", "b", 0, 1.0), ("layout:xla:random", "b", 1, 0.5), *BOTH
    ]  # fmt: skip
    assert merge(tmp_path, {"one": ONE}) == [("tile:xla", "a", 0, 0.5), ("tile:xla", "a", 1, 1.0)]


LABELS = {
    "collection": pl.String, "graph": pl.String, "config": pl.Int32, "runtime": pl.Float64
}  # fmt: skip


def write_run(folder: Path, experiments: list[str]) -> Run:
    """Predictions of both parts by each experiment, on two configurations of one graph."""
    run = Run(folder)
    settings = {"experiments": dict.fromkeys(experiments, {})}
    write_sealed({"settings": settings}, folder / "run.json")
    for number, name in enumerate(experiments):
        rows = [("tile:xla", "a", config, 0, 0, config * (-1.0) ** number) for config in (0, 1)]
        frame = pl.DataFrame(rows, schema=SCHEMA, orient="row")
        for part in ("out_of_fold", "test"):
            predictions.write(frame, run.predictions(name, part))
    labels = pl.DataFrame(
        [("tile:xla", "a", 0, 1.0), ("tile:xla", "a", 1, 3.0)], LABELS, orient="row"
    )
    predictions.write(labels, run.labels)
    graphs = labels.select("collection", "graph").unique()
    predictions.write(graphs.with_columns(group=pl.lit("a"), labelled=True), run.graphs)
    return run


def test_only_experiments_of_the_record_are_merged(tmp_path: Path) -> None:
    """A folder with predictions that no experiment of the run made: perhaps of other folds."""
    run = write_run(tmp_path, ["one", "two", "stray"])
    write_sealed({"settings": {"experiments": {"one": {}, "two": {}}}}, tmp_path / "run.json")
    allowed = frozenset({"members"})
    members = {"one": 3.0, "two": 1.0, "stray": 9.0}
    merge_run(run, Recipe(name="with", members=members, allow_missing=allowed))
    merge_run(run, Recipe(name="without", members={"one": 3.0, "two": 1.0}))
    for part in predictions.PARTS:
        merged = (predictions.read(run.ranking(name, part)) for name in ("with", "without"))
        assert next(merged).equals(next(merged))
    recipe = Recipe(name="r", members={"stray": 1.0}, allow_missing=allowed)
    assert score_recipes(run, {"r": recipe}).is_empty()


def test_a_member_counts_as_absent_only_where_it_could_rank(tmp_path: Path) -> None:
    run = write_run(tmp_path, ["one", "two"])
    allowed = frozenset({"members"})
    members = {"one": 1.0, "layout_net": 3.0}
    whole = Recipe(name="r", members=members, allow_missing=allowed)
    assert describe_absent(run, whole) == ""  # the run has tiles only
    lacks = Recipe(name="r", members={**members, "tile_net": 1.0}, allow_missing=allowed)
    assert list_present(run, lacks) == ["one"]
    absent = describe_absent(run, lacks)
    assert "tile_net (50% of the weight in tile:xla)" in absent
    assert f"`fastslow run DATA --run {run.folder} --experiment NAME`" in absent
    in_table = Recipe(name="r", members=members, collections={"tile:xla": {"two": 2.0}})
    assert describe_absent(run, in_table) == ""


def test_a_recipe_neither_reads_nor_writes_outside_the_run(tmp_path: Path) -> None:
    write_run(tmp_path / "other", ["one"])
    run = write_run(tmp_path / "run", ["one", "two"])
    before = sorted(tmp_path.rglob("*"))
    for name, member in (("r", "../other/one"), ("r", str(tmp_path / "other/one")), ("..", "one")):
        fields = {"name": name, "members": {member: 1.0}, "allow_missing": {"members"}}
        with pytest.raises(InputError, match="expected a name"):
            merge_run(run, make_recipe("mine.toml", fields))
    assert sorted(tmp_path.rglob("*")) == before


def test_a_run_gets_the_ranking_of_both_parts(tmp_path: Path) -> None:
    run = write_run(tmp_path, ["one", "two"])
    members = {"one": 3.0, "two": 1.0, "three": 1.0}
    for folder in ("r", "other"):
        (tmp_path / folder / "test").mkdir(parents=True)
        (tmp_path / folder / "test" / ".partial-killed").touch()
    merge_run(run, Recipe(name="r", members=members, allow_missing=frozenset({"members"})))
    assert [path.parts[-3] for path in tmp_path.rglob(".partial-*")] == ["other"]
    for part in ("out_of_fold", "test"):
        ranked = {
            name: normalise(predictions.read(run.predictions(name, part)))
            for name in ("one", "two")
        }
        assert ranked["one"]["score"].to_list() == [0.5, 1.0]
        assert ranked["two"]["score"].to_list() == [1.0, 0.5]
        assert predictions.read(run.ranking("r", part))["score"].to_list() == [0.625, 0.875]


@pytest.mark.parametrize(
    ("members", "fallback", "message"),
    [({"other": 1.0}, None, "merges other"), ({"one": 1.0}, "other", "falls back")],
)
def test_a_run_without_what_the_recipe_needs_is_refused(
    tmp_path: Path, members: dict[str, float], fallback: str | None, message: str
) -> None:
    run = write_run(tmp_path, ["one"])
    with pytest.raises(InputError, match=message):
        merge_run(run, Recipe(name="r", members=members, fallback=fallback))
    assert not run.ranking("r", "test").exists()


def test_a_run_that_is_not_finished_is_not_merged(tmp_path: Path) -> None:
    """What a recipe may lack is what the run was not begun with, not what is still to come."""
    run = write_run(tmp_path, ["one", "two"])
    remove(tmp_path / "two")
    members = {"one": 1.0, "two": 1.0}
    with pytest.raises(InputError, match="no predictions"):
        merge_run(run, Recipe(name="r", members=members, allow_missing=frozenset({"members"})))
    merge_run(run, Recipe(name="r", members={"one": 1.0}))


def test_a_member_of_which_nothing_is_to_come_is_left_out(tmp_path: Path) -> None:
    """None of the collections that it ranks has labels in the data of the run."""
    run = write_run(tmp_path, ["one", "two"])
    remove(tmp_path / "two")
    ranked = {"one": "tile:xla", "two": "layout:nlp:random"}
    described = {name: {"collections": [collection]} for name, collection in ranked.items()}
    write_sealed({"settings": {"experiments": described}}, tmp_path / "run.json")
    members = {"one": 1.0, "two": 1.0}
    merge_run(run, Recipe(name="r", members=members, allow_missing=frozenset({"members"})))
    remove(tmp_path / "one")
    with pytest.raises(InputError, match="one"):
        merge_run(run, Recipe(name="r", members=members, allow_missing=frozenset({"members"})))


def test_a_recipe_takes_the_place_of_nothing_in_the_run(tmp_path: Path) -> None:
    run = write_run(tmp_path, ["one", "two"])
    record = (tmp_path / "run.json").read_bytes()
    for name, words in (("two", "the name of an experiment"), ("run.json", "the name of a file")):
        with pytest.raises(InputError, match=words):
            merge_run(run, Recipe(name=name, members={"one": 1.0}))
    assert (tmp_path / "run.json").read_bytes() == record


def test_a_search_writes_over_its_own_proposals_alone(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    check_replaceable(path)
    path.write_text(f"{MARK}: mean_rank greedy. Mean over ...\n")
    check_replaceable(path)
    path.write_text("# mine\n[members]\none = 1.0\n")
    with pytest.raises(InputError, match="by a search"):
        check_replaceable(path)


@pytest.mark.parametrize(("name", "words"), [
    *((name, "expected a") for name in ("mine best", "ünder", "a+b", "-x")),
    (EQUAL_WEIGHTS, "file another"), ("two", "an experiment"),
])  # fmt: skip
def test_a_proposal_has_a_name_that_recipes_may_have(name: str, words: str, tmp_path: Path) -> None:
    """It is refused before the search, for `fastslow ensemble` would not take its file."""
    run = write_run(tmp_path / "run", ["one", "two"])
    path = tmp_path / f"{name}.toml"
    with pytest.raises(InputError, match=words):
        show_search(run, ("equal",), path)
    assert not path.exists()
