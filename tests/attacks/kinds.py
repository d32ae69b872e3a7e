"""Every kind of file that the project writes or reads: how one is made, and what makes use of it.

A kind that is sealed is read as it was written, or refused. One that people write, or other
programs, can be another valid file after a change; then it is taken for that.
"""

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ensembles.recipe import find_recipe, recall
from solution.collecting.journal import Journal
from solution.data.npz import read_graph
from solution.domain import predictions
from solution.domain.collection import Collection, collection
from solution.models.catalogue import load_model
from solution.models.nets.checkpoint import load_checkpoint
from solution.programs.hlo.records import read_module_file
from solution.runs.folder import Run, recall_origin
from solution.runs.job import check_job
from solution.runs.record import check_split
from solution.serving.bundle import load_bundle
from solution.serving.packing import pack
from solution.serving.record import RECORD as BUNDLE
from solution.sessions import record as session
from solution.store.graph_file import read_prepared
from solution.store.store import Store, graph_path
from solution.system.files import write_sealed
from solution.system.parquet import read_by_graphs
from solution.system.sealing import find_seal
from solution.system.sealing import read_record as read_sealed_record
from submissions.download import RECEIPT, _read_receipt, unpack_download
from submissions.kernels import pushes
from submissions.ledger import read_ledger
from submissions.writer import Expected, check_submission
from tests.attacks import making
from tests.made import modules
from tests.made.graphs import write_graph

AGAIN = b"begun again"  # the file is as good as none, and what it held is made anew


@dataclass(frozen=True)
class Kind:
    """A kind of file.

    make: writes a sound one below a folder, with all that its reader needs; its path.
    read: what the project gets out of it, as bytes; raises as the project does.
    sealed: whether any other content than what was written must be refused.
    """

    name: str
    make: Callable[[Path], Path]
    read: Callable[[Path], bytes]
    sealed: bool = True


def _read_npz(own: Collection) -> Callable[[Path], bytes]:
    return lambda path: making.describe(read_graph(path, own))


def _read_store(path: Path) -> bytes:
    """As a run opens a store that it is given."""
    store = Store.open(path.parent)
    sample = store.sample_submission
    text = b"" if sample is None else sample.read_bytes()
    return making.describe(store.graphs) + making.describe(store.preparation) + text


def _read_job(path: Path) -> bytes:
    folder = next(parent for parent in path.parents if parent.name.startswith("fold-"))
    record = check_job(folder)
    frames = [predictions.read(folder / f"{part}.parquet") for part in predictions.PARTS]
    return making.describe(record) + b"".join(map(making.describe, frames))


def _read_model(path: Path) -> bytes:
    return making.describe(load_model(path.parent).predict(making.LAYOUT))


def _read_batches(path: Path) -> bytes:
    batches = read_by_graphs({"one": path}, 20)
    return b"".join(making.describe(frames["one"]) for _, frames in batches)


def _read_split(path: Path) -> bytes:
    run = Run(path.parent)
    check_split(run)
    return b"".join(making.describe(predictions.read(p)) for p in (run.graphs, run.labels))


def _read_sample(path: Path) -> bytes:
    if (found := Run(path.parent).sample_submission()) is None:
        raise FileNotFoundError(f"{path}: there is no sample")
    return found.read_bytes()


def _or_again(found: object) -> bytes:
    """A run without the record has the defaults, and says so."""
    return AGAIN if found is None else repr(found).encode()


def _make_bundle(folder: Path, name: str) -> Path:
    run = making.make_run(folder)
    assert (recipe := recall(run.folder)) is not None
    return pack(run, recipe, folder / name)


def _find_bundle(path: Path) -> Path:
    return next(parent for parent in path.parents if (parent / BUNDLE).exists())


def _read_bundle(path: Path) -> bytes:
    ranking = load_bundle(path).rank(making.LAYOUT)
    return ranking.order.tobytes() + ranking.scores.tobytes()


