"""A kind of file that the project writes and nobody attacks fails here."""

import ast
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from solution.system.files import TEMPORARY
from tests.attacks.kinds import KINDS
from tests.processes import TRAINING

REPOSITORY = Path(__file__).parents[2]
WRITERS = {
    "replace_file", "replace_folder", "replace_sealed", "write_json", "write_sealed", "write_text",
    "write_bytes", "write_csv", "write_parquet", "sink_parquet", "write_batches", "save_file",
    "savez", "savez_compressed", "write_npz", "copyfile", "copytree", "copy2", "move", "savefig",
    "writestr", "tofile", "dump", "link_to", "hardlink_to", "symlink_to",
}  # fmt: skip
MODES = set("wax+")  # of a file that is opened to be written
# What the project writes and never reads again, or what is code or text of the user's own.
NEVER_READ = (
    "*.html", "*.png", "*/scores.csv", "*/provenance.json", "*/uncommitted.diff", "*_tuned.py",
    "table.parquet", "*/nodes.parquet", "*/choice.json", "order.csv", "order.json", "plan.csv",
    "plan.json", "*.onnx", "bundle/README.md",
)  # fmt: skip
# The modules that write, and the kinds of what each of them writes.
WRITTEN = {
    "ensembles/last_recipe.py": ("recipe.json",),
    "ensembles/merge.py": ("ranking",),
    "ensembles/search.py": ("recipe",),
    "solution/analysis/feature_lists.py": (),  # tables for people
    "solution/analysis/module_table.py": (),
    "solution/choosing/handing.py": ("protobuf",),  # and text for people
    "solution/choosing/journal.py": ("search",),
    "solution/collecting/away.py": (),  # a program, and a log that it was sent
    "solution/collecting/families.py": (),  # programs, which are run as they stand
    "solution/collecting/journal.py": (
        "collection, state", "collection, candidates", "collection, repeats",
    ),
    "solution/collecting/lifting/program_files.py": (),  # a program, for compilers
    "solution/collecting/records.py": ("protobuf",),
    "solution/collecting/release.py": (),  # npz files in a zip that people unpack
    "solution/collecting/sample.py": ("draft",),
    "solution/collecting/tpu/forking.py": (),  # what a compiler refused, read at once
    "solution/commands/data.py": (),  # a copy of what solution/programs/hlo/records.py wrote
    "solution/commands/serving.py": (),  # for people
    "solution/programs/hlo/records.py": ("npz, layout", "npz, tile", "npz, options"),
    "solution/data/npz_writer.py": ("npz, layout", "npz, tile", "npz, options"),
    "solution/domain/predictions.py": ("job, predictions", "run, graphs", "run, labels"),
    "solution/models/catalogue.py": ("model.json",),
    "solution/models/layout/cost_kernel.py": ("model, linear",),  # alike
    "solution/models/linear.py": ("model, linear",),
    "solution/models/nets/checkpoint.py": ("checkpoint",),
    "solution/models/nets/net_ranker.py": ("model, net",),
    "solution/models/table_ranker.py": ("model, linear",),  # alike
    "solution/models/trees/boosted_trees.py": ("model, trees",),
    "solution/placement/policy/saving.py": ("policy",),
    "solution/placement/report.py": (),  # for people
    "solution/placement/simulation/pictures.py": (),  # for people
    "solution/runs/fingerprint.py": (),  # what this program keeps beside its code
    "solution/runs/job.py": ("job.json",),
    "solution/runs/origin.py": ("origin.json",),
    "solution/runs/record.py": ("run.json",),
    "solution/serving/archive.py": ("bundle",),
    "solution/serving/card.py": (),  # for people
    "solution/serving/export.py": (),  # for people
    "solution/serving/onnx_export.py": (),  # for other programs
    "solution/serving/packing.py": ("bundle, model",),
    "solution/serving/record.py": ("bundle.json",),
    "solution/sessions/added_data.py": ("npz, layout", "npz, tile"),
    "solution/sessions/earlier_runs.py": ("run, graphs", "run, labels", "run, sample"),
    "solution/sessions/record.py": ("session",),
    "solution/store/graph_file.py": ("store, graph", "store, mapped graph"),
    "solution/store/preparing.py": ("store.json", "store, list", "store, sample"),
    "solution/system/buckets.py": ("mirror",),
    "solution/system/files.py": (),  # writes what others give it
    "solution/system/parquet.py": ("predictions", "ranking"),
    "solution/system/pictures.py": (),
    "solution/system/sealing.py": ("seal",),
    "solution/system/zips.py": (),  # writes what others give it
    "solution/training/fit.py": ("job, predictions",),
    "solution/training/watch.py": (),  # lines for people
    "solution/training/opening.py": ("run, sample",),
    "solution/training/out_of_fold.py": ("predictions",),
    "solution/training/plan.py": (),  # text in memory
    "solution/training/sites.py": (),  # an experiment that is read at once
    "solution/tuning/search.py": (),  # an experiment of the user's own
    "solution/tuning/study_file.py": ("study",),
    "submissions/download.py": ("archive", "download"),
    "submissions/kernels/datasets.py": (),  # for Kaggle
    "submissions/kernels/notebooks.py": (),  # notebooks
    "submissions/kernels/installing.py": (),  # links to wheels, for pip
    "submissions/kernels/packaging.py": (),  # for Kaggle
    "submissions/kernels/pulling.py": (),  # copies of what Kaggle has
    "submissions/kernels/pushes.py": ("pushes",),
    "submissions/kernels/pushing.py": (),  # for Kaggle
    "submissions/ledger.py": ("ledger",),
    "submissions/page/build.py": (),
    "submissions/page/charts.py": (),  # pictures in memory
    "submissions/provenance.py": (),  # for people
    "submissions/report.py": (),  # scores.csv
    "submissions/writer.py": ("submission",),
}  # fmt: skip


