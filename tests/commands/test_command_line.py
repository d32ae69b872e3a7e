"""The commands as a user types them, end to end on real measured data."""

import csv
import json
import re
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest

from solution.domain.collection import NAMES
from solution.experiments import DEFAULTS
from solution.experiments.base import list_experiments
from solution.runs.record import open_run
from tests.conftest import REPOSITORY, FastSlow
from tests.made.graphs import make_layout_graph, make_tile_graph, write_graph

QUICK = [
    "--experiment", "nothing_001",
    "--experiment", "layout_lightgbm_001",
    "--experiment", "tile_lightgbm_001",
    "--folds", "2",
    "--workers", "1",
]  # fmt: skip


def quick_run(fastslow: FastSlow, data: Path, *more: str) -> subprocess.CompletedProcess[str]:
    return fastslow("run", data, *QUICK, "--run", "out", *more)


def read_rows(path: Path) -> dict[str, list[int]]:
    with path.open(encoding="utf-8") as file:
        header, *rows = csv.reader(file)
    assert header == ["ID", "TopConfigs"]
    return {name: [int(index) for index in configs.split(";")] for name, configs in rows}


def test_run_makes_a_sound_submission_and_a_table(
    fastslow: FastSlow, sample: Path, tmp_path: Path
) -> None:
    result = quick_run(fastslow, sample)
    assert result.returncode == 0, result.stderr
    graphs = pl.read_parquet(tmp_path / "out" / "graphs.parquet")
    test = graphs.filter(pl.col("split") == "test")
    rows = read_rows(tmp_path / "out" / "submission.csv")
    assert len(rows) == len(test)
    for collection, name, configs in test.select("collection", "graph", "configs").rows():
        found = rows[f"{collection}:{name}"]
        expected = configs if collection.startswith("layout") else 5
        assert len(found) == len(set(found)) == expected
        assert max(found) < configs
    scores = pl.read_csv(tmp_path / "out" / "scores.csv")
    for collection in NAMES:
        scored = dict(
            scores.filter(pl.col("collection") == collection).select("ranker", "score").rows()
        )
        lightgbm = next(score for ranker, score in scored.items() if "lightgbm" in ranker)
        assert lightgbm > scored["nothing_001"] + 0.05
        assert collection in result.stdout
    table, mean, said = result.stdout.partition("mean of the five")
    assert mean and "no model" in said
    assert max(map(len, table.splitlines())) <= 80
    record = json.loads((tmp_path / "out" / "run.json").read_text())
    assert record["versions"]["lightgbm"]
    verified = fastslow("verify", "out/submission.csv", "--run", "out")
    assert verified.returncode == 0
    assert f"{len(test)} rows" in verified.stdout


def test_a_folder_of_another_run_is_refused_before_the_data_is_prepared(
    fastslow: FastSlow, sample: Path, tmp_path: Path
) -> None:
    with open_run(tmp_path / "out", {"scheme": "graph", "folds": 2, "experiments": {}}):
        pass
    for other in (
        quick_run(fastslow, sample),
        fastslow("train", "nothing_001", "--data", sample, "--run", "out"),
    ):
        assert other.returncode == 2
        assert all(
            fact in " ".join(other.stderr.split()) for fact in ("scheme: graph", "architecture")
        )
        assert not (tmp_path / "stores").exists()
    (tmp_path / "out" / "run.json").unlink()
    (tmp_path / "out" / "thesis.txt").write_text("years of work")
    strange = quick_run(fastslow, sample, "--replace")
    assert "out: expected an empty folder or a run" in " ".join(strange.stderr.split())
    assert not (tmp_path / "stores").exists()


def test_real_tpu_files_run_and_gaps_are_said(
    fastslow: FastSlow, tpu: Path, tmp_path: Path
) -> None:
    result = quick_run(fastslow, tpu)
    assert result.returncode == 0, result.stderr
    words = " ".join(result.stderr.split())
    assert "layout:nlp:default: no" in words
    assert all(fact in words for fact in ("layout:xla:default", "2 labelled"))
    rows = read_rows(tmp_path / "out" / "submission.csv")
    assert len(rows) == 894
    assert len(rows["layout:nlp:default:3a0c5517a87df8d82fd637b83298a3ba"]) == 1001
    assert all(
        fact in " ".join(result.stdout.split()) for fact in ("884 of", "sample_submission.csv")
    )
    sampled = read_rows(tpu / "sample_submission.csv")
    assert list(rows) == list(sampled)


