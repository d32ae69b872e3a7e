"""Compare layouts propagated for a TPU with its compiler's, on programs that are only compiled.

    python -m benchmarks.tpu_propagation FOLDER                   # compile what is missing; score
    python -m benchmarks.tpu_propagation FOLDER --graphs ../shared/data/tpu/npz/layout
    python -m benchmarks.tpu_propagation FOLDER --only-score      # compile nothing

libtpu runs its passes over HLO on each program in random layouts. Every instruction's op_name is
the number of its node, so the layouts of the compiled program can be assigned to nodes. The
compiler's answers stay in the folder: an interrupted run resumes, and changed rules of layout
assignment are scored without compiling again. Programs are those of solution.collecting.families,
drawn with seeds that no other benchmark uses. `--graphs` adds graphs of TpuGraphs, which are lifted
to programs and keep their layouts.

With the extra `tpu`.
"""

import json
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import polars as pl
import typer
from scipy.stats import spearmanr

from benchmarks.propagation import bootstrap_median
from solution.analysis.graph_lookup import read_file
from solution.collecting.families import FAMILIES, draw_settings, write_file
from solution.collecting.lifting.draft import NotLiftedError
from solution.collecting.lifting.lift import lift
from solution.collecting.program_space import LAYOUTS
from solution.collecting.space import draw_new
from solution.collecting.target import parse_target
from solution.collecting.tpu.asking import MADE_OF, NODE, RequestWriter, find_fixed_boundary
from solution.collecting.tpu.devices import check_module
from solution.collecting.tpu.forking import Compilation, Request, serve_tpu
from solution.collecting.tpu.reading import Reader, count_bytes, open_tuple
from solution.collecting.tpu.space import make_tpu_space
from solution.domain.codebook import encode
from solution.domain.collection import collection
from solution.domain.graph import Graph
from solution.domain.vocabulary import LAYOUT_UNSET, OPCODES, SHAPE_DIMENSIONS
from solution.features.operations import element_bytes, tensor_ranks
from solution.features.preparation import repair_padding
from solution.features.propagation.backend import BACKENDS
from solution.features.propagation.canonical import find_turned, unpack_layout
from solution.features.propagation.inlining import inline
from solution.features.propagation.instructions import GIVES, RESHAPES
from solution.features.propagation.orders import BLOCKS
from solution.features.propagation.propagation import Numbered, Propagation
from solution.features.propagation.register_tiles import count_padded_bytes
from solution.features.propagation.states import COPY, FIRST, MADE, find_points, list_dimensions
from solution.programs.child import Child, ChildDiedError, Limits
from solution.programs.hlo.messages import MESSAGES, instructions
from solution.programs.program import Program, read_programs
from solution.system.files import make_folder, replace_file, write_json
from solution.system.progress import track
from solution.system.scratch import ScratchFolder
from solution.system.terminal import output, say

FIRST_SEED = 5000  # of drawn programs; other benchmarks and tests draw with smaller seeds
ANSWER = "answer.json"
REAL = "TpuGraphs"
MOVES = ("copy", "copy-start", "transpose", "reshape")  # compiled instructions that move a tensor
Order = tuple[int, ...]  # dimensions, minor to major


@dataclass(frozen=True)
class Case:
    """A program, and the layouts in which it is compiled."""

    family: str
    name: str
    module: Any  # the message Module
    configurable: np.ndarray  # (configurable,) node numbers
    layouts: np.ndarray  # (configs, configurable, 3, 6) int8, minor to major; the first: all -1


def draw_cases(folder: Path, programs: int, configs: int) -> Iterator[Case]:
    """Yield random programs, one of each family in turn, each with random layouts."""
    make_folder(folder)
    names = [name for families in FAMILIES.values() for name in families]
    with Child(Limits(seconds=180)) as child:
        for seed in range(FIRST_SEED, FIRST_SEED + programs):
            for family in names:
                path = folder / f"{family}_{seed}.py"
                generator = np.random.default_rng([seed, *family.encode()])
                with replace_file(path) as temporary:
                    text = write_file(draw_settings((family,), generator))
                    temporary.write_text(text, encoding="utf-8")
                (program,) = read_programs(path, child, platform="tpu")
                space = make_tpu_space(program, LAYOUTS)
                drawn = draw_new(space, np.random.default_rng(seed), configs, set())
                layouts = space.layouts(np.stack([space.default, *drawn]))
                yield Case(family, program.name, program.module, program.configurable, layouts)


