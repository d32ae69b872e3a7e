"""`fastslow pack` and `fastslow rank`, as people call them."""

import json
from pathlib import Path

import polars as pl

from solution import load_bundle, read_graph
from solution.runs.folder import Run
from tests.conftest import FastSlow
from tests.made import modules


def test_rank_prints_and_writes_the_order(
    fastslow: FastSlow, bundle_folder: Path, data: Path, tmp_path: Path
) -> None:
    file = data / "npz/tile/xla/test/kernel_6.npz"
    module = modules.write(modules.make_layout_record(), tmp_path / "module" / "mine.pb")
    done = fastslow(
        "rank", file, module, "--with", bundle_folder, "--top", "3", "--confidence", "80%",
        "--csv", "all.csv", "--json", "all.json",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    expected = load_bundle(bundle_folder).rank(read_graph(file), confidence=0.8)
    assert f"Measure the first {expected.measure}: within 2.0% of the best" in done.stdout
    table = pl.read_csv(tmp_path / "all.csv")
    own = table.filter(pl.col("graph") == "kernel_6")
    assert set(own["file"]) == {str(file)}
    assert own["config"].to_list() == expected.order.tolist()
    assert own.filter("measure")["config"].sort().to_list() == sorted(expected.to_measure)
    first, second = json.loads((tmp_path / "all.json").read_text())
    assert [row["config"] for row in first["configurations"]] == expected.order.tolist()
    assert first["to_measure"] == expected.to_measure.tolist()
    assert len(first["to_measure"]) == expected.measure
    assert (second["graph"], len(second["configurations"])) == ("mine", 3)
    assert second["file"] == str(module)
    graph = read_graph(module)
    given = graph.layouts.expand().reshape(3, -1, 3, 6)
    for row in second["configurations"]:  # nothing that a configuration asks for is left out
        asked = [
            [int(node), tensor, [int(axis) for axis in own if axis >= 0]]
            for node, tensors in zip(graph.configurable, given[row["config"]], strict=True)
            for tensor, own in zip(("output", "input", "kernel"), tensors, strict=True)
            if own[0] >= 0
        ]
        assert row["layouts"] == asked
    words = table.filter(pl.col("graph") == "mine")["configuration"].to_list()
    assert not any("more" in line for line in words)


def test_a_dumped_program_is_ranked_by_a_run(fastslow: FastSlow, run: Run, tmp_path: Path) -> None:
    modules.write(modules.make_module(), tmp_path / "mine.pb")
    recipe = 'method = "z_score"\n[members]\nlambdarank = 1\n'
    (tmp_path / "mine.toml").write_text(recipe)
    done = fastslow(
        "rank", "mine.pb", "--run", run.folder, "--recipe", "mine.toml", "--configs", "20"
    )
    assert done.returncode == 0, done.stderr
    assert "16 configurations that were made for it" in done.stdout
    assert "No number to measure is given: 6 programs predicted out of fold" in done.stdout
    done = fastslow("pack", run.folder, "--recipe", "mine.toml", "--out", "mine.zip")
    assert done.returncode == 0, done.stderr
    assert load_bundle(tmp_path / "mine.zip").record.name == "mine"
    done = fastslow("pack", run.folder, "--recipe", "mine.toml", "--out", "my bundle")
    assert "fastslow rank FILE --with 'my bundle'" in " ".join(done.stdout.split())
    refused = fastslow("pack", run.folder, "--out", "b.zip", "--data", "nowhere")
    assert refused.returncode == 2
    assert "Give --refit or --distill as well" in " ".join(refused.stderr.split())


def test_bad_input_is_one_message(fastslow: FastSlow, bundle_folder: Path, tmp_path: Path) -> None:
    (tmp_path / "some.npz").touch()
    for arguments, words in (
        (["some.npz", "--with", "nowhere"], "there is no bundle here"),
        (["none.npz"], "there is no such file"),
        (["some.npz", "none"], "there is no such file"),
        (["none.npz", "--with", bundle_folder], "there is no such file"),
        (["some.npz", "--with", bundle_folder, "--run", "x"], "one of them"),
        (["none.npz", "--with", bundle_folder, "--confidence", "2"], "no such file"),
        (["none.npz", "--with", bundle_folder, "--regret", "much"], "is no share"),
        (["some.npz", "--with", bundle_folder, "--recipe", "mine.toml"], "give --run RUN as well"),
        (["none.npz", "--csv", "a", "--json", "a"], "ends with .csv"),
        (["none.npz", "--csv", "mine.zip"], "ends with .csv"),
        (["none.npz", "--configs", "0"], "greater than or equal to 1"),
    ):
        done = fastslow("rank", *arguments)
        assert done.returncode == 2
        assert words in done.stderr
        assert not done.stdout