def test_one_graph_and_missing_collections_still_end_in_a_submission(
    fastslow: FastSlow, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    write_graph(make_layout_graph(0, name="only"), data)
    write_graph(make_layout_graph(1, name="asked", labelled=False), data, "test")
    write_graph(make_tile_graph(2, name="asked", configs=3, labelled=False), data, "test")
    result = quick_run(fastslow, data)
    assert result.returncode == 0, result.stderr
    assert "divided" in " ".join(result.stderr.split())
    assert "layout:nlp:random: no" in " ".join(result.stderr.split())
    rows = read_rows(tmp_path / "out" / "submission.csv")
    assert list(map(len, rows.values())) == [12, 3]


@pytest.mark.parametrize(("arguments", "message"), [
    (["run", "nowhere"], "such folder"), (["prepare", "nowhere"], "such folder"),
    (["prepare", "--hops", "0"], "--hops"), (["run", "--recipe", "no_such_recipe"], "a recipe"),
    (["run", "--experiment", "no_such"], "an experiment"),
    (["run", "--experiment", "tile_lightgbm_001", "--recipe", "z_score_001"], "on nothing_001"),
    (["ensemble", "--run", "nowhere"], "run here"),
    (["verify", "submission.csv", "--run", "nowhere"], "run here"),
    (["inspect", "nowhere.npz"], "such file"), (["run", "--scheme", "neither"], "architecture"),
    (["run", "--hours", "inf"], "finite number"),
    (["choose", "program.py", "--minutes", "inf"], "expected a finite"),
    (["choose", "program.py", "--seconds", "inf"], "expected a finite"),
    (["collect", "layout", "program.py", "--minutes", "inf"], "expected a finite"),
    (["data", "--max-gigabytes", "inf"], "expected a finite"),
    (["tune", "tile_lightgbm_001", "--seed", "-1"], "value for '--seed'"),
    (["tune", "tile_lightgbm_001", "--seed", "4294967296"], "value for '--seed'"),
    (["collect", "layout", "program.py", "--seed", "4294967296"], "value for '--seed'"),
    (["optimize", "rnnlm-2", "--seed", "99999999999999999999"], "value for '--seed'"),
])  # fmt: skip
def test_mistakes_are_one_message_and_exit_code_2(
    arguments: list[str], message: str, fastslow: FastSlow, tmp_path: Path
) -> None:
    result = fastslow(*arguments)
    assert result.returncode == 2
    assert message in " ".join(result.stderr.split())
    assert "Traceback" not in result.stderr
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize("arguments", [["run", "nowhere"], ["run", "--recipe", "no_such_recipe"]])
def test_what_is_not_there_is_said_before_torch_is_loaded(arguments: list[str]) -> None:
    code = f"""
import sys
sys.argv = ["fastslow", *{arguments!r}]
from solution.cli import main
try:
    main()
except SystemExit as end:
    sys.exit(end.code if "torch" not in sys.modules else "torch was loaded")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 2, done.stderr


def test_what_a_run_trains_is_listed_first_and_papers_where_they_are_asked_for(
    fastslow: FastSlow,
) -> None:
    first, names = fastslow("experiments"), list_experiments()
    defaults, rest = first.stdout.split("Others")
    assert all(name in defaults for name in DEFAULTS)
    assert "layout_cost_net_001" in rest
    left_out = [name for name in names if not re.search(rf"^{name} ", first.stdout, re.MULTILINE)]
    assert "layout_tpugraphs_001" in left_out
    assert f"{len(left_out)} published systems" in first.stdout
    everything = fastslow("experiments", "--all").stdout
    assert all(re.search(rf"^{name} ", everything, re.MULTILINE) for name in names)


def test_make_passes_its_options_on() -> None:
    command = ["make", "-n", "run", "DATA=some folder", "RUN=there", "LIMIT=1", "REPLACE=1"]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=True)
    assert re.search(
        r"fastslow run \"some folder\" --run \"there\" --limit --replace",
        " ".join(done.stdout.split()),
    )
