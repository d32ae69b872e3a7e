"""Tabulate for each collected program: noise, prediction from compiled code, and from our features.

    python -m benchmarks.what_is_known COLLECTED --out build/known             # compiles
    python -m benchmarks.what_is_known COLLECTED --out build/known --data CPUGRAPHS

Every correct configuration of a collected layout program (drafts, logs, npz) is compiled
again. Ridge regressions of log runtimes are cross-validated *inside* the program: on counts of
the compiled program's instructions by opcode, shape and layout (the compiler's result), on our
propagated layouts and copies (our prediction of it), and on indicators of node and layout (the
request). Further columns are Kendall's tau of the bytes of copies in the compiled program, of the
bytes that we predict, of two halves of the timings (noise), and, with --data, of nets trained on
other programs. Compilations are kept, so an interrupted benchmark resumes.
"""

import os
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import polars as pl
import typer
from sklearn.linear_model import RidgeCV
from sklearn.model_selection import KFold, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from benchmarks.bootstrap import bootstrap_mean
from benchmarks.unlike_programs import count_copied, open_plan, predict, read_unlike
from solution.collecting.child import Optimise
from solution.collecting.journal import CANDIDATE_FILE, CANDIDATES, REPEAT_FILE, SOUND, read_log
from solution.collecting.program_space import LAYOUTS, ProgramSpace, make_collected_space
from solution.collecting.timing import SCHEMA, summarise
from solution.data.folders import find_files
from solution.data.npz import read_graph
from solution.domain.collection import collection
from solution.domain.graph import Graph
from solution.domain.metrics import kendall_tau
from solution.features.preparation import repair_padding
from solution.features.propagation.propagation import Propagation
from solution.programs.child import Child, ChildDiedError, Limits
from solution.programs.hlo.messages import MESSAGES, instructions
from solution.programs.program import read_programs
from solution.system.files import replace_file
from solution.system.progress import track
from solution.system.terminal import output, say

FEWEST = 30  # correct configurations
ALPHAS = np.logspace(-1, 4, 11)
NETS = ("layout_gnn_001", "layout_cost_net_001")
LIMITS = Limits(seconds=180)
# Only passes matter, so machine code is generated as fast as possible.
FAST = "--xla_backend_optimization_level=0"


@dataclass(frozen=True)
class Measured:
    """A collected program: its drawn configurations and its timings."""

    collection: str
    name: str
    draft: Path
    log: Path
    npz: Path


def list_measured(folder: Path) -> list[Measured]:
    """Return the layout programs with a graph file and logs."""
    found = []
    for file in find_files(folder / "npz"):
        log = folder / "log" / file.collection.folder / file.split / file.path.stem
        draft = folder / "drafts" / file.collection.name.replace(":", "-")
        draft = draft / f"{file.path.stem}.py"
        if file.collection.kind == "layout" and log.is_dir() and draft.is_file():
            found.append(Measured(file.collection.name, file.path.stem, draft, log, file.path))
    return found


def compile_again(one: Measured, child: Child, path: Path) -> None:
    """Store each correct configuration's time and the counts of its compiled instructions."""
    (program,) = read_programs(one.draft, child)
    space = make_collected_space(program, LAYOUTS)
    sound = read_log(one.log / CANDIDATE_FILE, CANDIDATES).filter(pl.col("status") == SOUND)
    outcome = summarise(read_log(one.log / REPEAT_FILE, SCHEMA), "cpu")
    times = dict(zip(outcome.configs, outcome.nanoseconds.tolist(), strict=True))
    rows, values, runtimes, places = [], [], [], []
    for place, (name, data) in enumerate(sound.select("config", "values").iter_rows()):
        config = space.from_bytes(data)
        counts = count_compiled(child, space, config)
        if name in times and counts is not None:
            rows.append(counts)
            values.append(space.to_array(config))
            runtimes.append(times[name])
            places.append(place)
    columns = sorted({key for row in rows for key in row})
    table = np.array([[row[key] for key in columns] for row in rows], np.float64)
    with replace_file(path) as temporary, temporary.open("wb") as file:
        np.savez_compressed(
            file, counts=table, columns=np.array(columns), values=np.array(values),
            runtimes=np.array(runtimes), repeated=outcome.tau, places=np.array(places),
        )  # fmt: skip


def count_compiled(child: Child, space: ProgramSpace, config: np.ndarray) -> Counter[str] | None:
    """Count compiled instructions by opcode, shape and layout; None: the compiler refused."""
    try:
        reply = child.ask(Optimise(*space.prepare(config)))
    except ChildDiedError:
        return None
    if not isinstance(reply, bytes):
        return None
    return Counter(map(describe, instructions(MESSAGES["Module"].FromString(reply))))


def describe(instruction: Any) -> str:
    shape = instruction.shape
    sizes = ",".join(map(str, shape.dimensions))
    layout = ",".join(map(str, shape.layout.minor_to_major))
    return f"{instruction.opcode} {shape.element_type}[{sizes}]{{{layout}}}"