def lift_cases(folder: Path, configs: int) -> Iterator[Case]:
    """Yield the layout graphs below a folder as programs, with random ones of their layouts.

    Graphs that cannot be lifted are named and left out.
    """
    for path in sorted(folder.rglob("*.npz"), key=lambda path: path.stat().st_size):
        graph = read_file(path)
        try:
            module = lift(graph).module
        except NotLiftedError as error:
            say(f"{graph.name}: {error}")
            continue
        book = graph.layouts
        count = min(configs, len(book.codes))
        rows = np.sort(np.random.default_rng(0).choice(len(book.codes), count, replace=False))
        chosen = book.layouts.reshape(-1, 3, 6)[book.pairs(rows)]
        layouts = np.concatenate([np.full_like(chosen[:1], LAYOUT_UNSET), chosen])
        name = f"{graph.collection.name}:{graph.name}".replace(":", "-")
        yield Case(REAL, name, module, graph.configurable, layouts)


def compile_cases(cases: Iterator[Case], folder: Path, target: str, seconds: float) -> None:
    """Compile each case that has no answer yet, and write the compiler's answers."""
    scratch = ScratchFolder()
    work: Any = partial(serve_tpu, target=parse_target(target), folder=scratch.path)
    with Child(Limits(seconds, 8192), work=work) as child:
        for case in cases:
            compile_case(case, folder / case.family / case.name, child, seconds)
    scratch.remove()


def compile_case(case: Case, folder: Path, child: Child, seconds: float) -> None:
    """Compile a program in its layouts, and write what the compiler answered into the folder.

    The folder gets module.pb, configs.npy (layouts of the configurations that compiled) and
    answer.json. A program whose first configuration is refused gets no configurations.
    """
    if (folder / ANSWER).exists():
        return
    named, boundary = name_nodes(case.module), find_fixed_boundary(case.module)
    kept: list[int] = []
    programs: list[str] = []
    compiled: dict[str, Any] = {}
    refused: dict[str, str] = {}
    with track(case.layouts, f"Compiling {case.name}") as tracked:
        for number, layouts in enumerate(tracked):
            module = RequestWriter(named, case.configurable).write(layouts)
            reply = compile_one(child, module, boundary, seconds)
            if isinstance(reply, str):
                refused[str(number)] = reply
                if not kept:
                    say(f"{case.name}: {reply}")
                    break
                continue
            reader = Reader(reply.passed)
            kept.append(number)
            programs.append(reader.names.program)
            if reader.names.program not in compiled:
                compiled[reader.names.program] = read_answer(reader)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "module.pb").write_bytes(case.module.SerializeToString())
    np.save(folder / "configs.npy", case.layouts[kept])
    answer = {"configurable": case.configurable.tolist(), "programs": programs}
    answer |= {"compiled": compiled, "refused": refused}
    write_json(answer, folder / ANSWER)


def name_nodes(module: Any) -> Any:
    """Return a copy of a message Module in which every op_name is the number of the node."""
    named = MESSAGES["Module"].FromString(module.SerializeToString())
    for number, instruction in enumerate(instructions(named)):
        instruction.metadata.op_name = f"{NODE}{number}"
    return named


def compile_one(child: Child, module: bytes, boundary: Any, seconds: float) -> Compilation | str:
    """Run the passes over HLO on a serialized module; return why not if the compiler refuses."""
    checked = check_module(module)
    if isinstance(checked, str):
        return checked
    request = Request(
        module,
        devices=checked.devices,
        layouts=boundary,
        is_full=False,
        limits=Limits(seconds, 8192),
    )
    try:
        reply = child.ask(request, seconds + 30)
    except ChildDiedError as error:
        return str(error)
    if not isinstance(reply, Compilation):
        return str(reply.reason)
    return reply.refused or reply


