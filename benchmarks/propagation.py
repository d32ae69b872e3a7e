"""Compare predicted layouts and copies with the compiler's, on programs that are only compiled.

    python -m benchmarks.propagation FOLDER --programs 32 --configs 30

Each program of the training sample is compiled in random layouts, and XLA's dump after
its layout assignment is compared with the propagation through the graph: the share of tensors
with the right layout, and the rank correlation of copied bytes over a program's configurations.
Every compiled program leaves a file in the folder, so an interrupted benchmark resumes.
"""

import argparse
import os
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl
from scipy.stats import spearmanr

from benchmarks.collected_sample import draw_drafts
from solution.collecting.child import Optimise
from solution.collecting.program_space import LAYOUTS, make_collected_space
from solution.collecting.space import draw_new
from solution.domain.codebook import encode
from solution.domain.collection import collection
from solution.domain.graph import Graph
from solution.domain.vocabulary import OPCODES, SHAPE_DIMENSIONS
from solution.features.operations import num_bytes, tensor_ranks
from solution.features.preparation import repair_padding
from solution.features.propagation.canonical import unpack_layout
from solution.features.propagation.propagation import Numbered, Propagation
from solution.programs.child import Child, ChildDiedError, Limits, Refusal
from solution.programs.compiler import Flags
from solution.programs.hlo.messages import MESSAGES, instructions
from solution.programs.program import Program, read_programs
from solution.system.progress import track
from solution.system.terminal import output, say

METADATA, OP_NAME = 7, 2  # fields of HloInstructionProto and OpMetadata
# A line of --xla_dump_to: NAME = TYPE[SIZES]{LAYOUT} OPCODE(OPERANDS), ... op_name="TAG"
LINE = re.compile(
    r"^\s*(?:ROOT )?%?(?P<name>[\w.\-]+) = (?P<type>\w+)\[(?P<sizes>[\d,]*)\]"
    r"(?:\{(?P<layout>[\d,]*)[^}]*\})? (?P<opcode>[\w\-]+)\("
)
TAG = re.compile(r'op_name="[^"]*?node(\d+)end"')
BYTES = {"pred": 1, "s8": 1, "u8": 1, "s16": 2, "u16": 2, "f16": 2, "bf16": 2, "s64": 8, "u64": 8,
         "f64": 8, "c64": 8, "c128": 16}  # fmt: skip
# The passes after which the dump is read: for layouts, then for copies.
ASSIGNED, DECOMPOSED, FINAL = "layout-assignment", "reshape-decomposer", "final"


@dataclass(frozen=True)
class Written:
    """An instruction in the compiler's dump."""

    tag: int  # its original node; -1: unknown
    opcode: str
    sizes: tuple[int, ...]
    layout: tuple[int, ...]  # minor to major
    bytes: int


def tag_nodes(module: bytes, program: Program) -> bytes:
    """Return the module with the node's number in every instruction's metadata."""
    message = MESSAGES["Module"].FromString(module)
    nodes = {
        instruction.id: place for place, instruction in enumerate(instructions(program.module))
    }
    for instruction in instructions(message):
        if instruction.id in nodes:
            name = f"node{nodes[instruction.id]}end".encode()
            inner = bytes([OP_NAME << 3 | 2, len(name)]) + name
            instruction.MergeFromString(bytes([METADATA << 3 | 2, len(inner)]) + inner)
    return bytes(message.SerializeToString())


def read_written(path: Path) -> Iterator[Written]:
    """Return the array-shaped instructions of a module's dump."""
    for line in path.read_text(encoding="utf-8").splitlines():
        found = LINE.match(line)
        if not found:
            continue
        sizes = tuple(int(size) for size in found["sizes"].split(",") if size)
        layout = tuple(int(axis) for axis in (found["layout"] or "").split(",") if axis)
        tag = TAG.search(line)
        size = BYTES.get(found["type"], 4) * int(np.prod(sizes, dtype=np.int64))
        yield Written(int(tag[1]) if tag else -1, found["opcode"], sizes, layout, size)


