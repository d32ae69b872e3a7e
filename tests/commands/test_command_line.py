"""The commands as a user types them: end to end, with mistakes, and as their examples show."""

import csv
import json
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import typer
from typer.main import get_command

from ensembles import DEFAULT_RECIPE
from ensembles.recipe import find_recipe
from solution.commands.assembly import GROUPS, assemble, read_path
from solution.domain.collection import NAMES
from solution.experiments.base import list_experiments
from solution.runs.record import open_run
from solution.system.errors import InputError
from tests.conftest import REPOSITORY, FastSlow, assert_done, assert_refused
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


def test_run_makes_a_submission_and_a_table(
    fastslow: FastSlow, sample: Path, tmp_path: Path
) -> None:
    printed = assert_done(quick_run(fastslow, sample))
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
        scored = dict(scores.filter(collection=collection).select("ranker", "score").rows())
        lightgbm = next(score for ranker, score in scored.items() if "lightgbm" in ranker)
        assert lightgbm > scored["nothing_001"] + 0.05
        assert collection in printed
    table, mean, said = printed.partition("mean of the five")
    assert mean and "no model" in said
    assert max(map(len, table.splitlines())) <= 80
    record = json.loads((tmp_path / "out" / "run.json").read_text())
    assert record["versions"]["lightgbm"]
    verified = fastslow("verify", "out/submission.csv", "--run", "out")
    assert f"{len(test)} rows" in assert_done(verified)


def test_a_folder_of_another_run_is_refused_before_the_data_is_prepared(
    fastslow_here: FastSlow, sample: Path, tmp_path: Path
) -> None:
    with open_run(tmp_path / "out", {"scheme": "graph", "folds": 2, "experiments": {}}):
        pass
    train = ("train", "nothing_001", "--data", sample, "--run", "out")
    for other in (quick_run(fastslow_here, sample), fastslow_here(*train)):
        assert_refused(other, "scheme: graph", "architecture")
    (tmp_path / "out" / "run.json").unlink()
    (tmp_path / "out" / "thesis.txt").write_text("years of work")
    strange = quick_run(fastslow_here, sample, "--replace")
    assert_refused(strange, "out: expected an empty folder or a run")
    assert not (tmp_path / "stores").exists()


def test_real_files_run_and_gaps_are_said(fastslow: FastSlow, tpu: Path, tmp_path: Path) -> None:
    result = quick_run(fastslow, tpu)
    printed = " ".join(assert_done(result).split())
    said = " ".join(result.stderr.split())
    assert "layout:nlp:default: no" in said
    assert "layout:xla:default" in said and "2 labelled" in said
    assert "884 of" in printed and "sample_submission.csv" in printed
    rows = read_rows(tmp_path / "out" / "submission.csv")
    assert len(rows) == 894
    assert len(rows["layout:nlp:default:3a0c5517a87df8d82fd637b83298a3ba"]) == 1001
    assert list(rows) == list(read_rows(tpu / "sample_submission.csv"))


def test_one_graph_and_no_more_is_enough_for_a_submission(
    fastslow: FastSlow, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    write_graph(make_layout_graph(0, name="only"), data)
    write_graph(make_layout_graph(1, name="asked", labelled=False), data, "test")
    write_graph(make_tile_graph(2, name="asked", configs=3, labelled=False), data, "test")
    result = quick_run(fastslow, data)
    assert_done(result)
    said = " ".join(result.stderr.split())
    assert "divided" in said and "layout:nlp:random: no" in said
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
    arguments: list[str], message: str, fastslow_here: FastSlow, tmp_path: Path
) -> None:
    assert_refused(fastslow_here(*arguments), message)
    assert not any(tmp_path.iterdir())


