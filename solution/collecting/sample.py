"""Collect the training sample: many architectures in layouts, many products in tiles, for hours.

    python -m solution.collecting.sample FOLDER --hours 4 --avoid FOLDER_WITH_TEST_GRAPHS

Stopped, even killed, the same command goes on. A program's split follows from its architecture, so
that no architecture stands in two; one that a test graph has, or an earlier program, is left out.
"""

import argparse
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from solution.collecting.children import Child, choose_core
from solution.collecting.collect import Collection, Settings, Workers
from solution.collecting.families import draw_settings
from solution.collecting.program import Program, read_programs
from solution.collecting.records import Place
from solution.collecting.spaces import LayoutSpace, Space
from solution.collecting.tiles import TileSpace
from solution.data.folders import find_files
from solution.data.npz import read_graph
from solution.domain.codebook_encoder import encode
from solution.domain.collection import collection
from solution.domain.graph import Graph
from solution.system.errors import InputError
from solution.system.files import locked, write_sealed
from solution.system.sealing import read_record
from solution.system.terminal import say

COUNTS = {  # three times the architectures of cpugraphs
    "layout:xla:random": 130, "layout:xla:default": 120, "layout:nlp:random": 123,
    "layout:nlp:default": 120, "tile:xla": 400,
}  # fmt: skip
SIZES = (12, 16, 24, 32, 48, 64, 70, 96, 100, 128, 160, 192, 256)
VALID_SHARE = 6  # every sixth architecture
LAYOUT_SECONDS, TILE_SECONDS = 100.0, 45.0
HEADER = '"""Drawn by solution.collecting.sample."""\n\n'


@dataclass(frozen=True)
class Draft:
    """A program that is to be collected."""

    name: str
    collection: str
    text: str  # of its python file


def draw_drafts(name: str) -> Iterator[Draft]:
    """Programs of the collection, one after the other, always the same."""
    kind, *rest = name.split(":")
    for number in range(4 * COUNTS[name]):
        generator = np.random.default_rng([number, *name.encode()])
        if kind == "tile":
            rows, inner, columns = (int(size) for size in generator.choice(SIZES, 3))
            batch = [int(generator.choice((2, 4, 8)))] if generator.random() < 0.3 else []
            shapes = ((*batch, rows, inner), (*batch, inner, columns))
            text = (
                "import numpy as np\n\nrandom = np.random.default_rng(0)\n"
                f"arguments = tuple(random.standard_normal(s).astype(np.float32) for s in {shapes})"
                "\n\n\ndef program(left, right):\n    return left @ right\n"
            )
            yield Draft(f"gemm_{number:03}", name, HEADER + text)
        else:
            settings = draw_settings(rest[0], generator)
            text = (
                "from solution.collecting.families import build\n\n"
                f"program, arguments = build(**{settings})\n"
            )
            yield Draft(f"{settings['family']}_{number:03}", name, HEADER + text)


def find_architectures(folder: Path) -> set[str]:
    """Of the layout graphs below a folder's test splits."""
    return {
        read_graph(file.path, file.collection).architecture
        for file in find_files(folder)
        if file.split == "test" and file.collection.kind == "layout"
    }


class Sample:
    """The folder of the sample, and the architectures that it may not hold again."""

    def __init__(
        self, folder: Path, avoided: set[str], workers: Workers, say: Callable[[str], None]
    ):
        self._folder = folder
        self._taken = {name: set(avoided) for name in COUNTS}
        self._workers = workers
        self._say = say

    def collect(self, draft: Draft) -> bool:
        """Collect a program, or go on with it; whether it became a graph."""
        note = self._folder / "drafts" / draft.collection.replace(":", "-") / f"{draft.name}.json"
        if note.exists():
            known = read_record(note, "a draft of the sample")
            self._taken[draft.collection].add(known["architecture"])
            return bool(known["npz"])
        path = note.with_suffix(".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(draft.text, encoding="utf-8")
        architecture, npz = self._measure(draft, path)
        write_sealed({"architecture": architecture, "npz": npz}, note)
        return bool(npz)

    def _measure(self, draft: Draft, path: Path) -> tuple[str, str]:
        try:
            (program,) = read_programs(path, self._workers.compiling)
            is_tile = draft.collection == "tile:xla"
            architecture = draft.name if is_tile else describe(program, draft.collection)
            if architecture in self._taken[draft.collection]:
                return architecture, ""
            self._taken[draft.collection].add(architecture)
            state = self._run(program, draft, architecture)
        except InputError as error:
            self._say(f"{draft.name}: {error}")
            return draft.name, ""
        self._say(
            f"{draft.collection} {draft.name}: {state['configs']} configurations, spread "
            f"{state['spread']:.2f}, repeat tau {state['repeat_tau']:.2f} {state['left_out']}"
        )
        return architecture, str(state.get("npz", ""))

    def _run(self, program: Program, draft: Draft, architecture: str) -> dict[str, object]:
        is_tile = draft.collection == "tile:xla"
        space: Space = (
            TileSpace(program)
            if is_tile
            else LayoutSpace(program, draft.collection.rpartition(":")[2])
        )
        is_valid = sum(architecture.encode()) % VALID_SHARE == 0
        place = Place(self._folder, draft.collection, "valid" if is_valid else "train")
        seconds = TILE_SECONDS if is_tile else LAYOUT_SECONDS
        settings = Settings(configs=72 if is_tile else 60, seconds=seconds)
        return Collection(program, space, place, settings, self._workers).run(lambda _: None)


def describe(program: Program, name: str) -> str:
    """The architecture of the program's graph, as Graph has it."""
    nodes = program.nodes
    layouts = np.full((1, len(program.configurable), 18), -1, np.int8)
    graph = Graph(
        program.name, collection(name), nodes.features, nodes.opcodes, nodes.edges,
        program.configurable, encode(layouts), None,
    )  # fmt: skip
    return graph.architecture


def main() -> None:
    """Collect until all collections are full or the hours are over."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--hours", type=float, default=4.0)
    parser.add_argument("--avoid", type=Path, help="whose test graphs' architectures are left out")
    options = parser.parse_args()
    deadline = time.monotonic() + 3600 * options.hours
    options.folder.mkdir(parents=True, exist_ok=True)
    known = options.avoid is not None and options.avoid.is_dir()
    avoided = find_architectures(options.avoid) if known else set()
    say(f"{len(avoided)} architectures of test graphs are left out.")
    core, settings = choose_core(), Settings()
    with (
        locked(options.folder, "Wait for it, or choose another folder."),
        Child(settings.limits, core) as compiling,
        Child(settings.limits, core) as timing,
    ):
        sample = Sample(options.folder, avoided, Workers(compiling, timing), say)
        _collect_all(sample, deadline)


def _collect_all(sample: Sample, deadline: float) -> None:
    """One program of each collection in turn, so that all grow alike."""
    drafts = {name: draw_drafts(name) for name in COUNTS}
    counts = dict.fromkeys(COUNTS, 0)
    while drafts and time.monotonic() < deadline:
        for name in list(drafts):
            draft = next(drafts[name], None)
            if draft is None or counts[name] >= COUNTS[name]:
                del drafts[name]
            elif time.monotonic() < deadline:
                counts[name] += sample.collect(draft)
    say(", ".join(f"{name}: {count} of {COUNTS[name]}" for name, count in counts.items()))


if __name__ == "__main__":
    main()