def _read_checkpoint(path: Path) -> bytes:
    if (found := load_checkpoint(path.parent, "mine")) is None:
        return AGAIN
    tensors, record = found
    return repr([(name, t.tolist()) for name, t in sorted(tensors.items())] + [record]).encode()


def _check_submission(path: Path) -> bytes:
    """What `fastslow verify` says: how many rows."""
    asked = {f"layout:xla:random:g{number}": 4 for number in range(8)}
    asked |= {f"tile:xla:k{number}": 20 for number in range(8)}
    return str(check_submission(path, Expected(asked, "the test split"))).encode()


def _make_session(folder: Path) -> Path:
    place = making.write_text(folder / "session" / "one.txt", "one").parent
    record = session.SessionRecord(notebook="1-mine", push="key", commit="c0")
    session.write_session_record(record, place)
    return place / session.KERNEL_RECORD


def _make_pushes(folder: Path) -> Path:
    path = folder / "kernels" / "mine.json"
    facts = {"key": "k", "kernel": "me/mine", "commit": "c", "when": "now", "values": {"N": 3}}
    more = {"resumes": False, "dataset": "me/data", "dataset_version": 2}
    pushes.write_push_record(pushes.Pushes.model_validate({"pushes": [facts | more]}), path)
    return path


def _read_pushes(path: Path) -> bytes:
    """A notebook of which there is no record was never pushed."""
    found = pushes.read_push_record(pushes.Pushes, path)
    return AGAIN if found is None else found.model_dump_json().encode()


def _seal(value: dict[str, object], path: Path) -> Path:
    write_sealed(value, path)
    return path


def _unpack(path: Path) -> bytes:
    target = path.with_name("unpacked")
    shutil.rmtree(target, ignore_errors=True)
    files = unpack_download(path, target, 1 << 20)
    return repr([(f.name, f.read_bytes()) for f in files]).encode()


def _read_modules(path: Path) -> bytes:
    records = read_module_file(path)
    return b"".join(making.describe(r.graph) + making.describe(r.nanoseconds) for r in records)


def _read_journal(path: Path) -> bytes:
    journal = Journal(path.parent, making.IDENTITY)
    found = journal.candidates, journal.repeats
    return repr(sorted(journal.state.items())).encode() + b"".join(map(making.describe, found))


def _prepared(folder: Path) -> Path:
    making.make_store(folder)
    return graph_path(folder / "store", "layout:xla:random", "train", "known_1")


def _in_model(settings: object, name: str) -> Callable[[Path], Path]:
    return lambda folder: making.make_model(folder, settings) / name  # type: ignore[arg-type]


def _in_run(*parts: str) -> Callable[[Path], Path]:
    return lambda folder: making.make_run(folder).folder.joinpath(*parts)


def _beside(make: Callable[[Path], Path]) -> Callable[[Path], Path]:
    return lambda folder: find_seal(make(folder))


def _unsealed(path: Path) -> Path:
    return path.with_name(path.name.removesuffix(".seal"))


_GATHERED = _in_run("ridge", "out_of_fold", "predictions.parquet")

RIDGE = making.RIDGE.ranker

