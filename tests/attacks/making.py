"""Sound files of every kind that the project writes, made by the project itself, and small."""

import dataclasses
import zipfile
from functools import cache
from pathlib import Path

import numpy as np
import optuna
import polars as pl
import torch

from ensembles.recipe import make_recipe
from solution.choosing.journal import RECORD as SEARCH
from solution.choosing.journal import Journal as SearchJournal
from solution.choosing.journal import Trial
from solution.collecting.journal import SOUND, Journal
from solution.collecting.timing import SCHEMA
from solution.data.folders import find_files
from solution.data.npz import OPTION_NAMES, OPTIONS, write_npz
from solution.domain import vocabulary
from solution.domain.collection import NAMES
from solution.experiments.base import Experiment
from solution.features.preparation import Preparation
from solution.models.base import RankerSettings
from solution.models.catalogue import save_model
from solution.models.layout.layout_gnn import LayoutGnnSettings
from solution.models.linear import RidgeSettings
from solution.models.nets.checkpoint import NAME as CHECKPOINT
from solution.models.nets.checkpoint import save_checkpoint
from solution.models.nets.training_settings import TrainingSettings
from solution.models.trees.lightgbm_ranker import LightGBMSettings
from solution.placement.policy.network import Policy, load_policy, save_policy
from solution.placement.policy.policy_settings import PolicySettings
from solution.runs.folder import Run, remember_origin
from solution.store.graph_file import write_prepared
from solution.store.preparing import prepare_store
from solution.store.store import Store
from solution.system.buckets import Mirror
from solution.training.executors.local import LocalExecutor
from solution.training.jobs import find_backlog
from solution.training.opening import open_experiments
from solution.training.out_of_fold import run_experiments
from solution.training.plan import make_plan
from solution.tuning.search import Search
from submissions.build import build_submission
from submissions.ledger import Ledger, write_ledger
from tests.made.graphs import (
    make_layout_graph,
    make_tile_graph,
    make_wide_graph,
    to_arrays,
    write_graph,
)

LAYOUT, TILE = make_layout_graph(), make_tile_graph()
NET = LayoutGnnSettings(
    width=8, rounds=(8,), training=TrainingSettings(epochs=1, configs_per_graph=4)
)
TREES = LightGBMSettings(rounds=4, min_data_in_leaf=2)
RIDGE = Experiment("ridge", NAMES, RidgeSettings(max_configs=5, grid=(1.0,)))
RECIPE = 'method = "mean_rank"\nfallback = "b"\n\n[members]\na = 1.5\nb = 2.0\n'
SAMPLE_ROWS = "ID,TopConfigs\nlayout:xla:random:asked,0;1;2\ntile:xla:asked,0;1;2\n"
IDENTITY = {"collection": "layout:xla:random", "program": "mine", "seed": 0}


