"""Build the notebooks: from their sources, executed on the bundled sample, with small outputs.

make notebooks      fastslow kernels build [NAME ...]
"""

import asyncio
import base64
import io
import json
import os
import shutil
import signal
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress
from pathlib import Path
from typing import Any

from solution.system.errors import InputError
from solution.system.files import replace_file
from solution.system.progress import console
from submissions.kernels.notebooks import Notebook, read_parameters, set_values
from submissions.provenance import PROJECT
from submissions.stopping import stopped_by_signals

SAMPLE = PROJECT / "solution" / "data" / "sample"
PLACE = PROJECT / "build" / "notebooks"  # folder for files that the notebooks write
CELL_SECONDS = 1800
BETWEEN_KILLS = 0.2  # seconds; the first kill may come before the kernel starts
COLOURS = 128  # colours of a stored picture
ANEW = {"REPLACE": True}
UNREADABLE = ("application/vnd.jupyter.widget-view+json",)  # progress bars


def build(notebooks: Sequence[Notebook], place: Path = PLACE) -> None:
    """Execute the notebooks one after the other, as on a laptop, and write their ipynb files.

    Raises InputError if a cell fails.
    """
    shutil.rmtree(place, ignore_errors=True)
    environment = {
        **os.environ,
        "FASTSLOW_RUNS": str(place / "runs"),
        "FASTSLOW_STORES": str(place / "stores"),
        "FASTSLOW_DATA": str(SAMPLE),
        "FASTSLOW_INPUT": str(place / "no-inputs"),
        "COLUMNS": "100",
    }
    done = {}
    for notebook in notebooks:
        with console.status(f"Executing {notebook.name}"):
            made = read_source(notebook)
            anew = {name: value for name, value in ANEW.items() if name in read_parameters(made)}
            set_ready = set_values(made, anew) if anew else made
            done[notebook.built] = execute(set_ready, PROJECT, environment)
    # written at the end, so that the working tree is clean until then
    for path, executed in done.items():
        write(executed, path)


def read_source(notebook: Notebook) -> dict[str, Any]:
    """Return the unexecuted notebook of a source, with stable cell ids."""
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
    """Execute the notebook in `folder`; return it with its complete outputs.

    Raises InputError with the failure of a cell; earlier outputs are lost.
    """
    import nbformat
    from nbclient import NotebookClient
    from nbclient.exceptions import CellExecutionError, DeadKernelError
    from traitlets.config import Config

    node = nbformat.reads(json.dumps(notebook), as_version=4)
    with tempfile.TemporaryDirectory() as sockets:
        # Sockets in files instead of ports, so that other users cannot connect.
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
    """Execute the client's notebook; if a signal interrupts it, end the kernel, too.

    It runs in another thread, because nbclient's signal handlers in the main thread fail during
    cleanup.
    """
    with stopped_by_signals(), ThreadPoolExecutor(1) as pool:
        running = pool.submit(lambda: asyncio.run(client.async_execute(env=dict(environment))))
        try:
            running.result()
        except (KeyboardInterrupt, SystemExit):
            while not running.done():
                _kill_kernel(client)
                wait([running], BETWEEN_KILLS)
            raise


def _kill_kernel(client: Any) -> None:
    """Kill the kernel's process group as soon as the kernel has started."""
    provisioner = client.km.provisioner if client.km is not None else None
    if provisioner is not None and provisioner.pgid not in (None, os.getpgrp()):
        with suppress(ProcessLookupError):
            os.killpg(provisioner.pgid, signal.SIGKILL)


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
    with replace_file(path) as temporary:
        temporary.write_text(text + "\n", encoding="utf-8")


def _clean(output: Any) -> Any:
    """Return the output without parts that need a running kernel; None if nothing is left."""
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
    """Return a base64 PNG with a reduced palette: a third of the bytes."""
    from PIL import Image

    made = io.BytesIO()
    with Image.open(io.BytesIO(base64.b64decode(picture))) as image:
        few = image.convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE)
        few.save(made, "PNG", optimize=True)
    return base64.b64encode(made.getvalue()).decode()