KINDS = (
    Kind("npz, layout", lambda f: write_graph(making.LAYOUT, f / "npz-l"),
         _read_npz(making.LAYOUT.collection)),
    Kind("npz, tile", lambda f: write_graph(making.TILE, f / "npz-t"),
         _read_npz(making.TILE.collection)),
    Kind("npz, options", making.make_options, _read_npz(collection("layout:xla:random"))),
    Kind("protobuf", lambda f: modules.write(modules.make_layout_record(), f / "module" / "m.pb"),
         _read_modules, sealed=False),
    Kind("store.json", lambda f: making.make_store(f).folder / "store.json", _read_store),
    Kind("store, list", lambda f: making.make_store(f).folder / "graphs.parquet", _read_store),
    Kind("store, sample", lambda f: making.make_store(f).folder / "sample_submission.csv",
         _read_store),
    Kind("store, graph", _prepared, lambda path: making.describe(read_prepared(path))),
    Kind("store, mapped graph", making.make_mapped,
         lambda path: making.describe(read_prepared(path))),
    Kind("run.json", _in_run("run.json"), lambda p: repr(Run.existing(p.parent).record()).encode()),
    Kind("origin.json", _in_run("origin.json"),
         lambda path: _or_again(recall_origin(Run(path.parent)))),
    Kind("recipe.json", _in_run("recipe.json"), lambda path: _or_again(recall(path.parent))),
    Kind("run, graphs", _in_run("graphs.parquet"), _read_split),
    Kind("run, labels", _in_run("labels.parquet"), _read_split),
    Kind("run, sample", _in_run("sample_submission.csv"), _read_sample),
    Kind("predictions", _GATHERED, _read_batches),
    Kind("ranking", _in_run("mine", "test", "ranking.parquet"),
         lambda path: making.describe(predictions.read(path))),
    Kind("seal", _beside(_GATHERED), lambda path: _read_batches(_unsealed(path))),
    Kind("job.json", lambda f: making.make_job(f) / "job.json", _read_job),
    Kind("job, predictions", lambda f: making.make_job(f) / "test.parquet", _read_job),
    Kind("checkpoint", making.make_checkpoint, _read_checkpoint),
    Kind("model.json", _in_model(RIDGE, "model.json"), _read_model),
    Kind("model, linear", _in_model(RIDGE, "model.safetensors"), _read_model),
    Kind("model, trees", _in_model(making.TREES, "model.txt"), _read_model),
    Kind("model, net", _in_model(making.NET, "weights.safetensors"), _read_model),
    Kind("recipe", lambda f: making.write_text(f / "recipes" / "mine.toml", making.RECIPE),
         lambda path: repr(find_recipe(str(path))).encode(), sealed=False),
    Kind("submission", making.make_submission, _check_submission, sealed=False),
    Kind("ledger", making.make_ledger, lambda path: repr(read_ledger(path)).encode(), sealed=False),
    Kind("study", making.make_study, lambda path: repr(making.read_study(path)).encode()),
    Kind("collection, state", lambda f: making.make_journal(f) / "state.json", _read_journal),
    Kind("collection, candidates", lambda f: making.make_journal(f) / "candidates.parquet",
         _read_journal),
    Kind("collection, repeats", lambda f: making.make_journal(f) / "repeats.parquet",
         _read_journal),
    Kind("search", making.make_choice, making.read_choice),
    Kind("mirror", making.make_mirror, making.read_mirror),
    Kind("draft", lambda f: _seal({"architecture": "mine"}, f / "drafts" / "gemm.json"),
         lambda path: repr(read_sealed_record(path, "a draft")).encode()),
    Kind("session", _make_session,
         lambda path: session.read_session_record(path.parent).model_dump_json().encode()),
    Kind("pushes", _make_pushes, _read_pushes),
    Kind("download", lambda f: _seal({"a.npz": 12, "b.npz": 13}, f / "download" / RECEIPT),
         lambda path: AGAIN if (r := _read_receipt(path.parent)) is None else repr(r).encode()),
    Kind("bundle", lambda f: _make_bundle(f, "mine.zip"), _read_bundle),
    Kind("bundle, model", lambda f: min(_make_bundle(f, "bundle").rglob("*.safetensors")),
         lambda path: _read_bundle(_find_bundle(path))),
    Kind("bundle.json", lambda f: _make_bundle(f, "bundle") / BUNDLE,
         lambda path: _read_bundle(path.parent)),
    Kind("policy", making.make_policy, making.read_policy),
    Kind("archive", making.make_archive, _unpack),
)  # fmt: skip
BY_NAME = {kind.name: kind for kind in KINDS}
