"""A packed run gives the run's scores, from a folder, a zip, anywhere, in another process."""

import dataclasses
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml

from ensembles.merge import alone, merge_run
from solution import load_bundle, load_run, read_graph
from solution.data.folders import find_files
from solution.domain import predictions
from solution.experiments.base import Experiment
from solution.features.preparation import Preparation
from solution.models.linear import RidgeSettings
from solution.runs.folder import Run
from solution.serving.bundle import Bundle
from solution.serving.packing import pack
from solution.serving.record import RECORD
from solution.store.preparing import prepare_store
from solution.store.store import Store
from solution.system.errors import InputError
from tests.made.graphs import make_layout_graph, write_graph
from tests.made.guarded import largest_file
from tests.serving.conftest import KINDS, LAYOUT, RECIPE, TILE, train

FILES = {LAYOUT: "npz/layout/xla/random/test/program_6.npz", TILE: "npz/tile/xla/test/kernel_6.npz"}


@pytest.mark.parametrize("name", KINDS)
def test_every_kind_gives_the_bytes_of_the_runs_own_test_predictions(
    name: str, run: Run, kinds: Callable[[str], Bundle], data: Path
) -> None:
    expected = predictions.read(run.predictions(name, "test"))
    for collection in KINDS[name].collections:
        graph = read_graph(data / FILES[collection])
        found = kinds(name).predict(graph)[name].sort(predictions.KEYS)
        rows = expected.filter(collection=collection, graph=graph.name)
        assert len(rows) == len(found) > 0 and found.equals(rows)


@pytest.mark.parametrize("name", ["full", "full.zip"])
def test_a_full_disk_is_said_of_the_bundle(
    name: str, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "scratch"))
    (tmp_path / "scratch").mkdir()
    full = pytest.raises(InputError, match=f"{tmp_path}/(full|scratch/.*): File too large. Make")
    with full, largest_file(100):
        pack(run, RECIPE, tmp_path / name)
    assert not (tmp_path / name).exists()


class OwnSettings(RidgeSettings):
    """A kind that this program does not know."""


def test_a_model_of_ones_own_is_named_and_not_packed(store: Store, tmp_path: Path) -> None:
    experiment = Experiment("mine", (TILE,), OwnSettings(max_configs=8))
    run = train([experiment], store, tmp_path / "run")
    with pytest.raises(InputError, match=r"\-\-recipe"):
        pack(run, alone("mine"), tmp_path / "bundle")


def test_the_ensemble_gives_the_bytes_of_the_runs_own_ranking(
    run: Run, bundle_folder: Path, bundle_zip: Path, data: Path
) -> None:
    merge_run(run, RECIPE)
    expected = predictions.read(run.ranking(RECIPE.name, "test"))
    for bundle in (load_bundle(bundle_folder), load_bundle(str(bundle_zip))):
        for file in FILES.values():
            graph = read_graph(str(data / file))
            rows = expected.filter(collection=graph.collection.name, graph=graph.name)
            ranking = bundle.rank(graph)
            assert ranking.scores.tobytes() == rows["score"].to_numpy().tobytes()
            assert (np.diff(ranking.scores[ranking.order]) >= 0).all()


def test_another_process_gives_the_same(bundle_folder: Path, bundle_zip: Path, data: Path) -> None:
    code = (
        "import sys; from solution import load_bundle, read_graph\n"
        "bundle = load_bundle(sys.argv[1])\n"
        "for path in sys.argv[2:]: print(bundle.rank(read_graph(path)).scores.tobytes().hex())"
    )
    graphs = [str(data / file) for file in FILES.values()]
    bundle = load_bundle(bundle_folder)
    scores = [bundle.rank(graph).scores.tobytes().hex() for graph in graphs]
    called = [sys.executable, "-c", code, str(bundle_zip), *graphs]
    threads = "1" if torch.get_num_threads() > 1 else "2"
    others = {**os.environ, "OMP_NUM_THREADS": threads, "OMP_WAIT_POLICY": "passive"}
    done = subprocess.run(called, capture_output=True, text=True, check=True, env=others)
    assert done.stdout.split() == scores


def test_a_run_is_as_its_bundle(run: Run, bundle_folder: Path, data: Path, tmp_path: Path) -> None:
    recipe = tmp_path / "small.toml"
    members = "\n".join(f"{name} = {weight}" for name, weight in RECIPE.members.items())
    recipe.write_text(f'method = "z_score"\nfallback = "nothing"\n[members]\n{members}\n')
    graph = read_graph(data / FILES[TILE])
    bundles = (load_bundle(bundle_folder), load_run(str(run.folder), str(recipe)))
    np.testing.assert_array_equal(*(bundle.rank(graph).scores for bundle in bundles))


def test_only_what_the_recipe_merges_is_packed(run: Run, bundle_folder: Path) -> None:
    record = load_bundle(bundle_folder).record
    assert {member.experiment for member in record.members} == {*RECIPE.members, "nothing"}
    seeds = {(m.fold, m.seed) for m in record.members if m.experiment == "lambdarank"}
    assert seeds == {(0, 0), (0, 1), (1, 0), (1, 1)}
    text = (bundle_folder / RECORD).read_text()
    assert "kernel_0" not in text and "program_0" not in text
    assert {len(programs) for programs in record.programs.values()} == {6}


