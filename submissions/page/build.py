"""Write a run's scores as one self-contained HTML page: no network, no script.

    make report            fastslow report --run runs/mine

The page depends only on the run folder and the ledger, so equal inputs give the same bytes.
"""

from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from ensembles.coverage import describe_absent
from ensembles.merge import describe_caveats, describe_fit
from ensembles.recipe import Recipe, recall
from solution.runs.folder import Run, recall_origin
from solution.system.errors import InputError
from solution.system.files import write_bytes
from solution.system.terminal import escape
from solution.system.wording import count
from submissions.calls import read_wait_settings
from submissions.page.evidence import Evidence, interval, number, percent, signed
from submissions.page.labels import describe_ceiling, describe_runtimes
from submissions.page.members import (
    describe_agreement,
    describe_gains,
    describe_optimism,
    describe_weights,
)
from submissions.page.scores import describe_graphs, describe_leaderboard, describe_scores
from submissions.page.training import describe_curves, describe_making

REPORT = "report.html"


def write_page(
    run: Run, recipe: Recipe, path: Path | None = None, ledger: Path | None = None
) -> Path:
    """Write the page, atomically, and return its path.

    Args:
        path: None for report.html in the run folder, or report-RECIPE.html if the run's last merge
            used another recipe.
        ledger: the CSV of submissions, which may not exist; by default the user's.

    Raises InputError if the recipe does not fit the run, or there are no out-of-fold predictions.
    """
    evidence = Evidence(run, recipe)
    if evidence.scores.is_empty():
        raise InputError(
            f"{run.folder}: expected out-of-fold predictions of labelled graphs, found none. A "
            "report needs a finished run with at least two labelled architectures in a collection."
        )
    sections = [
        describe_scores(evidence),
        describe_graphs(evidence),
        describe_agreement(evidence),
        describe_weights(evidence),
        describe_gains(evidence),
        describe_optimism(evidence),
        describe_runtimes(evidence),
        describe_curves(run),
        describe_ceiling(evidence),
        describe_leaderboard(ledger or read_wait_settings().ledger),
        describe_making(run),
    ]
    environment = Environment(
        loader=PackageLoader("submissions.page"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
        finalize=_show,
    )
    page = environment.get_template("page.html").render(
        headline=_summarise(evidence), sections=sections
    )
    last = recall(run.folder)
    is_last = last is None or last.name == recipe.name
    path = path or run.folder / (REPORT if is_last else f"report-{recipe.name}.html")
    write_bytes(page.encode(), path)
    return path


def _show(value: object) -> object:
    """Escape unprintable characters of a text: they could make it run from right to left."""
    return escape(value) if type(value) is str else value


def _summarise(evidence: Evidence) -> dict[str, Any]:
    """Return the contents of the page's first lines: the ensemble's score, and its source."""
    overall, label = evidence.overall(evidence.ensemble), "mean of the five collections"
    if overall is not None:
        value, between, graphs = overall.value, (overall.low, overall.high), overall.graphs
    else:
        means = {str(m["member"]): m for m in evidence.means_of(evidence.collections[0].name)}
        mean = means.get(evidence.ensemble) or list(means.values())[-1]
        value, between, graphs = mean["value"], (mean["low"], mean["high"]), int(mean["graphs"])
        label = f"{evidence.collections[0].name}; not all five collections are in this run"
    record = evidence.run.record()
    fitted = describe_fit(evidence.run, evidence.recipe)
    absent = describe_absent(evidence.run, evidence.recipe)
    rankers = [name for name in evidence.members if name != evidence.ensemble]
    models = sum(len(evidence.run.jobs(name)) for name in rankers)
    scope = (
        f"{count(models, 'model')} of {count(len(rankers), 'experiment')} on "
        f"{count(graphs, 'labelled graph')}, merged by the recipe {evidence.recipe.name}."
    )
    return {
        "title": evidence.run.folder.resolve().name,
        "value": number(value),
        "label": label,  # the collections over which `value` is a mean
        "interval": interval(*between),
        "sentences": [
            *_place(evidence.run),
            scope,
            *([absent] if absent else []),
            *describe_caveats(evidence.run, evidence.recipe),
            *([fitted] if fitted else _compare(evidence)),
        ],
        "commit": str(record.get("commit") or "not known"),
    }


def _place(run: Run) -> list[str]:
    """Return sentences about the data on which the run was scored. They prevent readers from taking
    the scores for Kaggle's scores."""
    origin = recall_origin(run)
    if origin is None:
        return ["Measured out of fold on the user's data: these are no Kaggle scores."]
    words = (
        f"Measured out of fold on {Path(origin.data).name}, on {origin.date}, with "
        f"{origin.machine}: these are no Kaggle scores."
    )
    if not origin.is_sample:
        return [words]
    return [
        words,
        "The sample is a part of programs that XLA compiled and a CPU timed: it demonstrates the "
        "task, and its scores must never be quoted as TpuGraphs results.",
    ]


def _compare(evidence: Evidence) -> list[str]:
    gain = evidence.gain_over_best
    if gain is None:
        return []
    likely = "The groups of graphs are too few to say if it would also be better on others"
    if gain["probability"] is not None:
        likely = (
            "On other graphs of this kind it would be better with a probability of "
            f"{percent(gain['probability'])}"
        )
    return [
        f"Against the best single member of each collection it gains {signed(gain['difference'])} "
        f"({interval(gain['low'], gain['high'])}). {likely}; the best member is chosen by these "
        "scores, so its score is a little too high."
    ]
