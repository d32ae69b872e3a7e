"""Read the notebooks' files, set their parameters, and execute them on the sample.

notebooks/NAME/
    NAME.py                  the source, a jupytext percent script
    NAME.ipynb               built from it by `make notebooks`, executed on the bundled sample
    kernel-metadata.json     what the kernel needs on Kaggle

`--set NAME=VALUE` sets a parameter. Invalid values are rejected here, because on Kaggle the session
would start and then fail.
"""

import ast
import asyncio
import base64
import copy
import io
import json
import math
import os
import shutil
import signal
import tempfile
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ensembles import DEFAULT_RECIPE, SAMPLE_RECIPE
from ensembles.recipe import find_recipe, list_recipes
from solution.domain.collection import NAMES
from solution.system.errors import InputError
from solution.system.files import write_bytes
from solution.system.names import match
from solution.system.progress import console
from submissions.calls import stopped_by_signals
from submissions.provenance import PROJECT

NOTEBOOKS = PROJECT / "notebooks"
METADATA = "kernel-metadata.json"
PARAMETERS, INJECTED = "parameters", "injected-parameters"  # papermill's tags of cells

Value = str | int | float | bool
# Parameters that --set may not change, and why.
GIVEN_OTHERWISE = {
    "PUSH": "a push sets it",
    "COMMIT": "a push sets it",
    "BUNDLE": "give --bundle (make: BUNDLE=name), which attaches the bundle as well",
}
SCHEMES, PACKS = ("family", "architecture", "graph"), ("", "folds", "refit")
SAMPLE = PROJECT / "solution" / "data" / "sample"
OUTPUTS = PROJECT / "build" / "notebooks"  # folder for files that the notebooks write
CELL_SECONDS = 1800  # time limit of one cell
BETWEEN_KILLS = 0.2  # seconds between attempts to kill a kernel, which may start after the first
COLOURS = 128  # number of colours of a picture stored in an ipynb file
# MIME types of cell outputs, such as progress bars, that are left out of the ipynb files
UNREADABLE = ("application/vnd.jupyter.widget-view+json",)


@dataclass(frozen=True)
class Notebook:
    """A notebook of this project: the folder notebooks/NAME."""

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
        return dict(json.loads(self.built.read_text(encoding="utf-8")))

    def read_metadata(self) -> dict[str, Any]:
        """Return kernel-metadata.json, with a placeholder for the user's name."""
        return dict(json.loads((self.folder / METADATA).read_text(encoding="utf-8")))


def list_notebooks() -> list[Notebook]:
    """Return all notebooks, sorted by name."""
    return [Notebook(path.parent) for path in sorted(NOTEBOOKS.glob(f"*/{METADATA}"))]


def find_notebook(name: str) -> Notebook:
    """Return the notebook of this name, or the only one whose name begins with it, such as "2"."""
    found = [notebook for notebook in list_notebooks() if notebook.name.startswith(name)]
    exact = [notebook for notebook in found if notebook.name == name]
    if not name or len(exact or found) != 1:
        names = ", ".join(notebook.name for notebook in list_notebooks())
        raise InputError(
            f"{name!r} is not one of the notebooks {names}. Give one of these names, or the "
            "beginning of only one of them (make: NOTEBOOK=name)."
        )
    return (exact or found)[0]


def read_parameters(notebook: Mapping[str, Any]) -> dict[str, Value]:
    """Return the parameters with their defaults, from the cell tagged "parameters"."""
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
    """Return a copy of the notebook with a cell, after the parameters, that sets the values."""
    made: dict[str, Any] = copy.deepcopy(dict(notebook))
    made["cells"] = list_source_cells(made)
    lines = [f"{name} = {value!r}" for name, value in values.items()]
    cell: dict[str, Any] = {"cell_type": "code", "execution_count": None, "id": "set-values"}
    cell |= {"metadata": {"tags": [INJECTED]}, "outputs": []}
    cell["source"] = "\n".join(["# Set for this execution.", *lines])
    tagged = [PARAMETERS in cell["metadata"].get("tags", []) for cell in made["cells"]]
    made["cells"].insert(tagged.index(True) + 1, cell)
    return made