def copied_bytes(columns: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Return the bytes of copies (configs,), at four bytes per element."""
    sizes = []
    for column in columns:
        opcode, _, shape = str(column).partition(" ")
        inside = shape[shape.index("[") + 1 : shape.index("]")]
        values = np.prod([int(size) for size in inside.split(",") if size], initial=1.0)
        sizes.append(4 * values if opcode == "copy" else 0.0)
    return counts @ np.array(sizes)


def ask_indicators(values: np.ndarray) -> np.ndarray:
    """Return columns (configs, indicators): this layout is requested for this tensor of this
    node."""
    flat = values.reshape(len(values), -1, values.shape[-1])
    columns = []
    for place in range(flat.shape[1]):
        _, codes = np.unique(flat[:, place], axis=0, return_inverse=True)
        columns += [codes.reshape(-1) == code for code in range(codes.max() + 1)]
    return np.array(columns, np.float64).T


def propagate(graph: Graph) -> np.ndarray:
    """Return columns (configs, columns): this tensor has this layout, or is copied, by our
    rules."""
    assigned = Propagation(repair_padding(graph)).number()
    parts = []
    for table in (assigned.results, assigned.copies):
        for column in np.asarray(table).T:
            kinds = np.unique(column)
            parts += [column == kind for kind in kinds] if len(kinds) > 1 else []
    return np.array(parts, np.float64).T[graph.layouts.rows]


def cross_validate(table: np.ndarray, runtimes: np.ndarray) -> float:
    """Return Kendall's tau of a ridge regression inside the program: 10 folds, repeated three
    times."""
    table = table[:, table.std(axis=0) > 0] if table.size else table
    if not table.size:
        return 0.0
    taus = []
    for seed in range(3):
        model = make_pipeline(StandardScaler(), RidgeCV(ALPHAS))
        folds = KFold(10, shuffle=True, random_state=seed)
        taus.append(
            kendall_tau(cross_val_predict(model, table, np.log(runtimes), cv=folds), runtimes)
        )
    return float(np.mean(taus))


def study(one: Measured, path: Path) -> dict[str, Any]:
    """Return the row of a program."""
    kept = np.load(path)
    runtimes = kept["runtimes"]
    # The file has the correct configurations in the order of the journal.
    graph = read_graph(one.npz, collection(one.collection)).select(kept["places"])
    np.testing.assert_array_equal(graph.runtimes, runtimes)
    copied = count_copied(repair_padding(graph))
    return {
        "collection": one.collection,
        "program": one.name,
        "configs": len(runtimes),
        "repeated": float(kept["repeated"]),
        "compiled": cross_validate(kept["counts"], runtimes),
        "propagated": cross_validate(propagate(graph), runtimes),
        "asked": cross_validate(ask_indicators(kept["values"]), runtimes),
        "copies": kendall_tau(copied_bytes(kept["columns"], kept["counts"]), runtimes),
        "propagated copies": kendall_tau(copied, runtimes),
    }


def score_nets(data: Path, out: Path, measured: list[Measured], seeds: int) -> pl.DataFrame:
    """Return tau of nets trained on all other programs: collection, program, and each net's."""
    plan = open_plan(data, out / "store")
    graphs = read_unlike(measured[0].npz.parents[4], plan)
    scores = {name: predict(name, plan, graphs, seeds) for name in NETS}
    return pl.DataFrame(
        [
            {"collection": graph.collection.name, "program": graph.name}
            | {
                name: kendall_tau(found[graph.collection.name, graph.name], graph.runtimes)
                for name, found in scores.items()
            }
            for graph in graphs
        ]
    )


def summarise_rows(table: pl.DataFrame) -> pl.DataFrame:
    """Return the mean of each column by collection and over all, with an interval over programs."""
    rows = []
    numbers = [name for name in table.columns if name not in ("collection", "program", "configs")]
    groups = [*table.partition_by("collection", maintain_order=True), table]
    for part in groups:
        name = part["collection"][0] if part is not table else "all"
        row: dict[str, Any] = {"collection": name, "programs": len(part)}
        for column in numbers:
            row[column] = f"{bootstrap_mean(part[column].drop_nulls().to_numpy()):.2f}"
        rows.append(row)
    return pl.DataFrame(rows)


def main(
    folder: Annotated[Path, typer.Argument(help="Of `make collect-sample`, with its logs.")],
    out: Path = Path("build/known"),
    data: Annotated[Path | None, typer.Option(help="What nets learn from.")] = None,
    part: Annotated[str, typer.Option(help="Such as 0/2: every second program only.")] = "0/1",
    seeds: int = 3,
) -> None:
    """Compile what is missing, then print the table of all results."""
    os.environ["XLA_FLAGS"] = FAST
    out.mkdir(parents=True, exist_ok=True)
    measured = list_measured(folder)
    first, step = map(int, part.split("/"))
    paths = {one: out / f"{one.collection.replace(':', '-')}.{one.name}.npz" for one in measured}
    missing = [one for one in measured[first::step] if not paths[one].exists()]
    with Child(LIMITS) as child, track(missing, "Compiling") as tracked:
        for one in tracked:
            compile_again(one, child, paths[one])
    there = [one for one in measured if paths[one].exists()]
    table = pl.DataFrame([study(one, paths[one]) for one in there])
    table = table.filter(pl.col("configs") >= FEWEST)
    if data is not None:
        table = table.join(
            score_nets(data, out, there, seeds), on=["collection", "program"], how="left"
        )
    table.write_parquet(out / "table.parquet")
    with pl.Config(tbl_rows=-1, tbl_cols=-1, float_precision=2, fmt_str_lengths=30):
        output.print(table)
        output.print(summarise_rows(table))
    say(f"{len(table)} programs.")


if __name__ == "__main__":
    typer.run(main)
