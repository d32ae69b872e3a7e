"""Check that graphs that are written back as programs have the same features, and compile.

    python -m benchmarks.lifting features FOLDER ...        all layout graphs below
    python -m benchmarks.lifting compile FOLDER ...         for a TPU v3, default and random layouts
    python -m benchmarks.lifting compile --full --count 15 --largest 300 FOLDER ...     in full
    python -m benchmarks.lifting originals --programs 4     programs and their lifted graphs
    python -m benchmarks.lifting records FILE ...           tuning records and their lifted graphs

Files whose publisher lost columns are excepted by name (LOST).
"""

import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from benchmarks.fewest_compilations import PatientEstimator
from benchmarks.operands import draw_programs
from solution.collecting.child import Optimise
from solution.collecting.lifting.draft import NotLiftedError
from solution.collecting.lifting.lift import lift
from solution.collecting.target import parse_target
from solution.collecting.tpu.asking import RequestWriter, find_asked_ranks
from solution.collecting.tpu.devices import find_entry_layouts
from solution.collecting.tpu.estimator import Answer, Estimator
from solution.data.folders import find_files
from solution.data.npz import read_graph
from solution.domain.graph import Graph
from solution.domain.vocabulary import LAYOUT_UNSET, MAX_RANK
from solution.programs.child import Child, Limits
from solution.programs.compiler import Flags
from solution.programs.hlo.messages import MESSAGES, instructions
from solution.programs.hlo.records import read_module_file
from solution.programs.portable import make_portable
from solution.programs.program import make_graph
from solution.system.progress import track
from solution.system.terminal import output, say
from tests.made.lifted import find_lost

# No numbers multiplied: 1 in every node; the file's publisher dropped the column as constant.
LOST = {"alexnet_train_batch_32": {84, 112, 116, 120, 124, 128, 132}}
NO_KERNELS = {"parameter", "constant", "tuple", "get-tuple-element", "bitcast", "while"}
app = typer.Typer()


def read_distinct(folders: list[Path]) -> list[Graph]:
    """Return the layout graphs below the folders, each program once."""
    found: dict[tuple[bytes, bytes, bytes], Graph] = {}
    files = [file for folder in folders for file in find_files(folder)]
    with track([file for file in files if file.collection.kind == "layout"], "Reading") as tracked:
        for file in tracked:
            graph = read_graph(file.path, file.collection)
            arrays = graph.node_features, graph.node_opcodes, graph.edges
            found.setdefault((arrays[0].tobytes(), arrays[1].tobytes(), arrays[2].tobytes()), graph)
    return list(found.values())


@app.command()
def features(folders: list[Path]) -> None:
    """Lift all layout graphs, and print those whose features differ."""
    graphs, same = read_distinct(folders), 0
    guesses: Counter[str] = Counter()
    longest = 0.0
    for graph in graphs:
        begin = time.process_time()
        try:
            lifted = lift(graph)
        except NotLiftedError as error:
            say(str(error))
            continue
        longest = max(longest, time.process_time() - begin)
        guesses.update({kind: len(nodes) for kind, nodes in lifted.guesses.items()})
        lost = set(find_lost(graph, lifted)) - LOST.get(graph.name, set())
        same += not lost
        if lost:
            say(f"{graph.name}: columns {sorted(lost)}")
    say(f"{same} of {len(graphs)} programs have their features back; {longest:.2f} s at most.")
    output.print(dict(guesses.most_common()))


@app.command("compile")
def compile_all(
    folders: list[Path],
    count: Annotated[int, typer.Option(help="Programs that are drawn of each folder.")] = 60,
    draws: Annotated[int, typer.Option(help="Random configurations of each.")] = 1,
    largest: Annotated[int, typer.Option(help="Nodes of a program at most.")] = 1_000_000,
    *,
    is_full: Annotated[bool, typer.Option("--full", help="In full, not only the passes.")] = False,
) -> None:
    """Compile a random sample of each folder's programs for a TPU v3, by the passes over HLO."""
    generator = np.random.default_rng(0)
    tried, compiled = Counter[tuple[str, str]](), Counter[tuple[str, str]]()
    with PatientEstimator(parse_target("tpu:v3"), is_always_full=is_full) as estimator:
        for folder in folders:
            graphs = [graph for graph in read_distinct([folder]) if graph.num_nodes <= largest]
            chosen = generator.choice(len(graphs), min(count, len(graphs)), replace=False)
            for graph in (graphs[number] for number in chosen):
                module = lift(graph).module
                writer = RequestWriter(module, graph.configurable)
                unset = np.full((len(graph.configurable), 3, MAX_RANK), LAYOUT_UNSET)
                asked = {"as they are": [unset]}
                asked["random"] = [draw_layouts(module, graph, generator) for _ in range(draws)]
                for kind, layouts in asked.items():
                    modules = [writer.write(one) for one in layouts]
                    answers = (
                        [estimator.estimate(one) for one in modules]
                        if is_full
                        else estimator.estimate_all(modules, 0)
                    )
                    refused = [one.refused for one in answers if is_refused(one.refused)]
                    tried[str(folder), kind] += len(answers)
                    compiled[str(folder), kind] += len(answers) - len(refused)
                    for reason in refused:
                        say(f"{graph.name}, {kind}: {reason[:200]}")
    way = "in full" if is_full else "the passes over HLO"
    for (name, kind), number in tried.items():
        say(f"{name}, {kind}: {compiled[name, kind]} of {number}, {way}")