def read_answer(reader: Reader) -> dict[str, list[Any]]:
    """Return the tensors of a compiled program that stem from a node, and what it moves.

    Tensors are [node, opcode, sizes, layout]; moves are [opcode, whether inside a fusion, bytes
    with padding]. A copy that keeps the layout, into another memory space, is no move.
    """
    made = reader.read({})
    fused = {tensor.name: tensor.is_fused for tensor in made.tensors}
    tensors = [
        [int(number), one.opcode, list(one.dimensions), list(one.minor_to_major)]
        for one in made.tensors
        if one.source.startswith(NODE)
        and (number := one.source.removeprefix(NODE).partition("/")[0]).isdigit()
    ]
    moves = []
    for computation in reader.names.computations.values():
        for instruction in computation.instructions:
            if instruction.opcode in MOVES and changes_layout(reader, instruction):
                (target,) = open_tuple(instruction.shape)[:1]
                is_fused = fused.get(instruction.name, False)
                moves.append([instruction.opcode, is_fused, count_bytes(target)])
    return {"tensors": tensors, "moves": moves}


def changes_layout(reader: Reader, instruction: Any) -> bool:
    """Return False for a copy that keeps the layout, such as one into another memory space."""
    if not instruction.opcode.startswith("copy"):
        return True
    (operand,) = reader.names.operands(instruction)[:1]
    before, after = (open_tuple(one.shape)[0].layout for one in (operand, instruction))
    return list(before.minor_to_major) != list(after.minor_to_major)


def drop_ones(layout: Any, sizes: Any) -> Order:
    """Return a layout (dimensions minor to major) without the dimensions of size 1."""
    return tuple(int(axis) for axis in layout if sizes[axis] > 1)


@dataclass(frozen=True)
class Agreement:
    """How well propagated layouts and copies agree with the compiler's, for one program."""

    family: str
    program: str
    configs: int
    tensors: int  # number in all configurations that could be compared
    right: float  # share whose layout is that of a compiled instruction of the node
    all_right: float  # share whose layout is that of every compiled instruction of the node
    row_major: float  # share that would be right if all layouts were row-major
    copies: float  # rank correlation of copied bytes; NaN if the compiler's do not vary
    moves: float  # the same, copies inside fusions included
    pairs: float  # share of pairs of configurations that are rightly said to be equal or different
    equal: float  # of pairs that compile to the same program: share said to be equal
    different: float  # of the other pairs: share said to be different


def compare_program(folder: Path, backend: str) -> Agreement | None:
    """Compare the propagation of a compiled program with its answers; None if it was refused."""
    answer = json.loads((folder / ANSWER).read_text(encoding="utf-8"))
    if len(answer["programs"]) < 2:
        return None
    graph = read_compiled(folder, answer)
    propagation = Propagation(graph, BACKENDS[backend])
    numbered = propagation.number()
    rows = graph.layouts.rows
    right = compare_layouts(propagation, numbered, answer)
    copied, with_fused = (sum_copies(propagation, numbered, has)[rows] for has in (False, True))
    compiled = [answer["compiled"][program]["moves"] for program in answer["programs"]]
    alone = np.array([sum(m[2] for m in moves if not m[1]) for moves in compiled])
    moved = np.array([sum(m[2] for m in moves) for moves in compiled])
    return Agreement(
        folder.parent.name, folder.name, len(rows), *right,
        correlate(copied, alone), correlate(with_fused, moved),
        *compare_pairs(find_programs(propagation, numbered)[rows], answer["programs"]),
    )  # fmt: skip


def read_compiled(folder: Path, answer: dict[str, Any]) -> Graph:
    """Return the graph of a compiled program, with the configurations that compiled."""
    module = MESSAGES["Module"].FromString((folder / "module.pb").read_bytes())
    program = Program(folder.name, module, [])
    nodes, layouts = program.nodes, np.load(folder / "configs.npy")
    graph = Graph(
        folder.name, collection("layout:xla:random"), nodes.features, nodes.opcodes, nodes.edges,
        np.array(answer.get("configurable", program.configurable)),
        encode(layouts.reshape(*layouts.shape[:2], -1)), None,
        # published graphs do not state what their dots contract
        summed=None if folder.parent.name == REAL else nodes.summed,
    )  # fmt: skip
    return repair_padding(graph)