def find_writers() -> Iterator[str]:
    """The modules of which some function calls one that writes a file."""
    for package in ("solution", "ensembles", "submissions"):
        for path in sorted((REPOSITORY / package).rglob("*.py")):
            calls = [n for n in ast.walk(ast.parse(path.read_text("utf-8"))) if _is_call(n)]
            if any(_writes(call) for call in calls):
                yield path.relative_to(REPOSITORY).as_posix()


def _is_call(node: ast.AST) -> bool:
    return isinstance(node, ast.Call)


def _writes(call: ast.Call) -> bool:
    """Whether it is of a known writer, or opens a file with a mode to write."""
    name = getattr(call.func, "attr", getattr(call.func, "id", ""))
    given = [*call.args, *(option.value for option in call.keywords if option.arg == "mode")]
    words = {argument.value for argument in given if isinstance(argument, ast.Constant)}
    modes = {word for word in words if isinstance(word, str) and set(word) <= set("rwaxbt+")}
    return name in WRITERS or (name in ("open", "ZipFile") and bool(set("".join(modes)) & MODES))


def test_whatever_writes_files_is_on_the_list() -> None:
    assert sorted(find_writers()) == sorted(WRITTEN), "say which kind the file is, and attack it"


def test_every_kind_is_of_a_known_writer_and_called_once() -> None:
    names = [kind.name for kind in KINDS]
    assert len(set(names)) == len(names)
    assert {name for written in WRITTEN.values() for name in written} == set(names)


def is_known(name: str) -> bool:
    """Whether a file that was left is of a kind that is attacked, or never read."""
    patterns = [pattern for kind in KINDS for pattern in kind.left]
    return any(fnmatchcase(name, pattern) for pattern in [*patterns, *NEVER_READ])


RECIPE = 'fallback = "nothing_001"\n[members]\nlayout_lightgbm_001 = 1\nlinear_ridge_001 = 1\n'
COMMANDS = (
    ("run", "--limit", "--folds", "2", "--recipe", "mine.toml", "--workers", "2",
     "--experiment", "nothing_001", "--experiment", "layout_lightgbm_001",
     "--experiment", "linear_ridge_001", "--experiment", "QUICK"),
    ("ensemble", "--search", "--run", "runs/sample-limit"),
    ("ensemble", "proposed.toml", "--run", "runs/sample-limit"),
    ("report", "--run", "runs/sample-limit", "--recipe", "proposed.toml"),
    ("features", "tile:xla", "--data", "SAMPLE", "--out", "table.parquet"),
    ("tune", "tile_lightgbm_001", "--trials", "1", "--folds", "2"),
    ("pack", "runs/sample-limit", "--recipe", "mine.toml", "--out", "bundle"),
    ("pack", "runs/sample-limit", "--recipe", "mine.toml", "--out", "bundle.zip"),
    ("rank", "KERNEL", "--with", "bundle.zip", "--csv", "order.csv", "--json", "order.json"),
    ("onnx", "students"),
    ("optimize", "rnnlm-2-small", "--evaluations", "5", "--out", "plan.csv", "--trace", "plan.json",
     "--timeline", "plan.png"),
)  # fmt: skip


@pytest.mark.slow
def test_every_file_that_the_commands_leave_is_of_a_kind_that_is_attacked(
    tmp_path: Path, sample: Path
) -> None:
    (tmp_path / "mine.toml").write_text(RECIPE)
    pytest.importorskip("onnx")
    quick = REPOSITORY / "tests" / "made" / "experiments" / "quick_tile_gnn.py"
    kernel = min((sample / "npz/tile/xla/test").glob("*.npz"))
    named = {"SAMPLE": str(sample), "QUICK": str(quick), "KERNEL": str(kernel)}
    for command in COMMANDS:
        words = [named.get(word, word) for word in command]
        done = TRAINING.run(*words, cwd=tmp_path)
        assert done.returncode == 0, f"{command}: {done.stderr}"
    left = [p.relative_to(tmp_path).as_posix() for p in tmp_path.rglob("*") if p.is_file()]
    unknown = [name for name in left if not is_known(name)]
    assert len(left) > 50
    assert not [name for name in left if TEMPORARY in name]
    assert not unknown, "give each a kind in tests/attacks/kinds.py"
