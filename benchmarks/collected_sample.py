"""Collect the training sample for hours: layouts of many architectures, tiles of many products.

    python -m benchmarks.collected_sample FOLDER --hours 4 --avoid FOLDER_WITH_TEST_GRAPHS
    python -m benchmarks.collected_sample FOLDER --fresh 0.1.0 --avoid FOLDER_WITH_GRAPHS

With `--fresh` it collects the fresh set of a release: programs to score models on, which nothing
is trained or chosen on. They are drawn by the release's name from families that no training data
has (benchmarks.fresh_models); the products' sizes are drawn anew. Architectures of the bundled
training data, and of all graphs in FOLDER_WITH_GRAPHS, are left out.

If it was stopped or killed, the same command resumes. A program's split follows from its
architecture, so that no architecture is in two splits. A program with the architecture of a test
graph or of an earlier program is left out. Each worker is a process on a separate core and with a
collection that no other worker has; they share only the files in the sample's folder.
"""

import argparse
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import solution
from benchmarks import fresh_models
from solution.collecting.collect import ProgramCollection, Settings
from solution.collecting.cpu import Workers
from solution.collecting.families import FAMILIES, draw_settings, write_file
from solution.collecting.program_space import LAYOUTS, TILES, make_collected_space
from solution.collecting.records import Destination
from solution.data.folders import find_files
from solution.data.npz import read_graph
from solution.domain.collection import SPLITS
from solution.programs.child import Child, lease_core, list_cores
from solution.programs.program import Program, make_graph, read_programs
from solution.system.errors import InputError
from solution.system.files import holding, locked, make_folder, write_sealed
from solution.system.processes import SPAWN, open_pool
from solution.system.sealing import read_record
from solution.system.terminal import say
from solution.system.wording import spell

# {collection: graphs to collect}; of layouts, three times the architectures among the CPU graphs
COUNTS = {
    "layout:xla:random": 105, "layout:xla:default": 96, "layout:nlp:random": 63,
    "layout:nlp:default": 63, "tile:xla": 120,
}  # fmt: skip
SIZES = (12, 16, 24, 32, 48, 64, 70, 96, 100, 128, 160, 192, 256)
VALID_SHARE = 6  # about one architecture in this many goes to the validation split
LAYOUT_SECONDS, FRESH_SECONDS, TILE_SECONDS = 100.0, 150.0, 45.0  # of one program
FRESH_COUNTS = {
    "layout:xla:random": 10, "layout:xla:default": 10, "layout:nlp:random": 8,
    "layout:nlp:default": 8, "tile:xla": 20,
}  # fmt: skip
# {draft's name: its note}: the architecture, and the path of the npz file ("": none was written)
Notes = dict[str, dict[str, Any]]
# The name of this module when the bundled programs were drawn: another one would change their text.
HEADER = '"""Drawn by solution.collecting.sample."""\n\n'


@dataclass(frozen=True)
class Draft:
    """A program to collect."""

    name: str
    collection: str
    text: str  # its Python source


def draw_drafts(name: str, release: str = "") -> Iterator[Draft]:
    """Yield the programs of a collection, always the same ones in the same order: of the training
    sample, or of a release's fresh set."""
    kind, *rest = name.split(":")
    is_fresh_tile = kind == "tile" and release
    known = {draft.text for draft in draw_drafts(name)} if is_fresh_tile else set()
    for number in range(4 * (FRESH_COUNTS if release else COUNTS)[name]):
        generator = np.random.default_rng([number, *f"{name}{release}".encode()])
        if kind == "tile":
            text = HEADER + _write_product(generator)
            if text not in known:
                yield Draft(f"gemm_{number:03}", name, text)
        elif release:
            families = fresh_models.FAMILIES[rest[0]]
            family = families[number % len(families)]
            text = fresh_models.write_file(fresh_models.draw_settings(family, generator))
            yield Draft(f"{family}_{number:03}", name, text)
        else:
            settings = draw_settings(FAMILIES[rest[0]], generator)
            yield Draft(f"{settings['family']}_{number:03}", name, HEADER + write_file(settings))


