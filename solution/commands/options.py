"""Options that several commands share, and helpers that check them and open the store."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from solution.commands.assembly import refuse_empty
from solution.data.folders import SAMPLE, check_exists
from solution.domain.collection import COLLECTIONS
from solution.runs.folder import find_runs, find_stores
from solution.system.buckets import on_this_machine
from solution.system.errors import InputError
from solution.system.files import check_place, check_writable
from solution.system.names import check_address, is_address
from solution.system.wording import join_names
from solution.training.folds import Scheme

if TYPE_CHECKING:
    from solution.domain.graph import Graph
    from solution.experiments.base import Experiment
    from solution.programs.program import Wanted
    from solution.store.store import Store
    from solution.training.executors.base import Executor


MOST_NAMED = 10  # maximum number of programs that an error message names


def check_given(data: str | None) -> str | None:
    """Return the typed folder or bucket address. Raises InputError if the folder does not exist, or
    the address is malformed."""
    if data is not None and not is_address(check_address(refuse_empty(data))):
        check_exists(Path(data))
    return data


def check_written(folder: str | None) -> str | None:
    """Return the typed folder or bucket address; raise InputError if the text is neither."""
    return None if folder is None else check_address(refuse_empty(folder), named=True)


def check_finite(number: float | None) -> float | None:
    """Return the number; raise BadParameter for infinity, which passes an option's lower bound."""
    if number is not None and not isfinite(number):
        raise typer.BadParameter(f"expected a finite number, found {number}.")
    return number


Data = Annotated[
    Path,
    typer.Argument(
        callback=check_exists,
        help="Folder with the competition's npz files, or a prepared store.",
        show_default="the bundled sample",
    ),
]
DataOrAddress = Annotated[
    str,
    typer.Argument(
        callback=check_given,
        help="Folder with the competition's npz files, or a prepared store; or s3://BUCKET/NAME.",
        show_default="the bundled sample",
    ),
]
DataOption = Annotated[
    str | None,
    typer.Option(
        "--data",
        callback=check_given,
        help="Folder with npz files, prepared store, or s3://BUCKET/NAME. Default: the sample.",
    ),
]
RunFolder = Annotated[
    str | None,
    typer.Option(
        "--run",
        callback=check_written,
        help="Folder of the results, or s3://BUCKET/NAME. Default: runs/NAME of the data.",
    ),
]
FoldScheme = Annotated[
    Scheme,
    typer.Option(
        help="Graphs that always share a fold: relatives such as all ResNets (family), programs "
        "of one structure (architecture), or copies of one graph (graph)."
    ),
]
Preparers = Annotated[
    int | None, typer.Option("--workers", min=1, help="Number of processes. Default: one per core.")
]
Workers = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="Number of processes, 5 GB each. Default: one per core; with GPUs, one per two cores.",
    ),
]
ExecutorOption = Annotated[
    Literal["local", "ray"],
    typer.Option("--executor", help="Where to run: on this machine (local) or a cluster (ray)."),
]
ClusterAddress = Annotated[
    str | None,
    typer.Option(
        help="Address of a Ray cluster, such as auto. Default: start one here, for this command.",
        rich_help_panel="Cluster",
    ),
]
GpuShare = Annotated[
    float,
    typer.Option(
        min=0.05,
        max=1.0,
        callback=check_finite,
        help="Share of a GPU that each net takes on a cluster.",
        rich_help_panel="Cluster",
    ),
]
ArgumentFile = Annotated[
    Path | None,
    typer.Option(
        "--arguments",
        help="npz file with the program's arguments: an array per parameter, by number or name.",
    ),
]
Megabytes = Annotated[int, typer.Option(min=256, help="Memory limit of a compilation, in MB.")]
Seconds = Annotated[
    float, typer.Option(min=1, callback=check_finite, help="Seconds a compilation may take.")
]
TargetOption = Annotated[
    str,
    typer.Option(
        "--target",
        help="cpu: timed on this machine. tpu:v3, tpu:v5e, ...: estimated by the TPU's compiler, "
        "without a TPU; needs the extra `tpu`.",
    ),
]
# A TPU's compiler needs more time and memory, so these defaults depend on the target.
TargetSeconds = Annotated[
    float | None,
    typer.Option(min=1, callback=check_finite, help="Seconds a compilation may take. TPU: 600."),
]
TargetMegabytes = Annotated[
    int | None, typer.Option(min=256, help="Memory limit of a compilation, in MB. TPU: 8192.")
]
MixLabels = Annotated[
    bool, typer.Option("--mix-labels", help="Train on measured and estimated runtimes together.")
]
# The largest seed that the random generators of all libraries accept.
Seed = Annotated[int, typer.Option(min=0, max=2**32 - 1, help="Seed of all random choices.")]
RunOption = Annotated[Path, typer.Option("--run", help="Folder of the run.")]
SAMPLE_RUN = find_runs() / "sample"
RecipeOption = Annotated[
    str | None,
    typer.Option(help="Name of a recipe, or path of a TOML file. Default: the run's last recipe."),
]

