"""Why a configuration is predicted slow: contributions that add up, in words and pictures."""

import dataclasses
import re
import shlex
import shutil
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from solution.analysis.explanation import (
    describe,
    explain,
    explain_difference,
    measure_importance,
    name_reasons,
)
from solution.data.folders import find_files
from solution.features.preparation import Preparation
from solution.features.table import feature_table
from solution.models.base import Ranker, RankerSettings
from solution.models.linear import LassoSettings, OrdinarySettings, RidgeSettings
from solution.models.nothing import NothingSettings
from solution.models.trees.lightgbm_ranker import LightGBMSettings, PointwiseSettings
from solution.store.preparing import prepare_store
from solution.system.errors import InputError
from tests.commands.test_first_minutes import make_data
from tests.conftest import REPOSITORY, FastSlow, assert_done, assert_refused
from tests.made.graphs import make_layout_graph, make_tile_graph, write_graph
from tests.made.run import make_run

TILE = [make_tile_graph(seed, configs=20, name=f"kernel_{seed}") for seed in range(6)]
LAYOUT = [make_layout_graph(seed, configs=20, name=f"program_{seed}") for seed in range(6)]
TREES = {"rounds": 20, "min_data_in_leaf": 3}


@pytest.mark.parametrize(("settings", "graphs"), [
    (LightGBMSettings(**TREES), TILE), (PointwiseSettings(**TREES), LAYOUT),
    (OrdinarySettings(), TILE), (RidgeSettings(), LAYOUT), (LassoSettings(), TILE),
], ids=["lambdarank", "pointwise", "ordinary", "ridge", "lasso"])  # fmt: skip
def test_contributions_add_up_to_the_gap_of_scores(settings: RankerSettings, graphs: list) -> None:
    ranker = settings.build(0).fit(graphs[:4], [graphs[4]])
    scores = ranker.predict(graphs[5]).astype(float)
    rows = feature_table(graphs[5]).to_numpy()
    found = explain_difference(ranker, rows, rows[2])
    assert found.shape == rows.shape
    np.testing.assert_allclose(found.sum(axis=1), scores - scores[2], atol=1e-4)
    importance = measure_importance(ranker)
    assert importance.shape == (rows.shape[1],)
    assert importance.sum() == pytest.approx(1)


@pytest.fixture(scope="module")
def ranker() -> Ranker:
    return LightGBMSettings(**TREES).build(0).fit(TILE[:4], [])


def test_what_is_alike_in_both_configurations_is_no_reason(ranker: Ranker) -> None:
    explained = explain(ranker, TILE[5])
    first = explained.order[0]
    rows = explained.rows.copy()
    rows[explained.slow, first] = rows[explained.fast, first]
    everything = np.abs(explained.contributions) + 1
    alike = dataclasses.replace(explained, rows=rows, contributions=everything)
    reasons = " ".join(name_reasons(alike))
    assert reasons
    assert f"{alike.features[first].name} is" not in reasons


def test_what_is_not_there_or_cannot_be_explained_is_refused(ranker: Ranker) -> None:
    with pytest.raises(InputError, match="no configuration 99"):
        explain(ranker, TILE[5], 99)
    with pytest.raises(InputError, match="explained"):
        explain(NothingSettings().build(0), TILE[5])
    with pytest.raises(InputError, match="found 1"):
        explain(ranker, make_tile_graph(7, configs=1, name="alone"))


def test_the_fastest_is_compared_with_the_slowest_and_never_with_itself(ranker: Ranker) -> None:
    scores = ranker.predict(TILE[5])
    assert scores.min() < scores.max()
    for fastest in map(int, np.flatnonzero(scores == scores.min())):
        explained = explain(ranker, TILE[5], fastest)
        assert (explained.slow, explained.fast) == (int(np.argmax(scores)), fastest)
        assert np.abs(explained.contributions).sum() > 0
        said = describe(explained, [])
        assert f"configuration {fastest} (" in said
        assert said.startswith(f"Configuration {fastest} is itself predicted fastest")
    slower = int(np.argmax(scores))
    assert "itself" not in describe(explain(ranker, TILE[5], slower), [])
    assert "itself" not in describe(explain(ranker, TILE[5]), [])


def test_of_an_own_model_the_file_is_asked_for(fastslow_here: FastSlow, tmp_path: Path) -> None:
    """The run knows its name, but the package has no such experiment."""
    make_run(tmp_path / "done", collections=("tile:xla",))
    done = fastslow_here("explain", "net_001", "graph_0", "--run", "done")
    assert_refused(done, "net_001", "path")


def test_a_file_that_was_changed_reads_no_old_models(fastslow: FastSlow, tmp_path: Path) -> None:
    text = (
        "from solution import Experiment\nfrom solution.models.linear import RidgeSettings\n"
        "EXPERIMENT = Experiment('mine', ('tile:xla',), RidgeSettings())\n"
    )
    (tmp_path / "mine.py").write_text(text, encoding="utf-8")
    data = make_data(tmp_path / "data")
    how = ("--folds", "2", "--scheme", "graph", "--run", "out")
    assert_done(fastslow("train", "mine.py", "--data", data, *how))
    assert_done(fastslow("explain", "mine.py", "k0", "--run", "out"))
    (tmp_path / "mine.py").write_text(f"{text}CHANGED = 1\n", encoding="utf-8")
    assert_refused(fastslow("explain", "mine.py", "k0", "--run", "out"), "mine.py", "changed")