def _write_product(generator: np.random.Generator) -> str:
    """Return the source of a product of two random matrices, or of batches of them."""
    rows, inner, columns = (int(size) for size in generator.choice(SIZES, 3))
    batch = [int(generator.choice((2, 4, 8)))] if generator.random() < 0.3 else []
    shapes = ((*batch, rows, inner), (*batch, inner, columns))
    return (
        "import numpy as np\n\nrandom = np.random.default_rng(0)\n"
        f"arguments = tuple(random.standard_normal(s).astype(np.float32) for s in {shapes})"
        "\n\n\ndef program(left, right):\n    return left @ right\n"
    )


def find_architectures(folder: Path, splits: Sequence[str] = ("test",)) -> set[str]:
    """Return the architectures of the layout graphs in these splits below a folder."""
    return {
        read_graph(file.path, file.collection).architecture
        for file in find_files(folder)
        if file.split in splits and file.collection.kind == "layout"
    }


def list_avoided(folder: Path | None, release: str) -> set[str]:
    """Return the architectures that must not be collected; see the module."""
    folders = [folder] if folder is not None and folder.is_dir() else []
    if not release:
        return set().union(*map(find_architectures, folders))
    if not folders:
        raise InputError(f"{folder}: --fresh needs a folder of graphs to leave out, with --avoid.")
    data = Path(solution.__file__).parent / "data"
    folders += [data / name for name in ("sample", "collected", "estimated")]
    return set().union(*(find_architectures(one, SPLITS) for one in folders))


class Sample:
    """The training sample in a folder; it refuses architectures that a collection must not have.

    The refused architectures are those of test graphs, and of the drafts tried for the collection.
    """

    def __init__(
        self,
        folder: Path,
        avoided: set[str],
        workers: Workers | None,
        say: Callable[[str], None],
        release: str = "",
    ):
        self._folder = folder
        self._release = release
        self.counts = FRESH_COUNTS if release else COUNTS
        self.layout_seconds = FRESH_SECONDS if release else LAYOUT_SECONDS
        self._taken = {name: set(avoided) for name in self.counts}
        self._workers = workers
        self._say = say

    def collect_next(self) -> bool:
        """Collect a program for a collection; return False if no program is left.

        Collections come in ascending order of the share of their programs that were tried. A
        collection that another worker is busy with is skipped.
        """
        for name in sorted(self.counts, key=self._share_tried):
            folder = self._notes(name)
            folder.mkdir(parents=True, exist_ok=True)
            with holding(folder) as is_mine:
                draft = self.find_next(name) if is_mine else None
                if draft is not None:
                    self.collect(draft)
                    return True
        return False

    def count(self, name: str) -> int:
        """Return how many graphs of the collection have been written."""
        return _count_graphs(self._read_notes(name))

    def find_next(self, name: str) -> Draft | None:
        """Return the first draft that was not tried; None if the collection has enough graphs."""
        tried = self._read_notes(name)
        self._taken[name] |= {note["architecture"] for note in tried.values()}
        if _count_graphs(tried) >= self.counts[name]:
            return None
        drafts = draw_drafts(name, self._release)
        return next((draft for draft in drafts if draft.name not in tried), None)

    def collect(self, draft: Draft) -> None:
        """Collect a program, or resume its collection, and write a note with the outcome."""
        note = self._notes(draft.collection) / f"{draft.name}.json"
        path = note.with_suffix(".py")
        path.write_text(draft.text, encoding="utf-8")
        architecture, npz = self._measure(draft, path)
        write_sealed({"architecture": architecture, "npz": npz}, note)

    def _share_tried(self, name: str) -> float:
        return len(list(self._notes(name).glob("*.json"))) / self.counts[name]

    def _notes(self, name: str) -> Path:
        return self._folder / "drafts" / name.replace(":", "-")

    def _read_notes(self, name: str) -> Notes:
        """Return the notes of the drafts that were tried, by the draft's name."""
        return {
            path.stem: read_record(path, "a draft of the sample")
            for path in self._notes(name).glob("*.json")
        }

    def _measure(self, draft: Draft, path: Path) -> tuple[str, str]:
        assert self._workers is not None
        try:
            (program,) = read_programs(path, self._workers.compiling)
            architecture = draft.name
            if draft.collection != "tile:xla":
                architecture = make_graph(program, draft.collection).architecture
            if architecture in self._taken[draft.collection]:
                return architecture, ""
            state = self._run(program, draft, architecture, self._workers)
        except InputError as error:
            self._say(f"{draft.name}: {error}")
            return draft.name, ""
        self._say(
            f"{draft.collection} {draft.name}: {state['configs']} configurations, spread "
            f"{state['spread']:.2f}, repeat tau {state['repeat_tau']:.2f} {state['left_out']}"
        )
        return architecture, str(state.get("npz", ""))

    def _run(
        self, program: Program, draft: Draft, architecture: str, workers: Workers
    ) -> dict[str, object]:
        is_tile = draft.collection == "tile:xla"
        space = make_collected_space(
            program,
            TILES if is_tile else LAYOUTS,
            varies_fastest=not draft.collection.endswith(":random"),
        )
        is_valid = sum(architecture.encode()) % VALID_SHARE == 0
        split = "valid" if is_valid or self._release else "train"
        destination = Destination(self._folder, draft.collection, split)
        seconds = TILE_SECONDS if is_tile else self.layout_seconds
        settings = Settings(configs=72 if is_tile else 60, seconds=seconds)
        return ProgramCollection(program, space, destination, settings, workers).run(lambda _: None)