def write_text(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def make_options(folder: Path) -> Path:
    """A graph with compile options, which the competition's have not."""
    count = len(vocabulary.OPTION_NAMES)
    options = np.zeros((LAYOUT.num_configs, count), np.int8)
    more = {OPTIONS: options, OPTION_NAMES: np.array(vocabulary.OPTION_NAMES)}
    return write_npz(to_arrays(LAYOUT) | more, folder / "options" / "program.npz")


@cache
def make_data(folder: Path) -> Path:
    """Eight labelled graphs and two to be ranked, of two collections, and a sample submission."""
    for make in (make_layout_graph, make_tile_graph):
        for seed in range(4):
            graph = make(seed, configs=8, name=f"known_{seed}")
            write_graph(graph, folder / "data", "train" if seed else "valid")
        write_graph(make(9, configs=8, name="asked", labelled=False), folder / "data", "test")
    write_text(folder / "data" / "sample_submission.csv", SAMPLE_ROWS)
    return folder / "data"


@cache
def make_store(folder: Path) -> Store:
    data = make_data(folder)
    sample = data / "sample_submission.csv"
    return prepare_store(find_files(data), folder / "store", Preparation(), sample, workers=1)


def make_mapped(folder: Path) -> Path:
    """A prepared graph whose codes are mapped, not read."""
    graph = make_wide_graph(configs=18_000)
    path = folder / "mapped" / "graphs" / graph.collection.folder / "train" / "wide.safetensors"
    write_prepared(graph, {"split": "train"}, path)
    return path


@cache
def make_run(folder: Path) -> Run:
    """A finished run of one experiment."""
    store = make_store(folder)
    run = train_and_submit([RIDGE], store, folder / "run", members={"ridge": 1.0})
    remember_origin(run, folder, store.folder)
    return run


def train_and_submit(
    experiments: list[Experiment],
    store: Store,
    folder: Path,
    members: dict[str, float],
    **more: str,
) -> Run:
    """A finished run of two folds; `more` fields of the recipe."""
    with open_experiments(experiments, store, folder, scheme="graph", folds=2) as (plan, run):
        run_experiments(find_backlog(experiments, plan, run), plan, run, LocalExecutor(1))
        fields = {"name": "mine", "members": members, "allow_missing": ["members"], **more}
        build_submission(run, make_recipe("mine", fields))
    return run


def make_job(folder: Path) -> Path:
    return make_run(folder).jobs("ridge")[0]


@cache
def make_model(folder: Path, settings: RankerSettings) -> Path:
    """The folder of a model of layouts."""
    graphs = [make_layout_graph(seed, name=f"program_{seed}") for seed in range(3)]
    place = folder / f"model-{type(settings).__name__}"
    place.mkdir(parents=True)
    save_model(settings.build(0).fit(graphs, graphs[:1]), settings, 0, place)
    return place


@cache
def make_search(folder: Path) -> Search:
    """A search of two trials."""
    experiment = Experiment("trees", ("tile:xla",), TREES)
    plan = make_plan(make_store(folder), "graph", 2)
    return Search(experiment, plan, folder / "search", "random")


@cache
def make_study(folder: Path) -> Path:
    make_search(folder).run(2)
    return folder / "search" / "study.db"


def read_study(path: Path) -> list[optuna.trial.FrozenTrial]:
    """As the same command does once more."""
    return make_search(path.parents[1]).run(2).trials


@cache
def make_journal(folder: Path) -> Path:
    """The folder of a finished collection."""
    place = folder / "log"
    journal = Journal(place, IDENTITY)
    for number in range(6):
        journal.add_candidate(f"c{number}", np.arange(4) + number, SOUND, "", 0.5)
    rows = [(f"c{n}", turn % 2, turn, 100 + n, 110 + n) for turn in range(4) for n in range(6)]
    journal.add_repeats([pl.DataFrame(rows, SCHEMA, orient="row")])
    journal.finish({"clock": "cpu", "configs": 6}, is_final=True)
    return place


def make_submission(folder: Path) -> Path:
    rows = [f"layout:xla:random:g{number},2;0;1;3" for number in range(8)]
    rows += [f"tile:xla:k{number},4;0;1;2;3" for number in range(8)]
    text = "\n".join(["ID,TopConfigs", *rows]) + "\n"
    return write_text(folder / "csv" / "submission.csv", text)


def make_checkpoint(folder: Path) -> Path:
    tensors = {"weights": torch.arange(60.0), "random": torch.arange(40, dtype=torch.uint8)}
    (folder / "checkpoint").mkdir(parents=True)
    save_checkpoint(folder / "checkpoint", tensors, {"fit": "mine", "epoch": 3})
    return folder / "checkpoint" / CHECKPOINT


def make_ledger(folder: Path) -> Path:
    path, ledger = write_text(folder / "ledger" / "ledger.csv", ""), Ledger()
    for number in range(5):
        values = {"when": f"2026-01-0{number + 1}", "recipe": "mine", "state": "scored"}
        ledger.put(f"key-{number}", **values, public=f"0.{number}", notes='with "quotes", commas')
    write_ledger(ledger, path)
    return path


def make_archive(folder: Path) -> Path:
    """What Kaggle sends."""
    path = write_text(folder / "archive" / "mine.zip", "")
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in ("npz/a.npz", "npz/b.npz", "sample_submission.csv"):
            archive.writestr(zipfile.ZipInfo(name, (2026, 1, 1, 0, 0, 0)), name * 50)
    return path


def describe(value: object) -> bytes:
    """Every value in it, so that equal ones have equal bytes."""
    if isinstance(value, np.ndarray):
        return f"{value.dtype}{value.shape}".encode() + value.tobytes()
    if isinstance(value, pl.DataFrame):
        return repr((value.schema, value.rows())).encode()
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = [getattr(value, field.name) for field in dataclasses.fields(value)]
        return b"\0".join(map(describe, fields))
    return repr(value).encode()


def make_choice(folder: Path) -> Path:
    journal = SearchJournal.open(folder / "chosen", IDENTITY)
    journal.trials["a"] = Trial("a", [1, 0, 2], 1200.5, "", 0.5)
    journal.trials["b"] = Trial("b", [0, 0, 1], None, "died: it took too long", 60.0)
    journal.write()
    return folder / "chosen" / SEARCH


def read_choice(path: Path) -> bytes:
    """A folder without the record is one where nothing was searched."""
    journal = SearchJournal.open(path.parent, IDENTITY)
    return repr((journal.trials, journal.result)).encode() if journal.trials else b"begun again"


def make_mirror(folder: Path) -> Path:
    """What is kept of the copy of a bucket's folder."""
    write_text(folder / "bucket" / "run.json", "a record")
    mirror = Mirror(f"file://{folder / 'bucket'}", folder / "mirrors" / "run")
    mirror.pull()
    return mirror.folder.with_name("run.mirror.json")


def read_mirror(path: Path) -> bytes:
    """As a run that goes on; without its record all is fetched again."""
    mirror = Mirror(f"file://{path.parents[1] / 'bucket'}", path.with_name("run"))
    mirror.pull()
    mirror.push()
    return (mirror.folder / "run.json").read_bytes() + bytes(Mirror.find(mirror.folder) == mirror)


def make_policy(folder: Path) -> Path:
    torch.manual_seed(0)
    path = folder / "policies" / "mine.safetensors"
    save_policy(Policy(PolicySettings(width=8, heads=2, inner=8, rounds=1)), path)
    return path


def read_policy(path: Path) -> bytes:
    policy = load_policy(path)
    weights = sorted(policy.state_dict().items())
    return repr(policy.settings).encode() + b"".join(w.numpy().tobytes() for _, w in weights)