def compare_layouts(
    propagation: Propagation, numbered: Numbered, answer: dict[str, Any]
) -> tuple[int, float, float, float]:
    """Return how many tensors were compared, and the shares of Agreement.right to row_major.

    Compared is each node with at least two dimensions larger than 1 of which the compiled program
    has an instruction with its shape and opcode. A dot that only a transpose reads is left out: the
    compiled instruction of its number computes the transpose, and the transpose is compared.
    """
    graph, ops = propagation.graph, propagation.instructions
    inlined = inline(graph)
    turned = find_turned(inlined, ops.opcodes, ops.rank, ops.dimensions)
    left_out = {int(inlined.node[dot]) for dot in turned}
    shapes = graph.node_features[:, SHAPE_DIMENSIONS].astype(int)
    ranks = tensor_ranks(graph)
    place = {int(node): k for k, node in reversed(list(enumerate(ops.node))) if ops.is_programs[k]}
    marks: list[tuple[bool, bool, bool]] = []
    for row, program in zip(graph.layouts.rows, answer["programs"], strict=True):
        seen = defaultdict(set)
        for node, opcode, sizes, layout in answer["compiled"][program]["tensors"]:
            name = OPCODES[int(graph.node_opcodes[node])]
            shape = tuple(shapes[node, : ranks[node]].tolist())
            comparable = name == opcode or opcode in SAME.get(name, ())
            if comparable and tuple(sizes) == shape and sum(size > 1 for size in shape) > 1:
                seen[node].add(drop_ones(layout, shape))
        for node, layouts in seen.items():
            if node in place and node not in left_out:
                shape, rank = shapes[node], int(ranks[node])
                number = int(numbered.results[row, place[node]])
                found = drop_ones(unpack_layout(number, rank), shape) if number >= 0 else None
                plain = drop_ones(range(rank)[::-1], shape)
                marks.append((found in layouts, layouts == {found}, plain in layouts))
    shares = np.mean(marks, axis=0) if marks else np.full(3, np.nan)
    return len(marks), float(shares[0]), float(shares[1]), float(shares[2])


# Opcodes that a node may have in the compiled program beside its opcode. A reshape's copy is
# another instruction with the same number: only the bitcast is the reshape itself.
SAME = {"dot": MADE_OF["dot"], "reshape": ("bitcast",)}


def sum_copies(propagation: Propagation, numbered: Numbered, has_fused: bool) -> np.ndarray:
    """Return the padded bytes (distinct configs,) that the propagation's copies write.

    A copy that keeps the minor dimension is fused with what reads it (147 of 151 of 19 other
    programs), unless that is a reshape. `has_fused`: count these copies as well.
    """
    ops, layouts = propagation.instructions, numbered.layouts
    points = find_points(ops, numbered.point)
    written = np.where(points.is_use, layouts[:, FIRST], layouts[:, MADE])
    width = np.append(element_bytes(propagation.graph), 1.0)[ops.node[points.made]]
    size = count_padded_bytes(written, ops.sizes[points.made], ops.rank[points.made], width)
    kind, reads = layouts[:, COPY], ops.kind[points.instruction]
    is_fused = points.is_use & (kind == BLOCKS) & ~np.isin(reads, (RESHAPES, GIVES))
    is_counted = (kind > 0) & (has_fused | ~is_fused)
    return np.asarray((size * is_counted)[numbered.numbers].sum(axis=1))


