"""The map of the project: every room, every file, a line each, from the docstrings.

`python -m tests.map` writes docs/map.md anew; a test compares.
"""

import ast
from pathlib import Path

REPOSITORY = Path(__file__).parent.parent
MAP = REPOSITORY / "docs" / "map.md"
ROOMS = {
    "solution": "From raw graphs to out-of-fold and test predictions.",
    "solution/commands": "What people type; each command is a few lines over the rooms.",
    "solution/system": "Files, processes, memory, progress; of graphs only files of predictions.",
    "solution/domain": "The values: graphs, codebooks, predictions, metrics.",
    "solution/data": "What people bring: npz files, folders, protobuf.",
    "solution/data/hlo": "Modules of XLA, as it dumps them.",
    "solution/features": "Graph in, numbers out; knows no file.",
    "solution/features/layout": "What a layout configuration asks of the compiler.",
    "solution/features/propagation": "What the compiler makes of configurations: layouts, copies.",
    "solution/features/tile": "What a tile does to the loops of a kernel.",
    "solution/store": "What we made of the data: repaired, pruned, encoded, mapped.",
    "solution/collecting": "Your own programs compiled and timed, as npz files.",
    "solution/collecting/examples": "Programs to collect, as a user would write them.",
    "solution/models": "The Ranker contract, the catalogue of kinds, and the small rankers.",
    "solution/models/nets": "What all graph nets share: the loop, losses, layers, checkpoints.",
    "solution/models/layout": "Our layout net.",
    "solution/models/tile": "Our tile nets.",
    "solution/models/trees": "LightGBM.",
    "solution/models/papers": "One file a published system, and what only they use.",
    "solution/experiments": "One frozen value a file; `published/` has those of papers.",
    "solution/placement": "GO: where, when and in which kernels the operations of a program run.",
    "solution/placement/graphs": "Programs with the costs of their operations.",
    "solution/placement/simulation": "What a decision costs: compiled, deterministic.",
    "solution/placement/baselines": "What GO is set beside.",
    "solution/placement/policy": "The network, its training, its file.",
    "solution/runs": "The folder of a run and its records; needs no torch.",
    "solution/training": "Folds, jobs, fits, and the loop over them.",
    "solution/training/executors": "Where jobs are done.",
    "solution/serving": "A trained ensemble as a thing: packed, shared, asked for a ranking.",
    "solution/choosing": "A better configuration found by measuring few of them.",
    "solution/sessions": "A notebook on Kaggle: what it takes over, trains and leaves.",
    "solution/analysis": "Tables and pictures for people.",
    "solution/tuning": "Settings searched.",
    "ensembles": "From predictions to one ranking a graph; a recipe is a TOML file.",
    "submissions": "From a ranking to Kaggle and back: CSV, upload, ledger.",
    "submissions/kernels": "Notebooks on Kaggle: package, push, pull.",
    "submissions/page": "The report: one HTML page that opens anywhere.",
    "notebooks": "The script is the source, the ipynb is built from it.",
    "tests": "They mirror the rooms; what they make lies in `made/`.",
    "benchmarks": "What is measured, never asserted.",
}
LISTED_BY_NAME = ("solution/experiments", "notebooks", "tests")


def describe(path: Path) -> str:
    """The first line of a module's docstring."""
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return text.split("\n\n")[0].replace("\n", " ")


def write() -> str:
    """The text of docs/map.md."""
    lines = ["# Map", "", "Every room and every file, a line each. Imports go one way: see"]
    lines += ["[design](design.md).", ""]
    for room, what in ROOMS.items():
        lines += [f"## {room}/", "", what, ""]
        for path in sorted((REPOSITORY / room).glob("*.py")):
            if path.name != "__init__.py" and room not in LISTED_BY_NAME:
                lines.append(f"- [{path.name}](../{room}/{path.name}): {describe(path)}")
        if lines[-1]:
            lines.append("")
    return "\n".join(lines).rstrip() + "\n"


if __name__ == "__main__":
    MAP.parent.mkdir(exist_ok=True)
    MAP.write_text(write(), encoding="utf-8")
