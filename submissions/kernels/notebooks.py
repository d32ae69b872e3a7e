"""The notebooks as files: their folders, their parameters, and a copy with values set.

notebooks/NAME/
    NAME.py                  the source, a jupytext percent script
    NAME.ipynb               built from it by `make notebooks`, executed on the bundled sample
    kernel-metadata.json     what the kernel needs on Kaggle
"""

import ast
import copy
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from solution.system.errors import InputError
from submissions.provenance import PROJECT

NOTEBOOKS = PROJECT / "notebooks"
METADATA = "kernel-metadata.json"
PARAMETERS, INJECTED = "parameters", "injected-parameters"  # papermill's tags of cells

Value = str | int | float | bool


@dataclass(frozen=True)
class Notebook:
    """One of the notebooks."""

    folder: Path

    @property
    def name(self) -> str:
        return self.folder.name

    @property
    def source(self) -> Path:
        return self.folder / f"{self.name}.py"

    @property
    def built(self) -> Path:
        return self.folder / f"{self.name}.ipynb"

    def read(self) -> dict[str, Any]:
        """Return the built notebook."""
        found: dict[str, Any] = json.loads(self.built.read_text(encoding="utf-8"))
        return found

    def read_metadata(self) -> dict[str, Any]:
        """Return kernel-metadata.json, with a placeholder for the user's name."""
        found: dict[str, Any] = json.loads((self.folder / METADATA).read_text(encoding="utf-8"))
        return found


def list_notebooks() -> list[Notebook]:
    """Return all notebooks, in their order."""
    return [Notebook(path.parent) for path in sorted(NOTEBOOKS.glob(f"*/{METADATA}"))]


def find_notebook(name: str) -> Notebook:
    """Return the notebook with the name, or the only one whose name begins so, such as "2".

    Raises InputError if there is none.
    """
    found = [notebook for notebook in list_notebooks() if notebook.name.startswith(name)]
    exact = [notebook for notebook in found if notebook.name == name]
    if not name or len(exact or found) != 1:
        names = ", ".join(notebook.name for notebook in list_notebooks())
        raise InputError(
            f"{name!r} is not one of the notebooks {names}. Give one of these names, or how only "
            "one of them begins (make: NOTEBOOK=name)."
        )
    return (exact or found)[0]


def read_parameters(notebook: Mapping[str, Any]) -> dict[str, Value]:
    """Return the parameters with their defaults: the assignments of the cell tagged
    "parameters"."""
    for cell in notebook["cells"]:
        if PARAMETERS in cell["metadata"].get("tags", []):
            tree = ast.parse("".join(cell["source"]))
            return {
                node.targets[0].id: ast.literal_eval(node.value)
                for node in tree.body
                if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
            }
    return {}


def set_values(notebook: Mapping[str, Any], values: Mapping[str, Value]) -> dict[str, Any]:
    """Return a copy with a cell after the parameters that sets the values; it replaces an
    earlier one."""
    made: dict[str, Any] = copy.deepcopy(dict(notebook))
    made["cells"] = list_own_cells(made)
    lines = [f"{name} = {value!r}" for name, value in values.items()]
    cell: dict[str, Any] = {
        "cell_type": "code",
        "execution_count": None,
        "id": "set-values",
        "metadata": {"tags": [INJECTED]},
        "outputs": [],
        "source": "\n".join(["# Set for this execution.", *lines]),
    }
    tagged = [PARAMETERS in cell["metadata"].get("tags", []) for cell in made["cells"]]
    made["cells"].insert(tagged.index(True) + 1, cell)
    return made


def list_own_cells(notebook: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the cells that come from the source."""
    cells: list[dict[str, Any]] = notebook["cells"]
    return [cell for cell in cells if INJECTED not in cell["metadata"].get("tags", [])]