def find_programs(propagation: Propagation, numbered: Numbered) -> np.ndarray:
    """Return a number (distinct configs,); equal where all layouts and copies are equal.

    Dimensions of size 1 do not count.
    """
    ops = propagation.instructions
    points = find_points(ops, numbered.point)
    columns = []
    for layouts, made in zip(numbered.layouts.T, (points.made, *points.read.T), strict=False):
        sizes, dimensions = ops.sizes[made], list_dimensions(layouts, ops.rank[made])
        columns.append([drop_ones(d[d >= 0], s) for d, s in zip(dimensions, sizes, strict=True)])
    known: dict[Any, int] = {}
    keys = zip(numbered.point.tolist(), *columns, numbered.layouts[:, COPY].tolist(), strict=True)
    alike = np.array([known.setdefault(key, len(known)) for key in keys])
    _, inverse = np.unique(alike[numbered.numbers], axis=0, return_inverse=True)
    return np.asarray(inverse).reshape(-1)


def compare_pairs(found: np.ndarray, programs: list[str]) -> tuple[float, float, float]:
    """Return the shares of Agreement.pairs, equal and different."""
    names = np.array(programs)
    first, second = np.triu_indices(len(names), 1)
    said, true = found[first] == found[second], names[first] == names[second]
    right = said == true
    return (
        float(right.mean()),
        float(right[true].mean()) if true.any() else np.nan,
        float(right[~true].mean()) if (~true).any() else np.nan,
    )


def correlate(predicted: np.ndarray, copied: np.ndarray) -> float:
    """Return Spearman's correlation; NaN if the compiler's bytes do not vary, 0 if only ours."""
    if np.ptp(copied) == 0:
        return np.nan
    return 0.0 if np.ptp(predicted) == 0 else float(spearmanr(predicted, copied).statistic)


def score(folder: Path, backend: str, *, is_detailed: bool) -> None:
    """Print medians over the programs of each family, and over all drawn programs."""
    paths = sorted(path.parent for path in folder.glob(f"*/*/{ANSWER}"))
    with track(paths, "Comparing") as tracked:
        compared = [one for path in tracked if (one := compare_program(path, backend))]
    names = [name for name in Agreement.__annotations__ if name not in ("family", "program")]
    table = pl.DataFrame(compared).with_columns(pl.col(pl.Float64).fill_nan(None))
    medians = [pl.len().alias("programs"), *(pl.col(name).median() for name in names)]
    drawn = table.filter(pl.col("family") != REAL)
    with pl.Config(tbl_rows=-1, tbl_cols=-1, tbl_width_chars=160, float_precision=3):
        if is_detailed:
            output.print(table)
        output.print(table.group_by("family").agg(medians).sort("family"))
        output.print(drawn.select(medians))
    for name in ("right", "all_right", "row_major", "copies", "moves"):
        values = drawn[name].drop_nulls().to_numpy()
        if len(values):
            low, high = bootstrap_median(values)
            say(
                f"{name}: median of {len(values)} drawn programs {np.median(values):.3f}, 95% "
                f"interval {low:.3f} to {high:.3f}; mean {values.mean():.3f}"
            )
    say(f"pairs: mean of {len(drawn)} drawn programs {drawn['pairs'].mean():.3f}")


def main(
    folder: Path,
    programs: Annotated[int, typer.Option(help="Of each family.")] = 10,
    configs: Annotated[int, typer.Option(help="Of each program, beside the default.")] = 20,
    graphs: Annotated[Path | None, typer.Option(help="A folder with graphs to be lifted.")] = None,
    target: str = "tpu:v3",
    seconds: Annotated[float, typer.Option(help="Of one compilation.")] = 60.0,
    backend: Annotated[str, typer.Option(help="Rules that propagate layouts.")] = "tpu",
    only_score: Annotated[bool, typer.Option(help="Compile nothing.")] = False,
    details: Annotated[bool, typer.Option(help="Print a row per program.")] = False,
) -> None:
    """Compile what has no answer yet, then compare all answers with the propagation."""
    answers = folder / target.replace(":", "-")
    if not only_score:
        compile_cases(draw_cases(folder / "programs", programs, configs), answers, target, seconds)
        if graphs is not None:
            compile_cases(lift_cases(graphs, configs), answers, target, seconds)
    score(answers, backend, is_detailed=details)


if __name__ == "__main__":
    typer.run(main)
