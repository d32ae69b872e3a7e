"""Commands that list, merge, compare and explain: experiments, runs, ensemble, compare, ..."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated

import typer

from solution.commands.options import SAMPLE_RUN, RecipeOption, RunOption, check_output
from solution.runs.folder import RECORD, Run, find_runs
from solution.runs.record import keep_others_out
from solution.system.errors import InputError
from solution.system.files import check_writable
from solution.system.names import check_ending
from solution.system.terminal import make_table, output, say
from solution.system.wording import count

if TYPE_CHECKING:
    from ensembles.recipe import Recipe
    from solution.domain.graph import Graph
    from solution.models.base import CostRanker, Ranker

# Slow imports (torch, lightgbm, matplotlib, polars) are inside the commands that need them.

app = typer.Typer()

RUNS, PROPOSED = find_runs(), Path("proposed.toml")
EXPLANATIONS = Path("explanations")


@app.command()
def ensemble(
    recipe: Annotated[
        str | None,
        typer.Argument(help="Name of a recipe, or path of a TOML file. Default: the run's last."),
    ] = None,
    run_folder: RunOption = SAMPLE_RUN,
    search: Annotated[
        bool, typer.Option("--search", help="Search a good recipe instead, and write it to --out.")
    ] = False,
    out: Annotated[
        Path | None, typer.Option(help=f"The file that --search writes. Default: {PROPOSED}.")
    ] = None,
    fit: Annotated[
        list[str],
        typer.Option(
            help="How --search fits weights: equal, best, greedy, least_squares, optuna; may be "
            "repeated. Default: all but the last."
        ),
    ] = [],  # noqa: B006 - typer copies the list
) -> None:
    """Get a submission from a run: merge its predictions by a recipe. Or search a recipe."""
    if search and recipe is not None:
        raise InputError(
            f"--search cannot be combined with the recipe {recipe}, because it writes one. Leave "
            "one of them out."
        )
    if not search:
        from ensembles.recipe import choose_recipe

        if fit or out is not None:
            raise InputError("--fit and --out are for --search: add it, or leave them out.")
        run = Run.existing(run_folder)
        check_writable(run_folder)
        with keep_others_out(run):
            finish(run, choose_recipe(run, recipe))
        return
    from ensembles.tables import show_search

    out = out or PROPOSED
    check_output(out)
    sentence, table = show_search(Run.existing(run_folder), fit, out)
    say(sentence)
    output.print(table)
    where = "" if run_folder == SAMPLE_RUN else f" --run {quote(str(run_folder))}"
    say(f"Recipe: {out}. Merge by it with `fastslow ensemble {quote(str(out))}{where}`.")


@app.command()
def compare(
    a: Annotated[str, typer.Argument(help="An experiment of the run, or a recipe.")],
    b: Annotated[str, typer.Argument(help="The one to compare it with.")],
    run_folder: RunOption = SAMPLE_RUN,
) -> None:
    """Get the out-of-fold difference between A and B, and how sure it is."""
    from ensembles.tables import show_comparison

    sentence, table = show_comparison(Run.existing(run_folder), a, b)
    say(sentence)
    output.print(table)


@app.command()
def report(
    run_folder: RunOption = SAMPLE_RUN,
    recipe: RecipeOption = None,
    out: Annotated[
        Path | None,
        typer.Option(help="The page. Default: in the run, report.html or report-RECIPE.html."),
    ] = None,
) -> None:
    """Get one HTML page with a run's results, which opens anywhere, offline."""
    from ensembles.recipe import choose_recipe
    from submissions.page.build import write_page

    check_ending(out, ".html")
    run = Run.existing(run_folder)
    if out is not None:
        check_output(out)
    else:
        try:
            check_writable(run_folder)
        except InputError as error:
            raise InputError(f"{error} Or write the page elsewhere: --out FILE.html.") from error
    say(f"Report: {write_page(run, choose_recipe(run, recipe), out)}")


@app.command()
def verify(
    submission: Annotated[Path, typer.Argument(help="A submission CSV.")],
    run_folder: Annotated[Path, typer.Option("--run", help="Folder of its run.")] = SAMPLE_RUN,
) -> None:
    """Get every defect of a submission file, checked as Kaggle would against a run's data."""
    from solution.domain import predictions
    from solution.domain.collection import COLLECTIONS
    from submissions.writer import check_submission, expect

    opened = Run.existing(run_folder)
    expected = expect(predictions.read(opened.graphs), opened.sample_submission())
    rows = check_submission(submission, expected)
    say(f"{submission}: {count(rows, 'row')}, sound: as {run_folder} asks.")
    wanted = sum(collection.test_rows for collection in COLLECTIONS)
    if rows != wanted:
        say(f"The competition asks for {wanted} rows: this file is not for upload.")


