"""Graphs that are valid and odd, and names that are: through check, prepare, a run, its CSV."""

import dataclasses
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from ensembles.recipe import make_recipe
from solution.data.folders import find_files
from solution.domain.codebook import Codebook
from solution.domain.codebook_encoder import encode
from solution.domain.graph import Graph
from solution.domain.vocabulary import OPCODE_IDS
from solution.experiments.base import Experiment, find_experiment
from solution.features.preparation import Preparation
from solution.store.preparing import prepare_store
from solution.store.store import Store
from solution.training.executors.local import LocalExecutor
from solution.training.opening import open_experiments
from solution.training.out_of_fold import run_experiments
from submissions.build import build_submission
from submissions.writer import check_submission, expect
from tests.attacks.making import NET, RIDGE
from tests.attacks.test_npz_rows import NAMES, arrays_of, write
from tests.made.graphs import make_layout_graph, make_tile_graph, write_graph
from tests.processes import FASTSLOW

pytestmark = pytest.mark.slow
NOTHING = find_experiment("nothing_001")
FOLDER = "npz/layout/xla/random/train"


def with_nodes(**changes: np.ndarray) -> Graph:
    return dataclasses.replace(make_layout_graph(), **changes)


def make_one_node(kind: str) -> Graph:
    graph = make_layout_graph() if kind == "layout" else make_tile_graph()
    changes = {"node_features": graph.node_features[:1], "node_opcodes": graph.node_opcodes[:1]}
    if isinstance(graph.configs, Codebook):
        changes |= {"configurable": np.array([0]), "configs": encode(graph.layouts.expand()[:, 2:])}
    return dataclasses.replace(graph, edges=np.empty((0, 2), np.int64), **changes)


def make_nothing_to_set() -> Graph:
    graph = make_layout_graph()
    configs = encode(graph.layouts.expand()[:, :0])
    return dataclasses.replace(graph, configurable=graph.configurable[:0], configs=configs)


ODD: dict[str, Callable[[], Graph]] = {
    "one node": lambda: make_one_node("layout"),
    "one node of tiles": lambda: make_one_node("tile"),
    "no edges": lambda: with_nodes(edges=np.empty((0, 2), np.int64)),
    "self loops": lambda: with_nodes(edges=np.repeat(np.arange(8), 2).reshape(8, 2)),
    "one configuration": lambda: make_layout_graph(configs=1),
    "one configuration of tiles": lambda: make_tile_graph(configs=1),
    "equal runtimes": lambda: with_nodes(runtimes=np.ones(12)),
    "unsorted ids": lambda: with_nodes(configurable=np.array([7, 2, 5])),
    "no configurable node": make_nothing_to_set,
}


@pytest.mark.parametrize("name", ODD)
@pytest.mark.parametrize("ranker", [RIDGE, NET], ids=["ridge", "net"])
def test_an_odd_graph_is_learned_from_and_ranked(name: str, ranker: object, tmp_path: Path) -> None:
    odd = ODD[name]()
    experiment = RIDGE if ranker is RIDGE else Experiment("net", ("layout:xla:random",), NET)
    for seed in range(4):
        write_graph(make_layout_graph(seed, name=f"program_{seed}"), tmp_path / "data")
        write_graph(make_tile_graph(seed, name=f"kernel_{seed}"), tmp_path / "data")
    for split in ("train", "test"):
        labels = odd.runtimes if split == "train" else None
        graph = dataclasses.replace(odd, name=f"odd_{split}", runtimes=labels)
        write_graph(graph, tmp_path / "data", split)
    assert run_and_verify(tmp_path, [experiment, NOTHING]) == 1


