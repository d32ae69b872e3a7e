"""The notebooks as they stand in the repository."""

import ast
import json
import re

import pytest

from solution.experiments import DEFAULTS
from solution.system.errors import InputError
from submissions.kernels.notebooks import (
    Notebook,
    find_notebook,
    list_notebooks,
    list_own_cells,
    read_parameters,
    read_source,
    set_values,
)
from submissions.kernels.packaging import PLACEHOLDER, SLUG

NOTEBOOKS = list_notebooks()
LARGEST = 1_000_000  # bytes of an executed notebook


@pytest.fixture(params=NOTEBOOKS, ids=lambda notebook: notebook.name)
def notebook(request: pytest.FixtureRequest) -> Notebook:
    found: Notebook = request.param
    return found


def test_there_are_six() -> None:
    assert [notebook.name[0] for notebook in NOTEBOOKS] == list("123456")


def test_a_notebook_is_in_step_with_its_source(notebook: Notebook) -> None:
    """`make notebooks` builds it; nobody edits it by hand."""
    built = [
        (cell["cell_type"], "".join(cell["source"]), cell["metadata"].get("tags", []))
        for cell in list_own_cells(notebook.read())
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
    assert not [name for name in DEFAULTS if name in text]


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
    assert len(once["cells"]) == len(twice["cells"]) == len(list_own_cells(built)) + 1
    assert built == notebook.read()
    place = [cell["metadata"].get("tags") == ["parameters"] for cell in twice["cells"]].index(True)
    assert "PUSH = 'other'" in twice["cells"][place + 1]["source"]
    json.dumps(twice)


def test_a_notebook_is_found_by_how_its_name_begins() -> None:
    assert find_notebook("2").name == "2-train-layout"
    for name in ("", "7", "train"):
        with pytest.raises(InputError, match="is not one of the notebooks 1-look-at-the-data"):
            find_notebook(name)