def test_what_is_not_there_is_said_before_torch_is_loaded() -> None:
    code = """
import sys
from solution.cli import main
for words in (["run", "nowhere"], ["run", "--recipe", "no_such_recipe"]):
    sys.argv = ["fastslow", *words]
    try:
        main()
    except SystemExit as end:
        assert end.code == 2
    else:
        raise AssertionError(words)
    assert "torch" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_what_a_run_trains_is_listed_first_and_papers_if_asked_for(fastslow: FastSlow) -> None:
    first, names = fastslow("experiments"), list_experiments()
    defaults, rest = first.stdout.split("Others")
    recipe = find_recipe(DEFAULT_RECIPE)
    assert all(name in defaults for name in recipe.and_fallback(recipe.names()))
    assert "layout_lightgbm_001" in rest
    left_out = [name for name in names if not re.search(rf"^{name} ", first.stdout, re.MULTILINE)]
    assert "layout_tpugraphs_001" in left_out
    assert f"{len(left_out)} published systems" in first.stdout
    everything = fastslow("experiments", "--all").stdout
    assert all(re.search(rf"^{name} ", everything, re.MULTILINE) for name in names)


def test_make_passes_its_options_on() -> None:
    command = ["make", "-n", "run", "DATA=some folder", "RUN=there", "LIMIT=1", "REPLACE=1"]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=True)
    expected = 'fastslow run "some folder" --run "there" --limit --replace'
    assert expected in " ".join(done.stdout.split())


ADDRESS = "s3://bucket/r1"
COMMANDS = [
    "prepare --out s3://bucket/r1", "prepare s3://bucket/r1", "check s3://bucket/r1",
    "inspect s3://bucket/r1", "inspect a.npz --picture s3://bucket/r1",
    "features tile:xla --out s3://bucket/r1", "module a.pb --to s3://bucket/r1",
    "data s3://bucket/r1", "report --run s3://bucket/r1", "verify a.csv --run s3://bucket/r1",
    "ensemble --run s3://bucket/r1", "compare a b --run s3://bucket/r1",
    "submit --run s3://bucket/r1", "runs s3://bucket/r1",
    "collect layout a.py --out s3://bucket/r1", "collect report s3://bucket/r1",
    "kernels share s3://bucket/r1", "explain a b --run s3://bucket/r1",
    "explain a b --out s3://bucket/r1", "rank a.npz s3://bucket/r1",
    "rank a.npz --run s3://bucket/r1", "pack s3://bucket/r1 --out b.zip",
    "pack run --out s3://bucket/r1", "tune tile_lightgbm_001 --out s3://bucket/r1",
    "choose a.py --out s3://bucket/r1", "onnx s3://bucket/r1",
    "optimize rnnlm-2 --out s3://bucket/r1",
]  # fmt: skip


@pytest.mark.parametrize("line", COMMANDS)
def test_it_is_named_as_it_was_given_and_nothing_is_written(
    fastslow_here: FastSlow, tmp_path: Path, line: str
) -> None:
    said = assert_refused(fastslow_here(*line.split()), f"`aws s3 sync {ADDRESS} FOLDER`")
    assert said.startswith(f"Error: {ADDRESS}: is an address, where a file or folder of this")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("words", "named"), [
    (("tune", "tile_lightgbm_001", "--out", ""), "--out"), (("run", ""), "DATA"),
    (("run", "--run", ""), "--run"), (("run", "--store", ""), "--store"),
    (("train", "tile_lightgbm_001", "--data", ""), "--data"), (("check", ""), "DATA"),
    (("rank", "a.npz", ""), "FILE"), (("collect", "report", ""), "FOLDER"),
])  # fmt: skip
def test_an_empty_one_is_refused_by_its_option(
    fastslow_here: FastSlow, tmp_path: Path, words: tuple[str, ...], named: str
) -> None:
    """What a shell makes of a variable that is not set would be the folder one is in."""
    said = assert_refused(fastslow_here(*words), "empty")
    assert re.search(rf"Invalid value for \W*{named}", said, re.IGNORECASE)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("given", "words"), [
    ("s3:/bucket/x", "//bucket/x.*FOLDER"), ("GS://bucket/x", "--recursive gs.*//bucket/x.*FOLDER"),
    ("abfs://container/x", "the program"),
])  # fmt: skip
def test_how_to_fetch_it_is_said_of_what_is_nearly_an_address(given: str, words: str) -> None:
    with pytest.raises(InputError, match=words):
        read_path(given)


def test_a_folder_that_is_called_so_can_be_named() -> None:
    assert read_path("./s3:/bucket/x") == Path("s3:/bucket/x")


PROGRAM: Any = get_command(assemble())
EXAMPLE = re.compile(r"^ *(fastslow .+)$|`(fastslow [^`]+)`", re.MULTILINE)


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the folders are that the examples name: some commands look before they begin."""
    for name in ("data", "stores/data", "DATA"):
        (tmp_path / name).mkdir(parents=True, exist_ok=True)  # two are one on macOS
    monkeypatch.chdir(tmp_path)


def list_commands(command: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    yield name, command
    for word, child in getattr(command, "commands", {}).items():
        yield from list_commands(child, f"{name} {word}".strip())


def find_examples() -> list[str]:
    """What the help of every command and of its options shows, once each."""
    texts = []
    for _, command in list_commands(PROGRAM):
        texts += [command.help, command.epilog, *(getattr(p, "help", "") for p in command.params)]
    found = (match for text in texts for match in EXAMPLE.finditer(text or ""))
    return sorted({" ".join((match[1] or match[2]).split()) for match in found})


def parse(line: str) -> None:
    """Parse a line as the command line does; a usage error where it cannot be given."""
    command, words = PROGRAM, shlex.split(line)[1:]
    while words and words[0] in getattr(command, "commands", {}):
        command, *words = command.commands[words[0]], *words[1:]
    if hasattr(command, "commands"):
        raise typer.BadParameter(f"no such command: {line}")
    command.make_context(command.name, words).close()


@pytest.mark.parametrize("line", find_examples())
@pytest.mark.usefixtures("folders")
def test_an_example_can_be_given(line: str) -> None:
    parse(line)


def test_every_command_shows_an_example() -> None:
    shown = {line.split()[1] for line in find_examples()}
    assert shown >= {name for name, command in PROGRAM.commands.items()
                     if not hasattr(command, "commands")}  # fmt: skip


def test_every_command_and_every_group_of_them_stands_in_a_panel() -> None:
    panels = {name: command.rich_help_panel for name, command in PROGRAM.commands.items()}
    assert panels == {name: panel for panel, names in GROUPS.items() for name in names}