def run_and_verify(folder: Path, experiments: list[Experiment]) -> int:
    """The rows of the submission; it has passed the checker."""
    files = find_files(folder / "data")
    store = prepare_store(files, folder / "store", Preparation(), workers=1)
    options = {"scheme": "graph", "folds": 2}
    with open_experiments(experiments, store, folder / "run", **options) as (plan, run):  # type: ignore[arg-type]
        run_experiments(experiments, plan, run, LocalExecutor(1))
        members = {experiments[0].name: 1.0}
        fields = {"name": "mine", "members": members, "fallback": NOTHING.name}
        fields["allow_missing"] = ["members"]
        build_submission(run, make_recipe("mine", fields))
    return check_submission(run.submission, expect(store.graphs, None))


LONG = "x" * 200  # with a suffix and a folder's own, what a file system takes
VISIBLE = [name for name in NAMES if name[0] != "." and len(name) < len(LONG)]
PAIRS = [("e\u0301", "\u00e9"), ("A", "a"), (" ", "  "), (LONG, LONG + "y")]


@pytest.mark.parametrize("names", [(name,) for name in VISIBLE] + PAIRS)
def test_a_strange_name_goes_all_the_way(names: tuple[str, ...], tmp_path: Path) -> None:
    for seed in range(3):
        write_graph(make_tile_graph(seed, name=f"kernel_{seed}"), tmp_path / "data")
    for name in names:
        graph = make_tile_graph(name=name, labelled=False)
        write_graph(graph, tmp_path / "data", "test")
    assert run_and_verify(tmp_path, [NOTHING]) == len(names)
    assert Store.open(tmp_path / "store").find_defects() == []


def with_first(name: str, value: float) -> dict[str, np.ndarray]:
    array = arrays_of("layout")[name].astype(np.float64)
    array.reshape(-1)[0] = value
    return {name: array}


def with_convolution(number: float) -> dict[str, np.ndarray]:
    """A dimension number of a convolution."""
    arrays = arrays_of("layout")
    opcodes, features = arrays["node_opcode"].copy(), arrays["node_feat"].copy()
    opcodes[2], features[2, 93:107] = OPCODE_IDS["convolution"], number
    return {"node_opcode": opcodes, "node_feat": features}


REFUSED: dict[str, dict[str, np.ndarray]] = {
    "a runtime of 5e-324": with_first("config_runtime", 5e-324),
    "a node feature of 3e38": with_first("node_feat", 3e38),
    "a dimension number 6": with_convolution(6),
    "a dimension number -2": with_convolution(-2),
}
COMMANDS = {
    "check": ("check", "data"),
    "prepare": ("prepare", "data"),
    "run": ("run", "data"),
    "inspect": ("inspect", f"data/{FOLDER}/mine.npz"),
    "features": ("features", "layout:xla:random", "--data", "data", "--out", "t.parquet"),
}


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.parametrize("command", COMMANDS)
def test_values_that_no_program_has_are_refused(name: str, command: str, tmp_path: Path) -> None:
    path = tmp_path / "data" / FOLDER / "mine.npz"
    path.parent.mkdir(parents=True)
    write(path, {**arrays_of("layout"), **REFUSED[name]})
    done = FASTSLOW.run(*COMMANDS[command], cwd=tmp_path)
    assert done.returncode == 2, done.stderr
    assert "mine.npz: " in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr
    assert "Warning" not in done.stderr


def test_a_graph_with_nothing_to_set_is_inspected(tmp_path: Path) -> None:
    path = write_graph(make_nothing_to_set(), tmp_path / "data")
    done = FASTSLOW.run("inspect", path, cwd=tmp_path)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", ["\udcff", "a\udc80b", "\x1b[31mx", "\x07", "\x1b]0;title\x07"])
@pytest.mark.parametrize("command", ["check", "prepare"])
def test_a_name_is_shown_as_an_escape(name: str, command: str, tmp_path: Path) -> None:
    path = tmp_path / "data" / FOLDER / f"{name}.npz"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"x")
    done = FASTSLOW.run(command, "data", cwd=tmp_path)
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr
    assert not {"\x1b", "\x07"} & set(done.stderr + done.stdout)