def find_dump(folder: Path, mark: str) -> Path | None:
    """Return the last dump after the pass."""
    found = sorted(path for path in folder.glob("*.txt") if f"after_{mark}" in path.name)
    return found[-1] if found else None


def compile_program(program: Program, folder: Path, count: int, child: Child, dump: Path) -> None:
    """Store the program, and the compiler's dumps for random layouts."""
    if (folder / "configs.npy").exists():
        return
    folder.mkdir(parents=True, exist_ok=True)
    space = make_collected_space(program, LAYOUTS)
    drawn = draw_new(space, np.random.default_rng(0), count, set())
    kept: list[np.ndarray] = []
    with track(drawn, f"Compiling {program.name}") as tracked:
        for config in tracked:
            texts = dump_one(child, program, *space.prepare(config), dump)
            for mark, text in texts.items():
                (folder / f"{len(kept)}.{mark}").write_bytes(text)
            kept += [space.layouts(config[None])[0]] if texts else []
    (folder / "module.pb").write_bytes(program.module.SerializeToString())
    np.save(folder / "configs.npy", np.array(kept))


def dump_one(
    child: Child, program: Program, module: bytes, flags: Flags, dump: Path
) -> dict[str, bytes]:
    """Return the compiler's dumps for one configuration, by pass; empty if it is refused."""
    shutil.rmtree(dump, ignore_errors=True)
    try:
        reply = child.ask(Optimise(tag_nodes(module, program), flags))
    except ChildDiedError:
        return {}
    found = {mark: find_dump(dump, mark) for mark in (ASSIGNED, DECOMPOSED)}
    texts = {mark: path.read_bytes() for mark, path in found.items() if path}
    if isinstance(reply, Refusal) or len(texts) < len(found):
        return {}
    return {**texts, FINAL: reply}


def read_program(folder: Path) -> Graph:
    """Return the graph of a compiled program, with its configurations."""
    module = MESSAGES["Module"].FromString((folder / "module.pb").read_bytes())
    program = Program(folder.name, module, [])
    nodes, values = program.nodes, np.load(folder / "configs.npy")
    graph = Graph(
        folder.name, collection("layout:xla:random"), nodes.features, nodes.opcodes, nodes.edges,
        program.configurable, encode(values.reshape(*values.shape[:2], -1)), None,
        summed=nodes.summed,
    )  # fmt: skip
    return repair_padding(graph)


@dataclass(frozen=True)
class Agreement:
    """How well propagated layouts and copies agree with the compiler's."""

    program: str
    tensors: float  # mean number per configuration that could be matched
    right: float  # share of them whose layout is right
    default: float  # share that have the program's default layout
    copies: float  # rank correlation of copied bytes
    ratio: float  # propagated bytes over the compiler's


def compare_program(folder: Path) -> Agreement:
    """Compare a program's propagation with the compiler's dumps."""
    graph = read_program(folder)
    propagation = Propagation(graph)
    rows = graph.layouts.rows
    assigned = propagation.number()
    own = propagation.instructions
    predicted = count_copied(propagation, assigned)[rows]
    place = {int(node): k for k, node in reversed(list(enumerate(own.node))) if own.asked[k, 0] < 0}
    tensors, right, default, copied = [], [], [], []
    for number, row in enumerate(rows):
        written = list(read_written(folder / f"{number}.{ASSIGNED}"))
        marks = [
            (agrees(one.layout,
                    unpack_layout(assigned.results[row, place[one.tag]], len(one.sizes)),
                    one.sizes),
             agrees(one.layout, tuple(range(len(one.sizes)))[::-1], one.sizes))
            for one in find_tensors(written, graph) if one.tag in place
        ]  # fmt: skip
        tensors.append(len(marks))
        right.append(np.mean([mark for mark, _ in marks]))
        default.append(np.mean([mark for _, mark in marks]))
        decomposed = read_written(folder / f"{number}.{DECOMPOSED}")
        copied.append(sum(one.bytes for one in decomposed if one.opcode == "copy"))
    return Agreement(
        folder.name, float(np.mean(tensors)), float(np.mean(right)), float(np.mean(default)),
        float(spearmanr(predicted, copied).statistic), float(predicted.sum() / max(1, sum(copied))),
    )  # fmt: skip


