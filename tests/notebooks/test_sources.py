"""The notebooks as they stand in the repository."""

import ast
import json
import re
import shutil
import signal
import subprocess
import time
import zipfile
from pathlib import Path

import psutil
import pytest

from solution.experiments.base import list_experiments
from solution.system.errors import InputError
from solution.system.files import checksum
from submissions.kernels.installing import COMMIT_FILE, MANIFEST, SCRIPT, InstallError, install
from submissions.kernels.notebooks import (
    Notebook,
    find_notebook,
    list_notebooks,
    list_source_cells,
    read_parameters,
    read_source,
    set_values,
)
from submissions.kernels.packaging import IN_THE_IMAGE, PLACEHOLDER, SLUG, list_needs
from tests.notebooks.conftest import Day
from tests.notebooks.sandbox import make_image
from tests.processes import FASTSLOW

NOTEBOOKS = list_notebooks()
LARGEST = 1_000_000  # bytes of an executed notebook


@pytest.fixture(params=NOTEBOOKS, ids=lambda notebook: notebook.name)
def notebook(request: pytest.FixtureRequest) -> Notebook:
    found: Notebook = request.param
    return found


def test_a_notebook_is_in_step_with_its_source(notebook: Notebook) -> None:
    """`make notebooks` builds it; nobody edits it by hand."""
    built = [
        (cell["cell_type"], "".join(cell["source"]), cell["metadata"].get("tags", []))
        for cell in list_source_cells(notebook.read())
    ]
    source = [
        (cell["cell_type"], cell["source"], cell["metadata"].get("tags", []))
        for cell in read_source(notebook)["cells"]
    ]
    assert built == source, "run `make notebooks`"


def test_a_notebook_is_executed_and_small(notebook: Notebook) -> None:
    built = notebook.read()
    cells = [cell for cell in built["cells"] if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))
    outputs = [output for cell in cells for output in cell["outputs"]]
    assert outputs
    assert all(output["output_type"] != "error" for output in outputs)
    assert all(output.get("name") != "stderr" for output in outputs)
    text = notebook.built.read_text(encoding="utf-8")
    assert len(text) < LARGEST
    assert not re.search(r"/(home|root|tmp|work|Users)/", text)


def test_a_notebook_defines_no_functions_and_names_no_experiment(notebook: Notebook) -> None:
    text = notebook.source.read_text(encoding="utf-8")
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)
    assert not [node for node in ast.walk(ast.parse(text)) if isinstance(node, kinds)]
    assert not [name for name in list_experiments() if name in text]


def test_the_metadata_is_what_kaggle_wants(notebook: Notebook) -> None:
    """A title that does not give the id makes surprises; the internet is off unless it is said."""
    metadata = notebook.read_metadata()
    assert metadata["id"] == f"{PLACEHOLDER}/{metadata['title'].replace(' ', '-')}"
    assert metadata["code_file"] == notebook.built.name
    assert metadata["enable_internet"] is (notebook.name == "5-leaderboard")
    assert metadata["enable_gpu"] is (notebook.name == "2-train-layout")
    assert metadata["is_private"] is True
    assert metadata["dataset_sources"] == [f"{PLACEHOLDER}/{SLUG}"]
    others = {other.read_metadata()["id"] for other in NOTEBOOKS}
    assert set(metadata["kernel_sources"]) <= others


def test_values_are_set_behind_the_parameters(notebook: Notebook) -> None:
    """Once, however often it is done, and on a copy."""
    built = notebook.read()
    assert {"PUSH", "COMMIT"} <= set(read_parameters(built))
    once = set_values(built, {"PUSH": "key's"})
    twice = set_values(once, {"PUSH": "other"})
    assert len(once["cells"]) == len(twice["cells"]) == len(list_source_cells(built)) + 1
    assert built == notebook.read()
    index = [cell["metadata"].get("tags") == ["parameters"] for cell in twice["cells"]].index(True)
    assert "PUSH = 'other'" in twice["cells"][index + 1]["source"]
    json.dumps(twice)


def test_a_notebook_is_found_by_how_its_name_begins() -> None:
    assert [notebook.name[0] for notebook in NOTEBOOKS] == list("123456")
    assert find_notebook("2").name == "2-train-layout"
    for name in ("", "7", "train"):
        with pytest.raises(InputError, match="notebooks.*1"):
            find_notebook(name)


BUILT = find_notebook("1").built


