"""Runs on a cluster are the runs of one machine: the same bytes, wherever and however often.

Of two machines that write one folder of a bucket, neither writes over the other without a word.
"""

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.parts import Fit, compute, prepare
from solution.data.folders import SAMPLE
from solution.experiments.base import find_experiment
from solution.store.store import Store
from solution.system.buckets import Mirror, on_this_machine
from solution.system.errors import InputError
from solution.training.executors.base import Executor
from solution.training.executors.cluster import RayExecutor
from solution.training.executors.local import LocalExecutor
from solution.training.plan import make_plan
from solution.tuning.search import Search
from tests.cluster.conftest import open_cluster
from tests.conftest import REPOSITORY, FastSlow, assert_refused, assert_said
from tests.made.guarded import largest_file
from tests.made.timed import DENSE
from tests.processes import TRAINING, find_growing

LONGEST = 600.0  # seconds: a machine that others use as well may take long for a Ray
EXPERIMENTS = REPOSITORY / "tests" / "made" / "experiments"
TILES = "from solution.domain.collection import TILE"


def fastslow_says(*words: str | Path) -> str:
    """Run `fastslow` to its end; what it said."""
    done = TRAINING.run(*words, timeout=LONGEST)
    return assert_said(done) + " ".join(done.stderr.split())


def words_of_training(experiment: Path, store: Store, run: Path) -> list[str | Path]:
    """Of a file, on two folds."""
    return ["train", experiment, "--data", store.folder, "--run", run, "--folds", "2"]


def away(cluster: Any) -> list[str]:
    return ["--executor", "ray", "--address", cluster.address]


def read_predictions(run: Path) -> dict[str, bytes]:
    """All that a run predicts, by the file."""
    found = {str(p.relative_to(run)): p.read_bytes() for p in run.rglob("*.parquet")}
    assert len(found) >= 8
    return found


def copy_kernels(folder: Path) -> Path:
    """Data of every fifth kernel of the sample, for what is no matter of their number."""
    for path in sorted((SAMPLE / "npz" / "tile").rglob("*.npz"))[::5]:
        copy = folder / path.relative_to(SAMPLE)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(path.read_bytes())
    return folder


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An experiment of the user's and a file that it imports, in a folder only the driver has."""
    folder = tmp_path_factory.mktemp("mine")
    source = (EXPERIMENTS / "quick_tile_gnn.py").read_text(encoding="utf-8")
    (folder / "what_is_ranked.py").write_text(f"{TILES}\n", encoding="utf-8")
    path = folder / "quick_tile_gnn.py"
    path.write_text(source.replace(TILES, "from what_is_ranked import TILE"), encoding="utf-8")
    assert TILES in source
    return path


@pytest.fixture(scope="module")
def alone(
    own: Path, sample_store: Store, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, bytes]:
    """What one machine predicts."""
    run = tmp_path_factory.mktemp("alone")
    fastslow_says(*words_of_training(own, sample_store, run), "--workers", "1")
    return read_predictions(run)