def count_copied(propagation: Propagation, assigned: Numbered) -> np.ndarray:
    """Return the bytes (distinct configs,) that the propagation's copies move."""
    own, size = propagation.instructions, num_bytes(propagation.graph)
    copied = np.concatenate([own.node, own.node[own.read]])
    return (assigned.copies > 0) @ np.where(copied >= 0, size[copied], 0)


def agrees(one: tuple[int, ...], other: tuple[int, ...], sizes: tuple[int, ...]) -> bool:
    """Return whether two layouts are the same in memory."""
    return [k for k in one if sizes[k] > 1] == [k for k in other if sizes[k] > 1]


def find_tensors(written: list[Written], graph: Graph) -> list[Written]:
    """Return one unchanged instruction for each node of two or more dimensions that can be matched.

    It has the node's opcode and shape; passes may have replaced others.
    """
    found: dict[int, Written] = {}
    shapes = graph.node_features[:, SHAPE_DIMENSIONS].astype(int)
    graph_ranks = tensor_ranks(graph)
    for one in written:
        if one.tag < 0 or sum(size > 1 for size in one.sizes) < 2:
            continue
        shape = tuple(shapes[one.tag, : graph_ranks[one.tag]].tolist())
        name = OPCODES[int(graph.node_opcodes[one.tag])]
        if shape == one.sizes and one.opcode == name:
            found.setdefault(one.tag, one)
    return list(found.values())


def main() -> None:
    """Compile what is missing, then compare all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--programs", type=int, default=32)
    parser.add_argument("--configs", type=int, default=30)
    parser.add_argument("--compare", action="store_true", help="Compile nothing.")
    given = parser.parse_args()
    if not given.compare:
        compile_all(given.folder, given.programs, given.configs)
    found = [compare_program(path.parent) for path in sorted(given.folder.glob("*/configs.npy"))]
    with pl.Config(tbl_rows=-1, tbl_cols=-1, float_precision=3):
        output.print(pl.DataFrame(found))
    for name in ("right", "default", "copies", "ratio"):
        values = np.array([getattr(one, name) for one in found])
        low, high = bootstrap_median(values)
        say(f"{name}: median {np.median(values):.3f}, 95% interval {low:.3f} to {high:.3f}")


def bootstrap_median(values: np.ndarray) -> tuple[float, float]:
    """Return the 95% bootstrap interval of the median over programs."""
    drawn = np.random.default_rng(0).choice(values, (10_000, len(values)))
    low, high = np.quantile(np.median(drawn, axis=1), [0.025, 0.975])
    return float(low), float(high)


def dump_passes(dump: Path) -> str:
    """Return XLA's flags: only passes matter, so machine code is generated as fast as possible."""
    return (
        f"--xla_dump_to={dump} --xla_dump_hlo_as_text --xla_backend_optimization_level=0 "
        f"--xla_dump_hlo_pass_re={ASSIGNED}|{DECOMPOSED}"
    )


def read_drafts(collection: str, count: int, folder: Path, child: Child) -> list[Program]:
    """Return the first programs of the training sample."""
    programs = []
    for draft, _ in zip(draw_drafts(collection), range(count), strict=False):
        path = folder / f"{draft.name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(draft.text, encoding="utf-8")
        programs += read_programs(path, child)
    return programs


def compile_all(folder: Path, programs: int, configs: int) -> None:
    dump = folder / "dump"
    os.environ["XLA_FLAGS"] = dump_passes(dump)
    names = ("layout:xla:random", "layout:nlp:random")
    with Child(Limits(seconds=180)) as child:
        drafts = [
            read_drafts(
                name, (programs + 1) // 2, folder / "drafts" / name.replace(":", "-"), child
            )
            for name in names
        ]
        for pair in zip(*drafts, strict=True):
            for name, program in zip(names, pair, strict=True):
                own = folder / f"{name.split(':')[1]}_{program.name}"
                compile_program(program, own, configs, child, dump)


if __name__ == "__main__":
    main()