@pytest.mark.parametrize(
    ("number", "code", "words"), [(signal.SIGINT, 130, "Stopped."), (signal.SIGTERM, 143, "")]
)
def test_a_build_is_stopped(number: signal.Signals, code: int, words: str, tmp_path: Path) -> None:
    before = BUILT.read_bytes()
    program = FASTSLOW.start("kernels", "build", "1", cwd=tmp_path, group=0)
    began: list[psutil.Process] = []
    while not began and program.poll() is None:
        began = psutil.Process(program.pid).children(recursive=True)
        time.sleep(0.05)
    time.sleep(2)  # the kernel has begun, and a cell runs or will soon
    began = psutil.Process(program.pid).children(recursive=True)
    assert began
    program.send_signal(number)
    printed, errors = program.communicate(60)
    assert (program.returncode, printed.strip(), errors.strip()) == (code, "", words)
    _, left = psutil.wait_procs(began, timeout=10)
    assert not left
    assert BUILT.read_bytes() == before


@pytest.fixture
def wheels(day: Day, tmp_path: Path) -> Path:
    """The dataset as it is attached to a kernel."""
    for name, data in day.wheels.items():
        (tmp_path / name).write_bytes(data)
    return tmp_path


def find_ours(wheels: Path) -> Path:
    (found,) = wheels.glob("fast_or_slow-*.whl")
    return found


def test_what_is_needed_is_pinned_and_nothing_large() -> None:
    needs = list_needs("3.12")
    names = {need.partition("==")[0] for need in needs}
    assert {"torch-geometric", "isal", "typer", "xxhash"} <= names
    assert not names & (IN_THE_IMAGE | {"fast-or-slow", "triton", "pytest"})
    assert all("==" in need for need in needs)


def test_damage_is_found_before_anything_is_installed(wheels: Path) -> None:
    with pytest.raises(InstallError, match="notebook.*0123"):
        install(wheels, "0123")
    ours = find_ours(wheels)
    data = ours.read_bytes()
    ours.write_bytes(data[:-1])
    with pytest.raises(InstallError, match="another checksum"):
        install(wheels)
    ours.unlink()
    with pytest.raises(InstallError, match="is missing"):
        install(wheels)


@pytest.mark.parametrize("wheel", ["../evil.whl", "/tmp/evil.whl", "a/b.whl", ".."])
def test_a_wheel_whose_name_leads_elsewhere_is_refused(tmp_path: Path, wheel: str) -> None:
    manifest = {"project": "mine", "commit": "0123", "wheels": {wheel: "0" * 64}}
    (tmp_path / MANIFEST).write_text(json.dumps(manifest))
    with pytest.raises(InstallError, match="the file name"):
        install(tmp_path, "0123")


def test_what_the_image_lacks_is_named(wheels: Path, image: Path) -> None:
    """pip's words, and what they mean."""
    (wheels / MANIFEST).write_text(
        (wheels / MANIFEST).read_text().replace('"project": "fast-or-slow"', '"project": "other"')
    )
    done = subprocess.run([image, wheels / SCRIPT], capture_output=True, text=True)
    assert done.returncode != 0
    assert "other" in done.stderr
    assert "Kaggle's image" in done.stderr


def show_commit(image: Path) -> str:
    """That of what is installed there, and the file that says so."""
    code = "import solution.system.commit as c; print(c.read_commit(), c.__file__)"
    command = [image, "-I", "-c", code]  # -I: whatever PYTHONPATH says
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def change_commit(wheels: Path, commit: str) -> None:
    """Let the dataset be of another commit, and its wheel of the same version as before."""
    ours = find_ours(wheels)
    with zipfile.ZipFile(ours) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(ours, "w") as archive:
        for name, data in {**files, COMMIT_FILE: commit.encode()}.items():
            archive.writestr(name, data)
    manifest = json.loads((wheels / MANIFEST).read_text())
    manifest["wheels"][ours.name] = checksum(ours)
    (wheels / MANIFEST).write_text(json.dumps({**manifest, "commit": commit}))


def test_a_wheel_that_arrives_unpacked_is_installed(wheels: Path, tmp_path: Path) -> None:
    """Once; one of another commit replaces it, though its version is the same."""
    image = make_image(tmp_path / "fresh")
    ours = find_ours(wheels)
    packed = ours.read_bytes()
    with zipfile.ZipFile(ours) as archive:
        archive.extractall(ours.with_suffix(""))
    ours.unlink()
    stamps = []
    for _ in range(2):
        subprocess.run([image, wheels / SCRIPT], check=True)
        commit, _, file = show_commit(image).strip().partition(" ")
        assert commit == json.loads((wheels / MANIFEST).read_text())["commit"]
        assert Path(file).is_relative_to(image.parent.parent)
        stamps.append(Path(file).stat().st_ctime_ns)
    assert stamps[0] == stamps[1]
    shutil.rmtree(ours.with_suffix(""))
    ours.write_bytes(packed)
    change_commit(wheels, "0123")
    subprocess.run([image, wheels / SCRIPT], check=True)
    assert show_commit(image).startswith("0123 ")