def test_explain_after_a_run(fastslow: FastSlow, fastslow_here: FastSlow, tmp_path: Path) -> None:
    for seed in range(9):
        graph = make_tile_graph(seed, configs=12, name=f"kernel_{seed}")
        write_graph(graph, tmp_path / "data", "test" if seed == 8 else "train")
    more = ("--experiment", "nothing_001", "--experiment", "linear_ridge_001")
    recipe = tmp_path / "one.toml"
    recipe.write_text('fallback = "nothing_001"\n[members]\nlinear_ridge_001 = 1\n')
    run = fastslow("run", "data", *more, "--recipe", recipe, "--run", "runs/data", "--folds", "2",
                   "--scheme", "graph")  # fmt: skip
    assert_done(run)
    call = ("explain", "linear_ridge_001", "kernel_3", "--run", "runs/data", "--out", "pictures")
    said = assert_done(fastslow(*call, "--config", "5"))
    assert re.search(r"Configuration 5 of kernel_3 \(output [\dx]+\) is predicted", said)
    assert re.search(r"[Tt]ake \d+\.", said)
    assert (tmp_path / "pictures" / "contributions.png").read_bytes().startswith(b"\x89PNG")
    graphs = pl.read_parquet(tmp_path / "runs" / "data" / "graphs.parquet")
    (fold,) = graphs.filter(graph="kernel_3")["fold"]
    write_graph(make_tile_graph(20, configs=12, name="kernel_3"), tmp_path / "theirs", "train")
    prepare_store(find_files(tmp_path / "theirs"), tmp_path / "stores" / "theirs", Preparation())
    # Who knows what the models saw of it?
    other = fastslow_here(*call, "--data", "stores/theirs")
    assert_refused(other, "stores/theirs", "runs/data")
    assert_done(fastslow_here(*call, "--data", "stores/data"))
    unknown = fastslow_here("explain", "linear_ridge_001", "kernel_99", "--run", "runs/data")
    assert_refused(unknown, "'kernel_99'", "kernel_")
    for job in (tmp_path / "runs" / "data" / "linear_ridge_001" / "jobs").rglob(f"fold-{fold}-*"):
        shutil.rmtree(job)
    seen = fastslow_here(*call)
    assert_refused(seen, "linear_ridge_001", "tile:xla", "kernel_3")
    command = seen.stderr.split("Train it with `")[1].split("`")[0]  # of the run's own
    assert_done(fastslow(*shlex.split(" ".join(command.split()))[1:]))
    assert_done(fastslow_here(*call))
    untrained = fastslow_here("explain", "linear_lasso_001", "kernel_3", "--run", "runs/data")
    assert_refused(untrained, "--experiment linear_lasso_001`")


def test_costs_that_add_up_are_shown_by_what_the_compiler_makes(
    fastslow: FastSlow, fastslow_here: FastSlow, tmp_path: Path
) -> None:
    for seed in range(6):
        graph = make_layout_graph(seed, configs=12, name=f"program_{seed}")
        write_graph(graph, tmp_path / "data", "train")
    experiment = REPOSITORY / "tests" / "made" / "experiments" / "quick_cost_net.py"
    run = fastslow("run", "data", "--experiment", experiment, "--folds", "2", "--scheme", "graph")
    assert_done(run)
    call = ("explain", experiment, "program_2", "--out", "pictures")
    assert_refused(fastslow_here(*call))  # there is no runs/sample
    said = assert_done(fastslow(*call, "--run", "runs/data"))
    assert "against" in said
    assert "add up" in " ".join(said.split())
    assert re.search(r"copied from \{[\d,]+\} to|makes \{[\d,]+\}", said)
    assert (tmp_path / "pictures" / "costs.png").read_bytes().startswith(b"\x89PNG")


def test_nodes_have_their_numbers_in_the_program_though_the_store_is_pruned(
    fastslow: FastSlow, fastslow_here: FastSlow, tmp_path: Path
) -> None:
    """Without its node 3, which no configurable node reads, reshape 5 would be reshape 4."""
    for seed in range(6):
        graph = make_layout_graph(seed, configs=12, name=f"program_{seed}")
        write_graph(graph, tmp_path / "data", "train")
    how = ("--folds", "2", "--scheme", "graph", "--run", "out")
    assert_done(fastslow("train", "linear_ridge_001", "--data", "data", *how))
    call = ("explain", "linear_ridge_001", "program_2", "--run", "out", "--config")
    named, advice = set[str](), "--hops"
    for config in range(3):
        said = assert_done(fastslow_here(*call, str(config)))
        named |= set(re.findall(r"(?:dot|reshape) \d+ output", said))
        assert advice not in said
    assert named == {"dot 2 output", "reshape 5 output"}
    shutil.rmtree(tmp_path / "data")
    said = assert_done(fastslow_here(*call, "0"))
    assert advice in said


def test_what_could_not_be_divided_explains_graphs_without_labels(
    fastslow: FastSlow, fastslow_here: FastSlow, tmp_path: Path
) -> None:
    """Its one model has seen the only graph that has labels, and no other."""
    write_graph(TILE[0], tmp_path / "data", "train")
    write_graph(TILE[1], tmp_path / "data", "test")
    assert_done(fastslow("run", "data", "--experiment", "linear_ridge_001", "--run", "one"))
    call = ("explain", "linear_ridge_001")
    assert_done(fastslow_here(*call, "kernel_1", "--run", "one", "--out", "pictures"))
    assert_refused(fastslow_here(*call, "kernel_0", "--run", "one"), "too few")