def test_equal_runs_are_packed_into_equal_bytes(run: Run, tmp_path: Path) -> None:
    made = [pack(run, RECIPE, tmp_path / folder / "b.zip") for folder in ("one", "two")]
    assert made[0].read_bytes() == made[1].read_bytes()


def test_the_card_is_what_hubs_read(bundle_folder: Path) -> None:
    _, head, body = (bundle_folder / "README.md").read_text().split("---\n", 2)
    card = yaml.safe_load(head)
    (index,) = card["model-index"]
    record = load_bundle(bundle_folder).record
    shown = {r["dataset"]["type"]: r["metrics"][0]["value"] for r in index["results"]}
    assert shown == {name: score.value for name, score in record.scores.items()}
    assert set(record.scores) == {LAYOUT, TILE}
    assert all(name in body for name in record.scores)
    assert record.scheme == "graph"  # the fixture's run
    assert "another size" in body
    assert re.search(r"tile:xla \| lone \| [0-9.]+ \| 1 \|", body)
    assert re.search(r"tile:xla \| kernel \| [0-9.]+ \([0-9.]+ to [0-9.]+\) \| 5 \|", body)


def test_a_run_by_family_is_told_apart(tmp_path: Path) -> None:
    """Its scores, and what it learned from, are told by the families that its folds kept apart."""
    families = ("resnet", "bert", "vgg")
    for number, family in enumerate(families):
        for seed, name in enumerate((f"{family}_a", f"model_{family}_b")):
            graph = make_layout_graph(seed, name=name)
            opcodes = graph.node_opcodes + np.uint8(number)  # an architecture for each family
            write_graph(dataclasses.replace(graph, node_opcodes=opcodes), tmp_path / "data")
    files = find_files(tmp_path / "data")
    made = prepare_store(files, tmp_path / "store", Preparation())
    run = train([KINDS["nothing"]], made, tmp_path / "run", scheme="family")
    record = load_bundle(pack(run, alone("nothing"), tmp_path / "bundle")).record
    assert record.scheme == "family" and set(record.families[LAYOUT]) == set(families)
    programs = record.programs[LAYOUT]
    groups = {(program.group, program.family) for program in programs}
    assert len(programs) == 6 and sorted(family for _, family in groups) == sorted(families)


def test_a_program_that_was_learned_from(bundle_folder: Path, data: Path, store: Store) -> None:
    bundle = load_bundle(bundle_folder)
    ranking = bundle.rank(read_graph(data / "npz/tile/xla/train/kernel_0.npz"))
    assert ranking.known and "this structure" in ranking.sentence()
    assert ranking.to_frame(3)["configuration"][0].startswith("output ")
    with pytest.raises(InputError, match="1.*expected.*0"):
        ranking.to_frame(-1)
    assert "<table>" in ranking._repr_html_()
    shown = repr(bundle) + repr(bundle.session(ranking.graph)) + repr(ranking)
    assert len(shown) < 1000  # a notebook shows what stands last in a cell
    assert "kernel_0" in shown


def test_what_models_of_other_collections_learned_is_not_known(
    bundle_folder: Path, data: Path
) -> None:
    bundle, graph = load_bundle(bundle_folder), read_graph(data / FILES[LAYOUT])
    same = dataclasses.replace(
        bundle.record.programs[LAYOUT][0], architecture=graph.architecture
    )  # fmt: skip
    for where, is_known in ((TILE, False), (LAYOUT, True)):
        programs = {LAYOUT: (), TILE: (), where: (same,)}
        other = dataclasses.replace(bundle.record, programs=programs)
        again = Bundle(bundle.folder, other, bundle.source)
        assert again.rank(graph).known is is_known


def test_few_programs_are_abstained_from_in_words(bundle_folder: Path, data: Path) -> None:
    bundle, graph = load_bundle(bundle_folder), read_graph(data / FILES[TILE])
    ranking = bundle.rank(graph)
    assert ranking.abstained and ranking.measure is None
    assert "programs predicted" in ranking.sentence()
    sure = bundle.rank(graph, confidence=0.8)
    assert not sure.abstained
    assert 1 <= (sure.measure or 0) <= graph.num_configs
    assert "6 programs" in sure.reason


def test_a_collection_without_a_model_is_refused(
    bundle_folder: Path, data: Path, tmp_path: Path
) -> None:
    file = shutil.copy(data / FILES[LAYOUT], tmp_path / "program.npz")
    graph = read_graph(Path(file), "layout:nlp:random")
    with pytest.raises(InputError, match="for layout"):
        load_bundle(bundle_folder).rank(graph)


def test_an_unfinished_run_and_one_without_a_member(run: Run, tmp_path: Path) -> None:
    """As one that was killed, or copied in part, does."""
    copy = Run(shutil.copytree(run.folder, tmp_path / "run"))
    member = copy.folder / "lambdarank"
    for lost, words in (
        (copy.jobs("lambdarank", TILE)[1], "lambdarank.*1"),
        (member / "jobs", "lambdarank lacks"),
        (member, "no predictions"),
    ):
        shutil.rmtree(lost)
        with pytest.raises(InputError, match=words):
            pack(copy, RECIPE, tmp_path / "bundle")
    assert not (tmp_path / "bundle").exists()


def test_other_files_are_not_overwritten(run: Run, tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("mine")
    with pytest.raises(InputError, match="found other"):
        pack(run, RECIPE, tmp_path)
    assert (tmp_path / "thesis.txt").is_file()
