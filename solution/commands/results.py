"""Commands for what a run reached: ensemble, compare, report, verify, explain."""

from pathlib import Path
from typing import Annotated

import typer

from ensembles import DEFAULT_RECIPE
from solution.commands.options import (
    RecipeOption,
    RunOption,
)
from solution.runs.folder import RUNS, STORES, Run
from solution.system.terminal import output, say

# Heavy imports (torch, lightgbm, matplotlib, polars) wait inside the commands that need them.

app = typer.Typer()


@app.command()
def ensemble(
    recipe: Annotated[str, typer.Argument(help="Name, or path of a TOML file.")] = DEFAULT_RECIPE,
    run_folder: RunOption = RUNS / "sample",
    search: Annotated[
        bool, typer.Option("--search", help="Propose a recipe instead, and write it to --out.")
    ] = False,
    out: Annotated[Path, typer.Option(help="Where --search writes.")] = Path("proposed.toml"),
    fit: Annotated[
        list[str], typer.Option(help="With --search: how weights are fitted; may be repeated.")
    ] = [],  # noqa: B006 - typer copies it
) -> None:
    """Merge the predictions of a run by a recipe and write its submission."""
    if not search:
        finish(Run.existing(run_folder), recipe)
        return
    from ensembles.tables import show_search

    output.print(show_search(Run.existing(run_folder), fit, out))
    say(f"Recipe: {out}. Merge by it with `fastslow ensemble {out}`.")


@app.command()
def compare(
    a: Annotated[str, typer.Argument(help="An experiment of the run, or a recipe.")],
    b: Annotated[str, typer.Argument(help="What it is compared with.")],
    run_folder: RunOption = RUNS / "sample",
) -> None:
    """Say how much better A is than B, out of fold, and how sure that is."""
    from ensembles.tables import show_comparison

    output.print(show_comparison(Run.existing(run_folder), a, b))


@app.command()
def report(
    run_folder: RunOption = RUNS / "sample",
    recipe: RecipeOption = DEFAULT_RECIPE,
    out: Annotated[Path | None, typer.Option(help="Default: report.html in the run.")] = None,
) -> None:
    """Write what a run reached as one HTML page that opens anywhere, offline."""
    from ensembles.recipe import find_recipe
    from submissions.page.build import write_page

    say(f"Report: {write_page(Run.existing(run_folder), find_recipe(recipe), out)}")


@app.command()
def verify(
    submission: Annotated[Path, typer.Argument(help="A submission CSV.")],
    run_folder: Annotated[Path, typer.Option("--run", help="Its run folder.")] = RUNS / "sample",
) -> None:
    """Check a submission file as the competition would."""
    from solution.domain import predictions
    from submissions.checker import check_submission
    from submissions.writer import expect

    opened = Run.existing(run_folder)
    expected = expect(predictions.read(opened.graphs), opened.sample_submission())
    rows = check_submission(submission, expected)
    say(f"{submission}: {rows} rows, sound.")


@app.command()
def explain(
    experiment: Annotated[str, typer.Argument(help="Trees or a linear model of the run.")],
    graph: Annotated[str, typer.Argument(help="Its name, or COLLECTION:NAME.")],
    run_folder: Annotated[Path, typer.Option("--run", help="A run folder.")] = RUNS / "sample",
    config: Annotated[
        int | None, typer.Option(min=0, help="Which one. Default: the one predicted slowest.")
    ] = None,
    data: Annotated[
        Path | None, typer.Option("--data", help="The run's store. Default: stores/NAME.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Folder of the pictures.")] = None,
) -> None:
    """Say why a configuration is predicted slow, by a model that has not seen its graph."""
    from solution.analysis import explanation as words
    from solution.analysis import explanation_pictures as pictures
    from solution.experiments.base import find_experiment
    from solution.store.store import Store

    found = find_experiment(experiment)
    store = Store.open(data or STORES / run_folder.resolve().name)
    chosen = words.find_graph(store, found, graph)
    model, folder = words.load_unseen(Run.existing(run_folder), found, chosen)
    chosen = model.preparation(chosen)
    explained = words.explain(model.ranker, chosen, config)
    say(words.describe(explained))
    output.print(words.show_contributions(explained))
    output.print(words.show_importance(explained.features, explained.importance))
    place = out or Path("explanations") / found.name / chosen.name
    pictures.draw_contributions(explained, place / "contributions.png")
    others = words.labelled_graphs(store, chosen.collection.name)
    pictures.draw_components(chosen, others, place / "components.png")
    say(f"Model: {folder}. Pictures: {place}")


def finish(run: Run, recipe_name: str) -> None:
    """Merge, write the submission and show the table."""
    from ensembles.recipe import find_recipe
    from submissions.build import build_submission
    from submissions.report import tabulate

    built = build_submission(run, find_recipe(recipe_name))
    output.print(tabulate(built.scores))
    say(built.written.describe())
