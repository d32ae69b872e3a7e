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
from solution.features.table import feature_table
from solution.models.base import RankerSettings
from solution.models.linear import LassoSettings, OrdinarySettings, RidgeSettings
from solution.models.nothing import NothingSettings
from solution.models.trees.lightgbm_ranker import LightGBMSettings, PointwiseSettings
from solution.system.errors import InputError
from tests.commands.test_first_minutes import make_data
from tests.conftest import REPOSITORY, FastSlow
from tests.made.graphs import make_layout_graph, make_tile_graph, write_graph
from tests.made.run import make_run

TILE = [make_tile_graph(seed, configs=20, name=f"kernel_{seed}") for seed in range(6)]
LAYOUT = [make_layout_graph(seed, configs=20, name=f"program_{seed}") for seed in range(6)]
TREES = {"rounds": 20, "min_data_in_leaf": 3}


@pytest.mark.parametrize(("settings", "graphs"), [
    (LightGBMSettings(**TREES), TILE), (PointwiseSettings(**TREES), LAYOUT),
    (OrdinarySettings(), TILE), (RidgeSettings(), LAYOUT), (LassoSettings(), TILE),
], ids=["lambdarank", "pointwise", "ordinary", "ridge", "lasso"])  # fmt: skip
def test_contributions_add_up_to_the_difference_of_the_scores(
    settings: RankerSettings, graphs: list
) -> None:
    ranker = settings.build(0).fit(graphs[:4], [graphs[4]])
    scores = ranker.predict(graphs[5]).astype(float)
    rows = feature_table(graphs[5]).to_numpy()
    found = explain_difference(ranker, rows, rows[2])
    assert found.shape == rows.shape
    np.testing.assert_allclose(found.sum(axis=1), scores - scores[2], atol=1e-4)
    importance = measure_importance(ranker)
    assert importance.shape == (rows.shape[1],)
    assert importance.sum() == pytest.approx(1)


def test_what_is_alike_in_both_configurations_is_no_reason() -> None:
    ranker = LightGBMSettings(**TREES).build(0).fit(TILE[:4], [])
    explained = explain(ranker, TILE[5])
    first = explained.order[0]
    rows = explained.rows.copy()
    rows[explained.slow, first] = rows[explained.fast, first]
    everything = np.abs(explained.contributions) + 1
    alike = dataclasses.replace(explained, rows=rows, contributions=everything)
    reasons = " ".join(name_reasons(alike))
    assert reasons
    assert f"{alike.features[first].name} is" not in reasons


def test_what_is_not_there_or_cannot_be_explained_is_refused() -> None:
    ranker = LightGBMSettings(**TREES).build(0).fit(TILE[:4], [])
    with pytest.raises(InputError, match="no configuration 99"):
        explain(ranker, TILE[5], 99)
    with pytest.raises(InputError, match="explained"):
        explain(NothingSettings().build(0), TILE[5])


def test_the_fastest_is_compared_with_the_slowest_and_never_with_itself() -> None:
    ranker = LightGBMSettings(**TREES).build(0).fit(TILE[:4], [])
    scores = ranker.predict(TILE[5])
    assert scores.min() < scores.max()
    for fastest in map(int, np.flatnonzero(scores == scores.min())):
        explained = explain(ranker, TILE[5], fastest)
        assert (explained.slow, explained.fast) == (int(np.argmax(scores)), fastest)
        assert np.abs(explained.contributions).sum() > 0
        assert f"configuration {fastest} (" in describe(explained, [])
    alone = make_tile_graph(7, configs=1, name="alone")
    with pytest.raises(InputError, match="found 1"):
        explain(ranker, alone)


def test_of_a_model_of_ones_own_the_file_is_asked_for(fastslow: FastSlow, tmp_path: Path) -> None:
    """The run knows its name, but the package has no such experiment."""
    make_run(tmp_path / "done", collections=("tile:xla",))
    done = fastslow("explain", "net_001", "graph_0", "--run", "done")
    assert done.returncode == 2
    assert all(fact in done.stderr for fact in ("net_001", "path"))


def test_a_file_that_was_changed_does_not_read_the_models_of_before(
    fastslow: FastSlow, tmp_path: Path
) -> None:
    text = (
        "from solution import Experiment\nfrom solution.models.linear import RidgeSettings\n"
        "EXPERIMENT = Experiment('mine', ('tile:xla',), RidgeSettings())\n"
    )
    (tmp_path / "mine.py").write_text(text, encoding="utf-8")
    data = make_data(tmp_path / "data")
    how = ("--folds", "2", "--scheme", "graph", "--run", "out")
    assert fastslow("train", "mine.py", "--data", data, *how).returncode == 0
    assert fastslow("explain", "mine.py", "k0", "--run", "out").returncode == 0
    (tmp_path / "mine.py").write_text(f"{text}CHANGED = 1\n", encoding="utf-8")
    done = fastslow("explain", "mine.py", "k0", "--run", "out")
    assert done.returncode == 2
    assert all(fact in done.stderr for fact in ("mine.py", "changed"))


