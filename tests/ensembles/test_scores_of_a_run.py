"""What a run's predictions say of experiments and recipes: tables, gains, gaps, the commands."""

from pathlib import Path

import polars as pl
import pytest
from rich.console import Console
from rich.table import Table
from scipy.stats import spearmanr

from ensembles.merge import alone, merge_collection, read_groups, score_recipes, score_run
from ensembles.recipe import Recipe, find_recipe
from ensembles.statistics import leave_one_out, rank_correlations
from ensembles.tables import show_comparison, show_search
from solution.domain import predictions
from solution.domain.metrics import score_predictions
from solution.domain.predictions import SCHEMA
from solution.runs.folder import Run
from solution.system.errors import InputError
from submissions.build import collect_scores, tabulate
from tests.made.ballots import LAYOUT, write_run

TILE = "tile:xla"
RECIPE = Recipe(
    name="two",
    members={"member_0": 1.0, "member_1": 1.0},
    collections={TILE: {"member_1": 1.0}},
    fallback="nothing_001",
)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return write_run(tmp_path_factory.mktemp("run"), [0.3, 0.5, 5.0])


def show(table: Table) -> str:
    console = Console(width=120)
    with console.capture() as capture:
        console.print(table)
    return capture.get()


def test_the_table_scores_every_graph_by_every_experiment_and_the_recipe(run: Run) -> None:
    table = score_run(run, RECIPE).table
    members = ["ensemble two", "member_0", "member_1", "member_2", "nothing_001"]
    assert table["member"].unique().sort().to_list() == members
    assert len(table) == 2 * 12 * 5
    labels = predictions.read(run.labels)
    predicted = predictions.read(run.predictions("member_0", "out_of_fold"))
    graph_scores = score_predictions(predicted, labels)
    found = table.filter(pl.col("member") == "member_0")
    assert found.drop("member", "group").equals(graph_scores.sort("collection", "graph"))
    assert found.select("collection", "graph", "group").equals(read_groups(run))
    assert table["group"].n_unique() == 2 * 6


def test_a_collection_is_merged_by_its_own_weights(run: Run) -> None:
    table = score_recipes(run, {"two": RECIPE, "one": alone("member_1")})
    wide = table.pivot("member", index=["collection", "graph"], values="score")
    tile, layout = (wide.filter(pl.col("collection") == name) for name in (TILE, LAYOUT))
    assert tile["two"].equals(tile["one"].alias("two"))
    assert not layout["two"].equals(layout["one"].alias("two"))


def test_a_member_is_worth_what_is_lost_without_it(run: Run) -> None:
    gains = leave_one_out(run, RECIPE)
    without = Recipe(name="r", members={"member_1": 1.0})
    table = score_recipes(run, {"all": RECIPE, "without": without})
    means = table.filter(collection=LAYOUT).group_by("member").agg(pl.col("score").mean())
    expected = dict(means.iter_rows())
    lines = {(r["collection"], r["member"]): r["gain"] for r in gains.iter_rows(named=True)}
    gain = expected["all"] - expected["without"]
    assert lines[LAYOUT, "member_0"] == pytest.approx(gain)
    assert lines["mean", "member_0"] == pytest.approx(gain)  # tile:xla does not ask for it
    assert (TILE, "member_0") not in lines
    assert lines[TILE, "member_1"] > 0  # against the fallback
    assert gains["low"].le(gains["gain"]).all()
    alone = leave_one_out(run, Recipe(name="r", members={"member_0": 1.0}))  # without a fallback
    assert alone.is_empty() and alone.columns == gains.columns


def test_an_experiment_that_predicts_nothing_out_of_fold_has_no_lines(tmp_path: Path) -> None:
    """As one on a collection whose graphs share one architecture, so that none can be held out."""
    run = write_run(tmp_path, [0.3, 0.5])
    nothing = pl.DataFrame(schema=SCHEMA)
    predictions.write(nothing, run.predictions("member_1", "out_of_fold"))
    recipe = Recipe(name="r", members={"member_0": 1.0, "member_1": 1.0}, fallback="nothing_001")
    assert set(leave_one_out(run, recipe)["member"]) == {"member_0"}
    assert "member_1" not in rank_correlations(run, run.experiments())["left"]
    for name in run.experiments():
        predictions.write(nothing, run.predictions(name, "out_of_fold"))
    assert rank_correlations(run, run.experiments()).is_empty()


def test_correlations_are_those_of_every_graph_by_itself(run: Run) -> None:
    names = ["member_0", "member_2"]
    frames = [
        predictions.read(run.predictions(name, "out_of_fold")).filter(collection=TILE)
        for name in names
    ]
    both = frames[0].join(frames[1], on=["graph", "config"], suffix="_of_other")
    expected = [
        spearmanr(graph_scores["score"], graph_scores["score_of_other"]).statistic
        for _, graph_scores in both.group_by("graph")
    ]
    found = rank_correlations(run, names).filter(collection=TILE)
    assert len(found) == 4
    pairs = {(one, other): rho for _, one, other, rho in found.iter_rows()}
    assert pairs["member_0", "member_2"] == pytest.approx(sum(expected) / len(expected))
    assert pairs["member_2", "member_0"] == pairs["member_0", "member_2"]
    assert pairs["member_2", "member_2"] == pytest.approx(1)


