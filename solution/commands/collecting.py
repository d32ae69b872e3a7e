"""Commands that measure your own programs: collect layout, tile, options, report."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from solution.system.errors import InputError
from solution.system.terminal import output, say

if TYPE_CHECKING:
    from collections.abc import Callable

    from solution.collecting.program import Program
    from solution.collecting.session import Finished
    from solution.collecting.spaces import Space

# Heavy imports (polars, scipy) wait inside the commands that need them.

app = typer.Typer(help="Compile and time your own programs in many configurations.")

Programs = Annotated[
    list[Path],
    typer.Argument(help="Python with a jax function, StableHLO or HLO text, or HLO protobuf."),
]
Out = Annotated[Path, typer.Option(help="Where npz, tuning records and logs go.")]
Split = Annotated[Literal["train", "valid"], typer.Option(help="Of the npz files.")]
Configs = Annotated[int, typer.Option(min=8, help="Configurations of a program.")]
Minutes = Annotated[
    float | None, typer.Option(min=0.1, help="For all programs. Default: three for each.")
]
Megabytes = Annotated[int, typer.Option(min=256, help="That a compilation may take.")]
Seconds = Annotated[float, typer.Option(min=1, help="That a compilation may take.")]
Seed = Annotated[int, typer.Option(min=0, help="Of the configurations that are drawn.")]
Flat = Annotated[bool, typer.Option("--keep-flat", help="Also write graphs whose order is chance.")]
Replace = Annotated[bool, typer.Option("--replace", help="Start afresh.")]


@app.command()
def layout(
    programs: Programs,
    out: Out = Path("collected"),
    collection: Annotated[
        str, typer.Option(help="Where they belong; the last word is the search.")
    ] = "layout:xla:random",
    split: Split = "train",
    configs: Configs = 60,
    minutes: Minutes = None,
    megabytes: Megabytes = 4096,
    seconds: Seconds = 60,
    seed: Seed = 0,
    keep_flat: Flat = False,
    replace: Replace = False,
) -> None:
    """Time programs in many layouts of their convolutions, dots and reshapes.

    The search is random, or goes from the compiler's own choice to the fastest (default). Stopped,
    even killed, the same command goes on where it was.
    """
    from solution.collecting.spaces import LayoutSpace
    from solution.domain.collection import collection as find_collection

    found = find_collection(collection)
    if found.kind != "layout":
        raise InputError(f"{collection} holds tiles: collect them with `fastslow collect tile`.")
    search = found.name.split(":")[-1]
    _collect(
        programs, lambda program: LayoutSpace(program, search), out, collection, split, configs,
        minutes, megabytes, seconds, seed, keep_flat, replace,
    )  # fmt: skip


@app.command()
def tile(
    programs: Programs,
    out: Out = Path("collected"),
    split: Split = "train",
    configs: Configs = 72,
    minutes: Minutes = None,
    megabytes: Megabytes = 2048,
    seconds: Seconds = 30,
    seed: Seed = 0,
    keep_flat: Flat = False,
    replace: Replace = False,
) -> None:
    """Time matrix products in many tiles of XLA's own loops, on a CPU."""
    from solution.collecting.tiles import TileSpace

    _collect(
        programs, TileSpace, out, "tile:xla", split, configs, minutes, megabytes, seconds, seed,
        keep_flat, replace,
    )  # fmt: skip


@app.command()
def options(
    programs: Programs,
    out: Out = Path("collected-options"),
    source: Annotated[Literal["xla", "nlp"], typer.Option(help="Where they belong.")] = "xla",
    split: Split = "train",
    configs: Configs = 60,
    minutes: Minutes = None,
    megabytes: Megabytes = 4096,
    seconds: Seconds = 60,
    seed: Seed = 0,
    keep_flat: Flat = False,
    replace: Replace = False,
) -> None:
    """Time programs with compile options that matter on a CPU.

    Their npz files have an array more than the competition's, so they lie in a folder of their own.
    """
    from solution.collecting.options import OptionSpace

    _collect(
        programs, OptionSpace, out, f"layout:{source}:random", split, configs, minutes, megabytes,
        seconds, seed, keep_flat, replace,
    )  # fmt: skip


@app.command()
def report(
    folder: Annotated[Path, typer.Argument(help="What was given as --out.")] = Path("collected"),
    picture: Annotated[Path | None, typer.Option(help="Default: report.png in it.")] = None,
) -> None:
    """Show what a folder of collections holds, how noisy it is, and a picture of both."""
    from solution.collecting.report import draw_collections, list_finished, read_collections
    from solution.collecting.tables import show_finished
    from solution.system.files import replace_file

    collected = read_collections(folder)
    for name, finished in list_finished(collected).items():
        output.print(show_finished(name, finished))
    path = picture or folder / "report.png"
    with replace_file(path) as temporary:
        draw_collections(collected).savefig(temporary, format="png", dpi=100)
    say(f"Picture: {path}")


def _collect(
    programs: list[Path],
    make_space: "Callable[[Program], Space]",
    out: Path,
    collection: str,
    split: str,
    configs: int,
    minutes: float | None,
    megabytes: int,
    seconds: float,
    seed: int,
    keep_flat: bool,
    replace: bool,
) -> None:
    from solution.collecting.children import Limits
    from solution.collecting.collect import Settings
    from solution.collecting.records import Place
    from solution.collecting.session import collect_programs
    from solution.collecting.tables import show_finished

    settings = Settings(
        configs=configs, seed=seed, limits=Limits(seconds, megabytes), keep_flat=keep_flat,
        replace=replace,
    )  # fmt: skip
    finished = collect_programs(
        programs, make_space, Place(out, collection, split), settings, minutes or 3 * len(programs)
    )
    output.print(show_finished(collection, finished))
    _complain(finished)
    say(f"{out}: check it with `fastslow check {out}`.")


def _complain(finished: "list[Finished]") -> None:
    defects = [one.defect for one in finished if one.defect]
    if defects:
        raise InputError("\n".join(defects))