def list_source_cells(notebook: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the notebook's cells, except the cells that `set_values` inserted."""
    cells: list[dict[str, Any]] = notebook["cells"]
    return [cell for cell in cells if INJECTED not in cell["metadata"].get("tags", [])]


def parse_values(pairs: Sequence[str], notebook: Mapping[str, Any]) -> dict[str, Value]:
    """Parse NAME=VALUE pairs as the types of the notebook's parameters. Raises InputError if there
    is no such parameter, or its value is not valid."""
    known = read_parameters(notebook)
    values: dict[str, Value] = {}
    for pair in pairs:
        name, is_pair, text = pair.partition("=")
        if not is_pair or name not in known or name in GIVEN_OTHERWISE:
            raise InputError(f"{pair!r}: {_explain_name(name, known)}.")
        values[name] = _parse(name, text, known[name])
    _check({**known, **values})
    return values


def _explain_name(name: str, known: Mapping[str, Value]) -> str:
    free = [parameter for parameter in known if parameter not in GIVEN_OTHERWISE]
    if name in known and name in GIVEN_OTHERWISE:
        return f"{name} cannot be set: {GIVEN_OTHERWISE[name]}"
    if not free:
        return "this notebook has no parameter that can be set"
    return f"expected NAME=VALUE, where NAME is one of {', '.join(free)}"


def _parse(name: str, text: str, default: Value) -> Value:
    try:
        text.encode()  # fails if the command line had bytes that are not valid text
        if isinstance(default, str):
            return text
        if isinstance(default, bool):
            return {"true": True, "1": True, "false": False, "0": False}[text.lower()]
        value = type(default)(text)
        if not math.isfinite(value):
            raise ValueError(f"{value} is no number")
    except (KeyError, ValueError) as error:
        raise InputError(
            f"{name}={text}: expected a value such as {default!r} ({type(default).__name__})."
        ) from error
    return value


def _check(values: Mapping[str, Value]) -> None:
    for name, (fits, expected) in EXPECTED.items():
        if name not in values:
            continue
        try:
            fault = "" if fits(values) else "."
        except InputError as error:
            fault = f". {error}"
        if fault:
            raise InputError(f"{name}={values[name]}: expected {expected}{fault}")


def _are_folds(values: Mapping[str, Any]) -> bool:
    try:
        numbers = [int(part) for part in values["FOLDS"].split(",") if part.strip()]
    except ValueError:
        return False
    return all(0 <= number < values["NUM_FOLDS"] for number in numbers)


def _list_experiments(values: Mapping[str, Any]) -> list[str]:
    default = SAMPLE_RECIPE if values.get("LIMIT") else DEFAULT_RECIPE
    return find_recipe(values.get("RECIPE") or default).experiments()


def _has_work(values: Mapping[str, Any]) -> bool:
    """Return whether a chosen experiment ranks a chosen collection, judged by the first part of
    both names, for example layout."""
    chosen = match(_list_experiments(values), values["EXPERIMENTS"])
    kinds = {name.partition("_")[0] for name in chosen}
    ranked = {name.partition(":")[0] for name in match(NAMES, values["COLLECTIONS"])}
    return "nothing" in kinds or bool(kinds & ranked)


# For each known parameter: a check of its value, which may raise InputError as well, and a
# description of the valid values.
EXPECTED: dict[str, tuple[Callable[[Mapping[str, Any]], bool], str]] = {
    "HOURS": (lambda values: values["HOURS"] >= 0, "0 or more"),
    "NUM_FOLDS": (lambda values: values["NUM_FOLDS"] >= 2, "2 or more"),
    "FOLDS": (_are_folds, "numbers below NUM_FOLDS, such as 0,1, or nothing for all"),
    "SCHEME": (lambda values: values["SCHEME"] in SCHEMES, " or ".join(SCHEMES)),
    "GRAPHS": (lambda values: values["GRAPHS"] >= 1, "1 or more"),
    "RECIPE": (
        lambda values: values["RECIPE"] in ("", *list_recipes()),
        f"nothing, or one of {', '.join(list_recipes())}",
    ),
    "SOURCES": (
        lambda values: all(
            match([notebook.name for notebook in list_notebooks()], part)
            for part in values["SOURCES"].split(",")
        ),
        "patterns of notebooks' names, such as 2-*,3-*",
    ),
    "PACK": (lambda values: values["PACK"] in PACKS, "folds, refit or nothing"),
    "EXPERIMENTS": (
        lambda values: bool(match(_list_experiments(values), values["EXPERIMENTS"])),
        "patterns that choose some of the recipe's experiments",
    ),
    "COLLECTIONS": (
        _has_work,
        "patterns of collections, some of which a chosen experiment ranks",
    ),
}


def build(notebooks: Sequence[Notebook], outputs: Path = OUTPUTS) -> None:
    """Execute the notebooks one after the other on the sample, and write their ipynb files. Raises
    InputError if a cell fails."""
    shutil.rmtree(outputs, ignore_errors=True)
    environment = {
        **os.environ,
        "FASTSLOW_RUNS": str(outputs / "runs"),
        "FASTSLOW_STORES": str(outputs / "stores"),
        "FASTSLOW_DATA": str(SAMPLE),
        "FASTSLOW_INPUT": str(outputs / "no-inputs"),
        "COLUMNS": "100",
    }
    done = {}
    for notebook in notebooks:
        with console.status(f"Executing {notebook.name}"):
            made = read_source(notebook)
            if "REPLACE" in read_parameters(made):
                made = set_values(made, {"REPLACE": True})
            done[notebook.built] = execute(made, PROJECT, environment)
    # written at the end, so that the working tree is clean until then
    for path, executed in done.items():
        write(executed, path)


def read_source(notebook: Notebook) -> dict[str, Any]:
    """Return the notebook of the .py source, not executed, with reproducible cell ids."""
    import jupytext

    made = jupytext.read(notebook.source)
    made.metadata.pop("jupytext", None)
    made.nbformat, made.nbformat_minor = 4, 5
    for number, cell in enumerate(made.cells):
        cell["id"] = f"cell-{number}"
    found: dict[str, Any] = made
    return found


def execute(
    notebook: Mapping[str, Any],
    folder: Path,
    environment: Mapping[str, str],
    kernel_name: str = "python3",
) -> dict[str, Any]:
    """Execute the notebook in `folder`; return it with its complete outputs. Raises InputError with
    the failure of a cell; earlier outputs are lost."""
    import nbformat
    from nbclient import NotebookClient
    from nbclient.exceptions import CellExecutionError, DeadKernelError
    from traitlets.config import Config

    node = nbformat.reads(json.dumps(notebook), as_version=4)
    with tempfile.TemporaryDirectory() as sockets:
        # Talk to the kernel through socket files, not ports, so that other users cannot connect.
        config = Config(KernelManager={"transport": "ipc", "ip": f"{sockets}/kernel"})
        client = NotebookClient(
            node,
            timeout=CELL_SECONDS,
            kernel_name=kernel_name,
            resources={"metadata": {"path": str(folder)}},
            config=config,
        )
        try:
            _run(client, environment)
        except (CellExecutionError, DeadKernelError) as error:
            raise InputError(f"The notebook failed. {error}") from error
    found: dict[str, Any] = node
    return found


def _run(client: Any, environment: Mapping[str, str]) -> None:
    """Execute the client's notebook; if a signal interrupts this process, end the kernel as well.
    The client runs in another thread, because its signal handlers fail during cleanup."""
    with stopped_by_signals(), ThreadPoolExecutor(1) as pool:
        running = pool.submit(lambda: asyncio.run(client.async_execute(env=dict(environment))))
        try:
            running.result()
        except (KeyboardInterrupt, SystemExit):
            while not running.done():
                provisioner = client.km.provisioner if client.km is not None else None
                if provisioner is not None and provisioner.pgid not in (None, os.getpgrp()):
                    with suppress(ProcessLookupError):
                        os.killpg(provisioner.pgid, signal.SIGKILL)
                wait([running], BETWEEN_KILLS)
            raise


def write(notebook: Mapping[str, Any], path: Path) -> None:
    """Write an executed notebook for readers: no progress bars, no paths of this machine."""
    import nbformat

    node = nbformat.from_dict(dict(notebook))
    node.metadata = {"kernelspec": node.metadata["kernelspec"], "language_info": {"name": "python"}}
    for cell in node.cells:
        cell.metadata.pop("execution", None)
        if cell.cell_type == "code":
            cell.outputs = [kept for output in cell.outputs if (kept := _clean(output))]
    text = nbformat.writes(node).replace(f"{PROJECT}/", "")
    write_bytes((text + "\n").encode(), path)


def _clean(output: Any) -> Any:
    """Return a cell's output without parts that need a running kernel; None if nothing is left."""
    if output.get("name") == "stderr":
        return None
    data = output.get("data", {})
    if any(kind in data for kind in UNREADABLE) or "ipywidgets" in data.get("text/plain", ""):
        return None
    if "image/png" in data:
        data.pop("text/plain", None)
        data["image/png"] = _shrink(data["image/png"])
    if "text/html" in data and "text/plain" in data and not data["text/plain"].strip():
        return None
    return output


def _shrink(picture: str) -> str:
    """Return a base64 PNG with COLOURS colours, which has about a third of the bytes."""
    from PIL import Image

    made = io.BytesIO()
    with Image.open(io.BytesIO(base64.b64decode(picture))) as image:
        few = image.convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE)
        few.save(made, "PNG", optimize=True)
    return base64.b64encode(made.getvalue()).decode()