CollectionOption = Annotated[
    str | None,
    typer.Option("--collection", help="The graph's collection, if the path does not tell it."),
]
ModuleOption = Annotated[
    str,
    typer.Option(
        "--module", help="Which program of a file to take: its name, or its number from 1."
    ),
]
FunctionOption = Annotated[
    str,
    typer.Option(
        "--function", help="The StableHLO function to take. Default: main, or the only one."
    ),
]


def make_wanted(module: str, function: str) -> "Wanted | None":
    """Return which programs of a file to read, by --module and --function; None means all."""
    from solution.programs.program import Wanted

    return Wanted(module, function) if module or function else None


def read_only_module(path: Path, module: str = "", function: str = "") -> "Graph":
    """Return the graph of the only program in a file, or in a folder of dumps. Raises InputError if
    there are several programs, and `module` does not select one."""
    from solution.serving.reading import read_modules

    modules = read_modules(path, None, make_wanted(module, function))
    found = [program.record.graph for program in modules]
    if len(found) > 1:
        advice = "Give one file of it" if path.is_dir() else "Choose one with --module"
        raise InputError(
            f"{path}: holds {len(found)} programs "
            f"({join_names([graph.name for graph in found], MOST_NAMED)}), expected one. {advice}."
        )
    return found[0]


def check_output(path: Path) -> None:
    """Raise InputError if the file could not be written. Call it before any long work."""
    check_place(path)
    check_writable(path.parent)


def check_outputs(*inputs: Path | None, **paths: Path | None) -> None:
    """Raise InputError if an output file is not allowed. Call it before any long work.

    Args:
        inputs: files and folders that are read. They, and files in them, must not be overwritten.
        paths: output files by the names of their options; all different and writable
            (check_output).
    """
    read = [path.resolve() for path in inputs if path is not None]
    options: dict[Path, str] = {}
    for name, path in paths.items():
        if path is None:
            continue
        if path.exists() and any(path.resolve().is_relative_to(given) for given in read):
            raise InputError(f"{path}: is an input, or lies in one. Give --{name} another name.")
        check_output(path)
        other = options.setdefault(path.resolve(), name)
        if other != name:
            both = f"--{other} and --{name}"
            raise InputError(f"{path}: named for {both}. Give them different names.")


def make_executor(
    kind: str, address: str | None, workers: int | None, gpu_share: float = 1.0
) -> "Executor":
    """Return the executor, which trains models here or on a cluster; see choose_executor."""
    from solution.training.executors.cluster import choose_executor

    return choose_executor(kind, address, workers, gpu_share)


def name_of(data: Path, *, limit: bool) -> str:
    """Return the default name of a run or a store of the data: the folder's name, or that of its
    collection, such as layout-xla-random. `limit`: append "-limit", for a quick look."""
    path = data.resolve()
    own = next((c.folder for c in COLLECTIONS if path.as_posix().endswith(f"/{c.folder}")), None)
    return (own.replace("/", "-") if own else path.name) + ("-limit" if limit else "")


@contextmanager
def open_given_store(
    data: str | None, experiments: "Sequence[Experiment]" = (), collections: "Sequence[str]" = ()
) -> "Iterator[Store]":
    """Open and yield the store, the prepared form of `data`; by default of the sample.

    Args:
        experiments: the experiments for which the store is prepared.
        collections: the store must have graphs of these; checked before the data is prepared.
    """
    from solution.experiments.base import find_experiment
    from solution.training.opening import open_store

    served = list(experiments) or [find_experiment("nothing_001")]
    with on_this_machine(data or SAMPLE, sends=False) as given:
        check_exists(given)
        folder = find_stores() / name_of(given, limit=False)
        with open_store(given, folder, served, collections=collections) as store:
            yield store