def test_explain_after_a_run(fastslow: FastSlow, tmp_path: Path) -> None:
    for seed in range(9):
        graph = make_tile_graph(seed, configs=12, name=f"kernel_{seed}")
        write_graph(graph, tmp_path / "data", "test" if seed == 8 else "train")
    more = ("--experiment", "nothing_001", "--experiment", "linear_ridge_001")
    recipe = tmp_path / "one.toml"
    recipe.write_text('fallback = "nothing_001"\n[members]\nlinear_ridge_001 = 1\n')
    run = fastslow("run", "data", *more, "--recipe", recipe, "--run", "runs/data", "--folds", "2",
                   "--scheme", "graph")  # fmt: skip
    assert run.returncode == 0, run.stderr
    call = ("explain", "linear_ridge_001", "kernel_3", "--run", "runs/data", "--out", "pictures")
    result = fastslow(*call, "--config", "5")
    assert result.returncode == 0, result.stderr
    assert re.search(r"Configuration 5 of kernel_3 \(output [\dx]+\) is predicted", result.stdout)
    assert re.search(r"[Tt]ake \d+\.", result.stdout)
    for name in ("contributions.png", "components.png"):
        assert (tmp_path / "pictures" / name).read_bytes().startswith(b"\x89PNG")
    graphs = pl.read_parquet(tmp_path / "runs" / "data" / "graphs.parquet")
    (fold,) = graphs.filter(graph="kernel_3")["fold"]
    write_graph(make_tile_graph(20, configs=12, name="kernel_3"), tmp_path / "theirs", "train")
    assert fastslow("prepare", "theirs").returncode == 0
    other = fastslow(*call, "--data", "stores/theirs")  # who knows what the models saw of it?
    assert other.returncode == 2
    assert all(fact in other.stderr for fact in ("stores/theirs", "runs/data"))
    assert fastslow(*call, "--data", "stores/data").returncode == 0
    unknown = fastslow("explain", "linear_ridge_001", "kernel_99", "--run", "runs/data")
    assert unknown.returncode == 2
    assert "'kernel_99'" in unknown.stderr
    assert "kernel_" in unknown.stderr
    for job in (tmp_path / "runs" / "data" / "linear_ridge_001" / "jobs").rglob(f"fold-{fold}-*"):
        shutil.rmtree(job)
    seen = fastslow(*call)
    assert seen.returncode == 2
    assert all(fact in seen.stderr for fact in ("linear_ridge_001", "tile:xla", "kernel_3"))
    command = seen.stderr.split("Train it with `")[1].split("`")[0]  # of the run's own
    again = fastslow(*shlex.split(" ".join(command.split()))[1:])
    assert again.returncode == 0, again.stderr
    assert fastslow(*call).returncode == 0
    untrained = fastslow("explain", "linear_lasso_001", "kernel_3", "--run", "runs/data")
    assert untrained.returncode == 2
    assert "--experiment linear_lasso_001`" in " ".join(untrained.stderr.split())


def test_costs_that_add_up_are_shown_by_what_the_compiler_makes(
    fastslow: FastSlow, tmp_path: Path
) -> None:
    for seed in range(6):
        graph = make_layout_graph(seed, configs=12, name=f"program_{seed}")
        write_graph(graph, tmp_path / "data", "train")
    experiment = REPOSITORY / "tests" / "made" / "experiments" / "quick_cost_net.py"
    run = fastslow("run", "data", "--experiment", experiment, "--folds", "2", "--scheme", "graph")
    assert run.returncode == 0, run.stderr
    result = fastslow("explain", experiment, "program_2", "--out", "pictures")
    assert result.returncode == 2  # there is no runs/sample
    result = fastslow("explain", experiment, "program_2", "--run", "runs/data", "--out", "pictures")
    assert result.returncode == 0, result.stderr
    assert "against" in result.stdout
    assert "add up" in " ".join(result.stdout.split())
    assert re.search(r"copied from \{[\d,]+\} to|makes \{[\d,]+\}", result.stdout)
    assert (tmp_path / "pictures" / "costs.png").read_bytes().startswith(b"\x89PNG")


def test_what_could_not_be_divided_explains_graphs_without_labels(
    fastslow: FastSlow, tmp_path: Path
) -> None:
    """Its one model has seen the only graph that has labels, and no other."""
    write_graph(TILE[0], tmp_path / "data", "train")
    write_graph(TILE[1], tmp_path / "data", "test")
    run = ("run", "data", "--experiment", "linear_ridge_001", "--run", "one")
    assert fastslow(*run).returncode == 0
    call = ("explain", "linear_ridge_001")
    done = fastslow(*call, "kernel_1", "--run", "one", "--out", "pictures")
    assert done.returncode == 0, done.stderr
    seen = fastslow(*call, "kernel_0", "--run", "one")
    assert seen.returncode == 2
    assert "too few" in " ".join(seen.stderr.split())