def is_refused(reason: str) -> bool:
    """True if the compiler refused; kernels that are not known are no refusal."""
    return bool(reason) and not reason.endswith("are not known")


def draw_layouts(module: Any, graph: Graph, generator: np.random.Generator) -> np.ndarray:
    """Draw layouts (configurable, 3, 6) for the requested tensors, as TpuGraphs does.

    The two most minor dimensions of a convolution or dot are one of the first and one of the last,
    in any order; of a reshape all dimensions are permuted.
    """
    ranks = find_asked_ranks(module, graph.configurable)
    nodes = list(instructions(module))
    layouts = np.full((*ranks.shape, MAX_RANK), LAYOUT_UNSET)
    for site, tensor in np.argwhere(ranks):
        rank = int(ranks[site, tensor])
        if nodes[graph.configurable[site]].opcode == "reshape":
            layouts[site, tensor, :rank] = generator.permutation(rank)
        else:
            layouts[site, tensor, :2] = generator.permutation([0, rank - 1])
    return layouts


@app.command()
def originals(
    programs: Annotated[int, typer.Option(help="Of each family, and as many steps.")] = 2,
) -> None:
    """Compile programs and their lifted graphs for the CPU, and compare numbers of kernels."""
    totals: Counter[str] = Counter()
    with Child(Limits(seconds=300)) as child:
        for family, is_step, number, program in draw_programs(programs, 2, child):
            graph = replace(make_graph(program, "layout:xla:random"), summed=None)
            lifted = lift(graph).module
            shapes = [
                [(i.opcode, *i.shape.dimensions) for i in instructions(module)]
                for module in (program.module, lifted)
            ]
            counts = [count_kernels(child, module) for module in (program.module, lifted)]
            kernels = [count.total() for count in counts]
            is_near = abs(kernels[0] - kernels[1]) <= 0.05 * kernels[0]
            is_alike = abs(counts[0]["copy"] - counts[1]["copy"]) <= 0.05 * counts[0]["copy"]
            totals.update(
                {
                    "programs": 1,
                    "same shapes": shapes[0] == shapes[1],
                    "kernels within 5%": is_near,
                    "copies within 5%": is_alike,
                    "kernels of originals": kernels[0],
                    "kernels of lifted": kernels[1],
                    "copies of originals": counts[0]["copy"],
                    "copies of lifted": counts[1]["copy"],
                }
            )
            if not (is_near and is_alike):
                say(f"{family} {number}, step {is_step}: {counts[0]} and {counts[1]}")
    output.print(dict(totals))


def count_kernels(child: Child, module: Any) -> Counter[str]:
    """Return how many kernels of each opcode the optimised module has, fused ones not counted."""
    data = child.ask(Optimise(make_portable(module).SerializeToString(), Flags()))
    optimised = MESSAGES["Module"].FromString(data)
    fused = {
        number
        for instruction in instructions(optimised)
        if instruction.opcode != "while" and instruction.opcode != "call"
        for number in instruction.called_computation_ids
    }
    return Counter(
        instruction.opcode
        for computation in optimised.computations
        if computation.id not in fused
        for instruction in computation.instructions
        if instruction.opcode not in NO_KERNELS
    )


@app.command()
def records(files: list[Path]) -> None:
    """Compile the modules of tuning records and their lifted graphs for a TPU v3, and compare."""
    same = tried = 0
    with Estimator(parse_target("tpu:v3")) as estimator:
        for record in (record for file in files for record in read_module_file(file)):
            lifted = lift(replace(record.graph, summed=None)).module
            answers = [
                estimator.estimate(
                    make_portable(module, keeps_boundary=True).SerializeToString(),
                    layouts=find_entry_layouts(module),
                )
                for module in (record.module, lifted)
            ]
            facts = [describe(answer) for answer in answers]
            tried += 1
            same += facts[0] == facts[1]
            if facts[0] != facts[1]:
                say(f"{record.graph.name}: {facts[0]} and {facts[1]}")
    say(f"{same} of {tried} have the same kernels, copies, tiles and estimate.")


def describe(answer: Answer) -> str:
    """Return a program's kernels with their tiles, its copies and its estimate."""
    compiled = answer.compiled
    if compiled is None:
        return answer.refused
    tiles = [kernel.cost.tile and kernel.cost.tile.output for kernel in compiled.kernels]
    kernels = ", ".join(f"{k.kind} {t}" for k, t in zip(compiled.kernels, tiles, strict=True))
    return f"{kernels}; {len(compiled.copies)} copies; {answer.nanoseconds:,.0f} ns"


if __name__ == "__main__":
    app()