def test_a_run_in_a_bucket_is_fetched_once_a_node_and_sent_back(
    bucket: list[str], own: Path, alone: dict[str, bytes], sample_store: Store, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """No folder is shared: graphs come from the bucket, models and checkpoints go there."""
    import s3fs

    files = s3fs.S3FileSystem()
    files.put(str(sample_store.folder), "bucket/store", recursive=True)
    words = ["run", "s3://bucket/store", "--run", "s3://bucket/run", "--folds", "2"]
    with open_cluster(0) as cluster:
        for name in ("node-0", "node-1", "driver"):
            monkeypatch.setenv("FASTSLOW_MIRRORS", str(tmp_path / name))
            if name != "driver":
                cluster.add_node(num_cpus=1, object_store_memory=100 << 20)
        fastslow_says(*words, "--experiment", own, *away(cluster))
    fetched = [line for line in bucket if "GET /bucket/store/graphs/" in line]
    # the driver's machine, and each node's, once
    assert 0 < len(fetched) <= 3 * len(list(sample_store.paths()))
    found = tmp_path / "back"
    files.get("bucket/run", str(found), recursive=True)
    kept = {k: v for k, v in read_predictions(found).items() if k.startswith("quick_tile_gnn")}
    assert kept == {k: v for k, v in alone.items() if k.startswith("quick_tile_gnn")}
    assert (found / "submission.csv").is_file()
    assert not [name for name in files.find("bucket/run") if ".checkpoints" in name]


def test_a_fit_whose_node_died_ends_alike_elsewhere(sample_store: Store, tmp_path: Path) -> None:
    """Its checkpoints lie where all nodes see them."""
    alone, words = (
        words_of_training(EXPERIMENTS / "quick_checkpoints.py", sample_store, tmp_path / name)
        for name in ("alone", "run")
    )
    fastslow_says(*alone, "--workers", "1")
    with open_cluster(1) as cluster:
        first = cluster.list_all_nodes()[-1]
        process = TRAINING.start(*words, *away(cluster))
        wait_for(lambda: find_growing(tmp_path / "run", "checkpoint.safetensors"), process)
        cluster.remove_node(first, allow_graceful=False)
        cluster.add_node(num_cpus=1, object_store_memory=100 << 20)
        out, error = process.communicate(timeout=LONGEST)
        assert process.returncode == 0, out + error
    assert read_predictions(tmp_path / "run") == read_predictions(tmp_path / "alone")


def test_a_lost_driver_loses_nothing_that_was_kept(
    cluster: Any, own: Path, alone: dict[str, bytes], sample_store: Store, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    words = [*words_of_training(own, sample_store, run), *away(cluster)]
    process = TRAINING.start(*words)
    wait_for(lambda: list_models(run), process)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate(timeout=LONGEST)
    before = {path: path.stat().st_mtime_ns for path in list_models(run)}
    assert "2 nodes, 2 cores, 0 GPUs" in fastslow_says(*words)
    assert read_predictions(run) == alone
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert not list(run.rglob("*.checkpoints")) and not list(run.glob(".partial-*"))


def test_a_lost_head_loses_nothing_that_was_kept(
    cluster: Any, own: Path, alone: dict[str, bytes], sample_store: Store, tmp_path: Path
) -> None:
    """The command ends with a message; with another cluster it goes on."""
    run = tmp_path / "run"
    words = words_of_training(own, sample_store, run)
    with open_cluster(1, head_seconds=3) as lost:
        process = TRAINING.start(*words, *away(lost))
        wait_for(lambda: list_models(run), process)
        lost.head_node.kill_gcs_server()
        _, error = process.communicate(timeout=LONGEST)
        assert process.returncode != 0
    assert "Traceback" not in error, error
    kept = {path: path.stat().st_mtime_ns for path in list_models(run)}
    fastslow_says(*words, *away(cluster))
    assert read_predictions(run) == alone
    assert {path: path.stat().st_mtime_ns for path in kept} == kept


def test_programs_of_one_name_are_refused(fastslow: FastSlow, tmp_path: Path) -> None:
    """Before a cluster is asked for: one would be written over the other."""
    files = [tmp_path / "one" / "my mlp.py", tmp_path / "other" / "my_mlp.py"]
    for path in files:
        path.parent.mkdir()
        path.write_text("program, arguments = abs, (1.0,)\n")
    done = fastslow("collect", "layout", *files, "--out", tmp_path / "out", "--executor", "ray")
    assert "found my_mlp" in assert_refused(done)


def list_models(run: Path) -> list[Path]:
    """The records of those that are whole."""
    return [path for path in find_growing(run, "job.json") if ".partial" not in str(path)]


def wait_for(condition: Any, process: Any = None) -> None:
    """As long as a loaded machine may need; a command that ended meanwhile is what went wrong."""
    deadline = time.monotonic() + LONGEST
    while not condition():
        if process is not None and process.poll() is not None and not condition():
            raise AssertionError("the command ended: " + "".join(process.communicate(timeout=60)))
        assert time.monotonic() < deadline, "nothing came for ten minutes"
        time.sleep(0.02)


def test_a_search_finds_the_same_wherever_its_trials_are(
    cluster: Any, sample_store: Store, tmp_path: Path
) -> None:
    plan = make_plan(sample_store, "architecture", 2, limit=True)
    experiment = find_experiment(str(EXPERIMENTS / "quick_tile_gnn.py"))

    def search(executor: Executor, name: str) -> list[tuple[Any, ...]]:
        found = Search(experiment, plan, tmp_path / name, executor=executor, at_once=2).run(4)
        return [(trial.params, trial.value, trial.state) for trial in found.trials]

    assert search(RayExecutor(cluster.address), "there") == search(LocalExecutor(1), "here")


@pytest.mark.parametrize("target", ["cpu", "tpu:v3"])
def test_programs_are_collected_on_nodes(cluster: Any, tmp_path: Path, target: str) -> None:
    pytest.importorskip("jax" if target == "cpu" else "libtpu")
    program = tmp_path / "mlp.py"
    program.write_text(DENSE, encoding="utf-8")
    words = ["collect", "layout", program, "--out", tmp_path / "out", "--target", target]
    words += ["--configs", "8", "--minutes", "10", "--keep-flat", *away(cluster)]
    for _ in range(2 if target == "cpu" else 1):  # what is finished is not collected again
        fastslow_says(*words)
    (npz,) = (tmp_path / "out" / "npz").rglob("*.npz")
    assert npz.stem == "mlp"
    source = str(np.load(npz)["label_source"]) if target != "cpu" else ""
    assert source.startswith("estimated: tpu:v3" if target != "cpu" else "")
    assert list((tmp_path / "out" / "log").rglob("*.parquet"))


def test_times_on_a_cluster_are_no_times(tmp_path: Path, fastslow: FastSlow) -> None:
    """Only a TPU's estimates are the same on every machine."""
    (tmp_path / "mlp.py").write_text(DENSE, encoding="utf-8")
    done = fastslow("choose", tmp_path / "mlp.py", "--executor", "ray", "--out", tmp_path / "out")
    assert "--executor ray" in assert_refused(done) and "--target tpu" in assert_refused(done)
    assert not (tmp_path / "out").exists()


def test_published_systems_are_fitted_on_nodes(cluster: Any, tmp_path: Path) -> None:
    """As `make papers` does with --executor ray: the same scores."""
    settings = find_experiment("linear_ridge_001").ranker
    fits = [Fit("ridge", settings, "tile:xla", fold, 0, 0.0) for fold in range(2)]
    stores = prepare(copy_kernels(tmp_path / "data"), tmp_path / "stores")
    found = [
        compute(fits, stores, tmp_path / name, executor, "Fits")
        for name, executor in (
            ("here", LocalExecutor(1)), ("there", RayExecutor(cluster.address)),
        )
    ]  # fmt: skip
    scores = [rows.select("fold", "graph", "score", "OPA") for rows in found]
    assert len(scores[0]) > 20 and scores[0].equals(scores[1])


@pytest.fixture
def url(bucket: list[str], request: pytest.FixtureRequest) -> str:
    return f"s3://bucket/{request.node.name[:40]}"


def make_mirror(url: str, machine: Path) -> Mirror:
    found = Mirror(url, machine / "mirror")
    found.pull()
    return found


def send(mirror: Mirror, **files: str) -> None:
    """Write the files, and send what is new."""
    mirror.folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (mirror.folder / f"{name}.json").write_text(text)
    mirror.push()


def look() -> Any:
    """What stands in the bucket now."""
    import s3fs

    s3fs.S3FileSystem.clear_instance_cache()
    return s3fs.S3FileSystem()


def read(url: str, name: str) -> str:
    content: bytes = look().cat(f"{url}/{name}.json")
    return content.decode()


def test_the_second_is_refused_and_keeps_what_it_made(url: str, tmp_path: Path) -> None:
    one, other = (make_mirror(url, tmp_path / name) for name in ("one", "other"))
    send(one, run="of one", a="a")
    with pytest.raises(InputError, match="written run"):
        send(other, run="of the other", b="b")
    assert read(url, "run") == "of one"
    assert (other.folder / "b.json").read_text() == "b"
    other.pull()  # as the same command does that is given again
    assert (other.folder / "run.json").read_text() == "of one"
    other.push()
    assert read(url, "b") == "b"


def test_what_was_changed_on_both_machines_is_refused(url: str, tmp_path: Path) -> None:
    one = make_mirror(url, tmp_path / "one")
    send(one, scores="first")
    other = make_mirror(url, tmp_path / "other")
    send(one, scores="of one")
    with pytest.raises(InputError, match="written scores"):
        send(other, scores="of the other", new="new")
    assert read(url, "scores") == "of one"
    other.push(over=True)
    assert read(url, "scores") == "of the other"


def test_a_record_that_another_machine_wrote_stops_the_rest(url: str, tmp_path: Path) -> None:
    """Even where this one has not changed it: what would be sent belongs to it no more."""
    one = make_mirror(url, tmp_path / "one")
    send(one, run="first")
    send(make_mirror(url, tmp_path / "other"), run="of the other")
    with pytest.raises(InputError, match="written run"):
        send(one, model="trained")


def test_what_both_made_alike_is_no_conflict(url: str, tmp_path: Path) -> None:
    """As a store that two machines prepare from the same data."""
    one, other = (make_mirror(url, tmp_path / name) for name in ("one", "other"))
    for mirror in (one, other):
        send(mirror, store="the same", graph="the same as well")
    other.push()
    assert not list(tmp_path.rglob(".partial-*"))


def test_nobody_else_there_takes_one_list(url: str, bucket: list[str], tmp_path: Path) -> None:
    mirror = make_mirror(url, tmp_path / "one")
    send(mirror, **{f"file{number}": "text" for number in range(20)})
    before = len(bucket)
    mirror.push()  # nothing has changed
    assert len(bucket) == before
    send(mirror, **{f"file{number}": "other text" for number in range(20)})
    lists = [line for line in bucket[before:] if "list-type=2" in line and "max-keys" not in line]
    assert len([line for line in lists if "file" not in line]) <= 2, lists


def test_of_two_runs_at_once_none_is_lost(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever is first: what a command that succeeded has made is what the record says."""
    words = ["run", copy_kernels(tmp_path / "data"), "--limit", "--workers", "1"]
    words += ["--store", f"{url}/s", "--run", f"{url}/r"]
    names, programs = ("linear_ridge_001", "linear_lasso_001"), []
    for name in names:
        monkeypatch.setenv("FASTSLOW_MIRRORS", str(tmp_path / name))
        programs.append(TRAINING.start(*words, "--experiment", name, cwd=tmp_path))
        # In the very same moment, both may look before either has written.
        while not look().exists(f"{url}/r/run.json") and programs[-1].poll() is None:
            time.sleep(0.02)
    printed = [" ".join(program.communicate(300)[1].split()) for program in programs]
    codes = [program.returncode for program in programs]
    for code, error in zip(codes, printed, strict=True):
        assert "Traceback" not in error
        assert code == 0 or "another machine has written" in error, error
    made = json.loads(read(f"{url}/r", "run"))["settings"]["experiments"]
    assert all(name in made for name, code in zip(names, codes, strict=True) if code == 0)
    # Where each of them came in the way of the other, both are refused; then the same command goes
    # on with what is there.
    for name in [name for name, code in zip(names, codes, strict=True) if code != 0]:
        monkeypatch.setenv("FASTSLOW_MIRRORS", str(tmp_path / name))
        assert_said(TRAINING.run(*words, "--experiment", name, cwd=tmp_path))
    assert set(names) <= set(json.loads(read(f"{url}/r", "run"))["settings"]["experiments"])


def test_an_error_about_a_run_names_its_address(url: str, tmp_path: Path) -> None:
    refused = pytest.raises(InputError, match=f"^{url}/run.json: is damaged")
    with refused, on_this_machine(url) as folder:
        raise InputError(f"{folder}/run.json: is damaged")


def test_a_file_that_does_not_fit_is_named(bucket: list[str], tmp_path: Path) -> None:
    import s3fs

    s3fs.S3FileSystem().pipe("bucket/full/large.npz", b"x" * 100_000)
    mirror = Mirror("s3://bucket/full", tmp_path / "mirror")
    words = rf"{mirror.folder}/large\.npz: cannot be kept \(File too large\), in the mirror of s3:"
    with largest_file(20 << 10), pytest.raises(InputError, match=words):
        mirror.pull()
    mirror.pull()
    assert (mirror.folder / "large.npz").stat().st_size == 100_000


@pytest.mark.parametrize("place", ["file", "/proc/x", "file/deeper"])
@pytest.mark.parametrize("alone", [True, False])
def test_a_place_where_no_mirror_can_be_names_the_variable(
    place: str, alone: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("mine")
    monkeypatch.setenv("FASTSLOW_MIRRORS", str(tmp_path / place))
    words = f"The mirrors of buckets are kept in {tmp_path / place}: set FASTSLOW_MIRRORS"
    with pytest.raises(InputError, match=words), on_this_machine("s3://bucket/x", alone=alone):
        pass


def test_a_search_for_a_tpu_finds_the_same_on_nodes(cluster: Any, tmp_path: Path) -> None:
    pytest.importorskip("libtpu")
    program = tmp_path / "mlp.py"
    program.write_text(DENSE, encoding="utf-8")
    found = []
    words = ["choose", program, "--target", "tpu:v3", "--over", "layouts", "--compile", "5"]
    for name, where in (("here", []), ("there", away(cluster))):
        fastslow_says(*words, "--out", tmp_path / name, *where)
        trials = json.loads((tmp_path / name / "search.json").read_text())["trials"]
        found.append([(one["name"], one["nanoseconds"], one["memory"]) for one in trials])
    assert len(found[0]) == 6  # with the default
    assert found[0] == found[1]