@app.command()
def explain(
    experiment: Annotated[
        str,
        typer.Argument(
            help="Experiment of the run: trees, a linear model or an additive cost model."
        ),
    ],
    graph: Annotated[str, typer.Argument(help="Name of the graph, or COLLECTION:NAME.")],
    run_folder: Annotated[Path, typer.Option("--run", help="Folder of the run.")] = SAMPLE_RUN,
    config: Annotated[
        int | None,
        typer.Option(
            min=0,
            help="The configuration to compare with the fastest one. Default: the one predicted "
            "slowest.",
        ),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option("--data", help="The run's store. Default: the one that the run recorded."),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Folder for the pictures.")] = None,
) -> None:
    """Get the reasons why a configuration is predicted slow, from a model that never saw it."""
    from solution.analysis import explanation as words
    from solution.analysis.graph_lookup import find_whole, look_up_graph
    from solution.models.base import CostRanker
    from solution.training.opening import open_run_store

    check_writable(out or EXPLANATIONS)
    run = Run.existing(run_folder)
    found = words.find_explained(experiment, run)
    store = open_run_store(run, data)
    chosen = look_up_graph(store.folder, graph, found.collections)
    model, folder = words.load_unseen(run, found, chosen)
    whole, note = find_whole(chosen, store, run)
    chosen = model.preparation(chosen)
    pictures = out or Path(EXPLANATIONS, found.name, chosen.collection.folder, chosen.name)
    if isinstance(model.ranker, CostRanker):
        _explain_by_states(model.ranker, chosen, config, pictures)
    else:
        _explain_by_columns(model.ranker, chosen, config, pictures, whole)
    if note:
        say(note)
    say(f"Model: {folder}. Pictures: {pictures}")


def _explain_by_states(
    ranker: "CostRanker", graph: "Graph", config: int | None, folder: Path
) -> None:
    from solution.analysis import explanation_pictures as pictures
    from solution.analysis import state_costs
    from solution.analysis.explanation import describe

    explained = state_costs.explain_costs(ranker, graph, config)
    say(describe(explained, state_costs.name_reasons(explained)))
    output.print(state_costs.show_costs(explained))
    pictures.draw_costs(explained, folder / "costs.png")


def _explain_by_columns(
    ranker: "Ranker", graph: "Graph", config: int | None, folder: Path, whole: "Graph"
) -> None:
    from solution.analysis import explanation as words
    from solution.analysis import explanation_pictures as pictures

    explained = words.explain(ranker, graph, config)
    say(words.describe(explained, words.name_reasons(explained), whole))
    output.print(words.show_contributions(explained))
    output.print(words.show_importance(explained.features, explained.importance))
    pictures.draw_contributions(explained, folder / "contributions.png")


def finish(run: Run, recipe: "Recipe") -> None:
    """Merge the run by the recipe, write the submission, and print the scores and what they mean.
    The caller holds the lock of the run."""
    from submissions.build import build_submission, summarise, tabulate

    built = build_submission(run, recipe)
    output.print(tabulate(built.scores))
    say(summarise(built.scores))
    say(built.written.describe())


@app.command()
def experiments(
    everything: Annotated[
        bool, typer.Option("--all", help="Also list published systems and ablations.")
    ] = False,
) -> None:
    """Get the list of the package's experiments, each in a sentence."""
    from ensembles import DEFAULT_RECIPE
    from ensembles.recipe import find_recipe
    from solution.experiments.base import describe_experiments, list_added

    trained = find_recipe(DEFAULT_RECIPE).experiments()
    found = describe_experiments()
    of_papers = list_added()
    others = [name for name in found if name not in trained and name not in of_papers]
    _show("What `fastslow run DATA` trains", trained, found)
    _show("Others, for --experiment, which also takes a Python file of yours", others, found)
    if everything:
        _show("Published systems and ablations", of_papers, found)
    else:
        say(f"{len(of_papers)} published systems and ablations are left out. Give --all.")


def _show(title: str, names: Sequence[str], found: Mapping[str, str]) -> None:
    table = make_table(title, names=("Name",), texts=("What it is",))
    for name in names:
        table.add_row(name, found[name])
    output.print(table)


@app.command()
def runs(folder: Annotated[Path, typer.Argument(help="Folder of the runs.")] = RUNS) -> None:
    """Get the list of your runs: score, recipe, age and Kaggle's scores."""
    from submissions.scores import list_runs, show_runs

    found = list_runs(folder)
    if not found and folder.exists() and (folder.is_file() or (folder / RECORD).is_file()):
        raise InputError(f"{folder}: is no folder of runs. Give the folder that contains it.")
    if not found:
        say(f"{folder}: has no run yet. Make one with `fastslow run`.")
        return
    output.print(show_runs(found))