def test_seeds_are_scored_one_by_one_where_there_are_several(tmp_path: Path) -> None:
    run = write_run(tmp_path, [1.0, 1.0], graphs=4)
    first, second = (
        predictions.read(run.predictions(f"member_{number}", "out_of_fold")) for number in (0, 1)
    )
    labels = predictions.read(run.labels)
    both = pl.concat([first, second.with_columns(seed=pl.lit(1, SCHEMA["seed"]))])
    predictions.write(both, run.predictions("member_0", "out_of_fold"))
    scores = [
        score_predictions(frame, labels).filter(collection=LAYOUT)["score"].mean()
        for frame in (first, second)
    ]
    seeds = score_run(run).seeds
    assert set(seeds["member"]) == {"member_0"}
    found = seeds.filter(collection=LAYOUT).group_by("seed").agg(pl.col("score").mean())
    assert found.sort("seed")["score"].to_list() == pytest.approx(scores)


def make_frame(graphs: dict[str, list[float]]) -> pl.DataFrame:
    rows = [(TILE, g, c, 0, 0, s) for g, scores in graphs.items() for c, s in enumerate(scores)]
    return pl.DataFrame(rows, schema=SCHEMA, orient="row")


def test_missing_graphs_are_merged_by_who_has_them_where_that_is_allowed() -> None:
    frames = {
        "one": make_frame({"a": [1, 2], "b": [1, 2, 3]}),
        "two": make_frame({"a": [2, 1], "b": [3, 2]}),  # b only in part: it does not count there
        "nothing": make_frame({"a": [0, 0], "b": [0, 0, 0], "c": [0, 0]}),
    }
    fields = {"fallback": "nothing", "allow_missing": {"graphs"}}
    recipe = Recipe(name="r", members={"one": 1.0, "two": 1.0}, **fields)
    merged = merge_collection(TILE, frames, recipe)
    assert merged["graph"].to_list() == ["a"] * 2 + ["b"] * 3 + ["c"] * 2
    expected = [0.75, 0.75, 1 / 3, 2 / 3, 1, 0.75, 0.75]
    assert merged["score"].to_list() == pytest.approx(expected)
    strict = recipe.model_copy(update={"allow_missing": frozenset()})
    with pytest.raises(InputError, match="two.*tile:xla:b.*2"):
        merge_collection(TILE, frames, strict)


def test_a_collection_that_weighs_a_member_without_predictions_names_it() -> None:
    recipe = Recipe(name="r", members={"one": 1.0}, collections={TILE: {"one": 1.0, "two": 2.0}})
    with pytest.raises(InputError, match="two.*tile:xla"):
        merge_collection(TILE, {"one": make_frame({"a": [1, 2]})}, recipe)


def test_weights_of_a_collection_are_read_from_a_table_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    text = '[members]\none = 1\n[collections."tile:xla"]\ntwo = 3\n'
    path.write_text(text, encoding="utf-8")
    recipe = find_recipe(str(path))
    assert recipe.weights(TILE) == {"two": 3.0}
    assert recipe.weights(LAYOUT) == {"one": 1.0}
    assert recipe.names() == ["one", "two"]
    path.write_text(text.replace("tile:xla", "tile:gpu"), encoding="utf-8")
    with pytest.raises(InputError, match="tile:gpu"):
        find_recipe(str(path))


def test_a_comparison_shows_both_ways_of_naming(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text("[members]\nmember_0 = 1\nmember_1 = 1\n", encoding="utf-8")
    sentence, table = show_comparison(run, str(path), "nothing_001")
    assert sentence.startswith(f"{path} is better than nothing_001, by 0.")
    shown = show(table)
    assert "mean of 2" in shown
    assert "1.000" in shown
    with pytest.raises(InputError, match="'nobody'"):
        show_comparison(run, "member_0", "nobody")
    with pytest.raises(InputError, match="one run.*--run.*member_0") as caught:
        show_comparison(run, "member_0", str(tmp_path))
    assert str(caught.value).startswith(f"{tmp_path}: is a folder")
    with pytest.raises(InputError, match="with itself"):
        show_comparison(run, "member_0", "member_0")


def test_no_verdict_is_given_on_the_graphs_that_a_recipe_was_fitted_on(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", [0.3, 0.5])
    path = str(tmp_path / "found.toml")
    show_search(run, ["greedy"], Path(path))
    recipe = find_recipe(path)
    said = "fitted on these very graphs, which flatters it; on others the search reaches "
    said += f"{recipe.nested:.4f}."
    sentence, table = show_comparison(run, path, "nothing_001")
    assert said in sentence and "is better than" not in sentence
    assert show(table).count("fitted on these") == 3 and "1.000" not in show(table)
    assert collect_scores(run, recipe).flattered.endswith(said)
    assert said.split(";")[0] in " ".join(show(tabulate(collect_scores(run, recipe))).split())
    other = write_run(tmp_path / "other", [0.3, 0.5], seed=5)
    assert "better than" in show_comparison(other, path, "nothing_001")[0]
    assert not collect_scores(other, recipe).flattered
    by_hand = Recipe(name="r", members={"member_0": 1.0})
    assert not {"fitted_on", "nested"} & set(by_hand.model_dump(mode="json"))
    assert recipe.model_dump(mode="json")["fitted_on"] == recipe.fitted_on


def test_a_search_shows_the_nested_number_and_writes_the_recipe(run: Run, tmp_path: Path) -> None:
    out = tmp_path / "found.toml"
    sentence, table = show_search(run, ["equal"], out)
    assert "best member" in sentence
    shown = show(table)
    assert "mean_rank equal" in shown
    assert "search" in shown
    assert find_recipe(str(out)).fallback == "nothing_001"
    with pytest.raises(InputError, match=r"ends in \.toml"):
        show_search(run, ["equal"], tmp_path / "found.txt")