def _count_graphs(notes: Notes) -> int:
    return sum(bool(note["npz"]) for note in notes.values())


def main() -> None:
    """Collect until all collections are complete or the hours are over."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--hours", type=float, default=4.0)
    parser.add_argument("--fresh", default="", metavar="RELEASE", help="collect its fresh set")
    parser.add_argument("--avoid", type=Path, help="leave out its test graphs' architectures")
    parser.add_argument("--workers", type=int, default=len(list_cores()) or 1, help="one per core")
    options = parser.parse_args()
    deadline = time.monotonic() + 3600 * options.hours
    make_folder(options.folder)
    avoided = list_avoided(options.avoid, options.fresh)
    say(f"{len(avoided)} known architectures are left out.")
    sample = Sample(options.folder, avoided, None, say, options.fresh)
    with locked(options.folder, "Wait for it, or choose another folder."):
        say(_describe_rest(sample, options.workers))
        with open_pool(options.workers, _do_nothing, context=SPAWN) as pool:
            working = [
                pool.submit(_work, options.folder, avoided, deadline, options.fresh)
                for _ in range(options.workers)
            ]
            for future in working:
                future.result()
        counts = sample.counts.items()
        say(", ".join(f"{name}: {sample.count(name)} of {count}" for name, count in counts))


def _describe_rest(sample: Sample, workers: int) -> str:
    left = {name: max(0, count - sample.count(name)) for name, count in sample.counts.items()}
    tiles = left.pop("tile:xla")
    seconds = (sum(left.values()) * sample.layout_seconds + tiles * TILE_SECONDS) / workers
    return (
        f"{sum(left.values())} programs and {tiles} products are left: about {spell(seconds)} "
        f"with {workers} workers."
    )


def _do_nothing() -> None:
    """Prepare a worker process: nothing is needed."""


def _work(folder: Path, avoided: set[str], deadline: float, release: str) -> None:
    """Collect programs on one core until the deadline, or until none is left for this worker."""
    limits = Settings().limits
    with lease_core() as core, Child(limits, core) as compiling, Child(limits, core) as timing:
        sample = Sample(folder, avoided, Workers(compiling, timing), say, release)
        while time.monotonic() < deadline and sample.collect_next():
            pass


if __name__ == "__main__":
    main()
