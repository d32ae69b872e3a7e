"""Single attacks on what people write as text: recipes and submissions, read or refused by name."""

import ast
import dataclasses
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from solution.data.folders import find_files
from solution.domain.codebook import Codebook, encode
from solution.domain.graph import Graph
from solution.experiments.base import Experiment, find_experiment
from solution.features.preparation import Preparation
from solution.store.preparing import prepare_store
from solution.store.store import Store
from solution.system.errors import InputError
from submissions.page import build
from submissions.writer import Expected, check_submission, expect
from tests.attacks.making import NET, RIDGE, train_and_submit
from tests.conftest import REPOSITORY
from tests.made.graphs import make_layout_graph, make_tile_graph, write_graph
from tests.made.guarded import Guard

pytestmark = pytest.mark.slow


LAYOUT, TILE = "layout:xla:random:g", "tile:xla:k"
ASKED = Expected({LAYOUT: 4, TILE: 20}, "the test split")
ROWS = (f"{LAYOUT},2;0;1;3", f"{TILE},4;0;1;2;19")


ENDLESS = {
    "a header line of 100 MB": ("", "x"),
    "a line of 100 MB of 9s": (f"ID,TopConfigs\n{ROWS[0]}\n{TILE},", "9"),
    "an ID of 100 MB": ("ID,TopConfigs\n", "y"),
    "100 MB in quotes": ('ID,TopConfigs\n"', "z"),
    "100 million blank lines": ("ID,TopConfigs\n", "\n"),
}


@pytest.mark.parametrize(("begin", "text"), ENDLESS.values(), ids=ENDLESS)
def test_a_line_without_end_is_refused(begin: str, text: str, tmp_path: Path, guard: Guard) -> None:
    path = tmp_path / "submission.csv"
    with path.open("w") as file:
        file.write(begin)
        file.writelines([text * (1 << 20)] * 100)
    with pytest.raises((InputError, MemoryError)) as caught:
        guard.call(check_submission, path, ASKED)
    path.unlink()
    assert len(str(caught.value)) < 1_500


PACKAGES = ("solution", "ensembles", "submissions")
UNPICKLERS = {"pickle", "cPickle", "dill", "cloudpickle", "marshal", "shelve", "yaml", "jsonpickle"}
# Ray pickles all that its processes exchange; the driver pickles the function that workers run.
BETWEEN_OUR_PROCESSES = REPOSITORY / "solution" / "training" / "executors" / "cluster.py"
CALLS = {
    "pickles": {"torch.load", "joblib.load", "pl.read_ipc", "pandas.read_pickle", "safe_load"},
    "code": {"eval", "exec", "compile", "__import__", "runpy.run_path"},
    "shells": {"os.system", "os.popen", "subprocess.getoutput"},
    "predictable files": {"tempfile.mktemp", "os.tmpnam"},
}


@cache
def walk() -> list[tuple[Path, ast.AST]]:
    """Every node of the syntax of the three packages."""
    paths = [path for package in PACKAGES for path in sorted((REPOSITORY / package).rglob("*.py"))]
    return [(path, node) for path in paths for node in ast.walk(ast.parse(path.read_text("utf-8")))]


def calls() -> list[tuple[Path, str, ast.Call]]:
    """Every call, by its dotted name."""
    return [(p, ast.unparse(n.func), n) for p, n in walk() if isinstance(n, ast.Call)]


@pytest.mark.parametrize("kind", CALLS)
def test_no_such_call_is_made(kind: str) -> None:
    assert not [f"{path}: {name}" for path, name, _ in calls() if name in CALLS[kind]]


def test_no_module_that_unpickles_is_imported() -> None:
    for path, node in walk():
        names = [name.name for name in node.names] if isinstance(node, ast.Import) else []
        names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        found = {name.partition(".")[0] for name in names} & UNPICKLERS
        assert not found or (path, found) == (BETWEEN_OUR_PROCESSES, {"pickle"}), path
    reads = [path for path, name, _ in calls() if name in ("pickle.load", "pickle.loads")]
    assert reads == [BETWEEN_OUR_PROCESSES]


def test_arrays_are_loaded_without_pickles_and_programs_without_a_shell() -> None:
    for path, name, call in calls():
        options = {option.arg: ast.unparse(option.value) for option in call.keywords}
        assert options.get("shell", "False") == "False", path
        is_load = name in ("np.load", "np.lib.format.read_array")
        assert options.get("allow_pickle", "True" if is_load else "False") == "False", path


def test_the_page_escapes_what_it_shows() -> None:
    source = Path(build.__file__)
    assert "autoescape=True" in source.read_text("utf-8")
    for path in (source.parent / "templates").iterdir():
        text = path.read_text("utf-8").replace(
            "figure.svg | safe", ""
        )  # matplotlib escapes its own
        assert not re.search(r"""[^"'\s]\s*\|\s*safe""", text), f"{path}: more than its own words"
        assert "autoescape false" not in text and "<script" not in text, path


NOTHING = find_experiment("nothing_001")


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
    recipe = {"members": {experiments[0].name: 1.0}, "fallback": NOTHING.name}
    run = train_and_submit(experiments, store, folder / "run", **recipe)
    return check_submission(run.submission, expect(store.graphs, None))


LONG = "x" * 200  # with a suffix and a folder's own, what a file system takes
NAMES = (
    "a b", "a\nb", "a\tb", "ä", "e\u0301", "\u202eabc", 'a"b', "a'b", "a,b", "a;b", "=cmd", "%s",
    "-rf", "[a]*?", "a:b", "\x1b[31mx", "\U0001f600", "a.b",
)  # fmt: skip
PAIRS = [("e\u0301", "\u00e9"), ("A", "a"), (" ", "  "), (LONG, LONG + "y")]


@pytest.mark.parametrize("names", [(name,) for name in NAMES] + PAIRS)
def test_a_strange_name_goes_all_the_way(names: tuple[str, ...], tmp_path: Path) -> None:
    for seed in range(3):
        write_graph(make_tile_graph(seed, name=f"kernel_{seed}"), tmp_path / "data")
    for name in names:
        graph = make_tile_graph(name=name, labelled=False)
        write_graph(graph, tmp_path / "data", "test")
    assert run_and_verify(tmp_path, [NOTHING]) == len(names)
    assert Store.open(tmp_path / "store").find_defects() == []
