"""What a run reached, as one table: every ranker and the ensemble, out of fold."""

from dataclasses import dataclass

import numpy as np
import polars as pl
from rich.table import Table

from ensembles.resampling import mean_of_all
from solution.domain import predictions
from solution.domain.collection import COLLECTIONS, Collection
from solution.domain.metrics import Mean, bootstrap_mean, score_predictions
from solution.runs.folder import Run
from solution.runs.job import read_job
from solution.system.files import replace_file
from solution.system.terminal import make_table

ENSEMBLE = "ensemble"


@dataclass(frozen=True)
class Line:
    """A ranker on a collection."""

    collection: Collection
    ranker: str
    score: Mean
    seconds: float | None  # all folds and seeds; None for the ensemble
    peak_megabytes: float | None


@dataclass(frozen=True)
class Scores:
    """What a run reached, out of fold."""

    lines: list[Line]  # collection by collection, the ensemble last
    overall: Mean | None  # the ensemble's, over the five collections; None where one is missing

    def of_ensemble(self) -> dict[str, float]:
        """The ensemble's score by collection, and under "mean" that of all five."""
        own = [line for line in self.lines if line.ranker.startswith(ENSEMBLE)]
        scores = {line.collection.name: line.score.value for line in own}
        return scores if self.overall is None else {**scores, "mean": self.overall.value}


def collect_scores(run: Run, recipe: str) -> Scores:
    """Score everything in the run folder."""
    labels = predictions.read(run.labels)
    paths = {name: run.predictions(name, "out_of_fold") for name in run.experiments()}
    merged = f"{ENSEMBLE} {recipe}"
    paths[merged] = run.ranking(recipe, "out_of_fold")
    scored = {
        name: score_predictions(predictions.read(path), labels)
        for name, path in paths.items()
        if path.is_file()
    }
    lines = []
    for collection in COLLECTIONS:
        for name, scores in scored.items():
            own = scores.filter(pl.col("collection") == collection.name)["score"].to_numpy()
            if len(own):
                lines.append(
                    Line(collection, name, bootstrap_mean(own), *_cost(run, name, collection))
                )
    return Scores(lines, mean_of_all(scored[merged]) if merged in scored else None)


def tabulate(scores: Scores) -> Table:
    """The table that `fastslow run` ends with; 80 columns wide."""
    table = make_table(
        "Out-of-fold scores, higher is better",
        "Time: of all models of the ranker; of those that rank two collections, with the first. "
        "Memory: peak of the whole process meanwhile.",
    )
    table.add_column("Collection and ranker", no_wrap=True)
    for column in ("Score", "95% interval", "Time", "Memory"):
        table.add_column(column, justify="right", no_wrap=True)
    for collection in COLLECTIONS:
        own = [line for line in scores.lines if line.collection == collection]
        if own:
            graphs = own[0].score.graphs
            table.add_row(f"{collection.name}, {collection.metric}, {graphs} graphs", style="cyan")
        for line in own:
            seconds = "" if line.seconds is None else f"{line.seconds:.1f} s"
            memory = "" if line.peak_megabytes is None else f"{line.peak_megabytes:.0f} MB"
            style = "bold" if line.ranker.startswith(ENSEMBLE) else ""
            table.add_row(f"  {line.ranker}", *_show_mean(line.score), seconds, memory, style=style)
    if scores.overall is not None:
        table.add_row("mean of the five", style="cyan")
        table.add_row(f"  {ENSEMBLE}", *_show_mean(scores.overall), style="bold")
    return table


def write_scores(lines: list[Line], run: Run) -> None:
    """Write the table as scores.csv into the run folder."""
    frame = pl.DataFrame(
        {
            "collection": [line.collection.name for line in lines],
            "ranker": [line.ranker for line in lines],
            "graphs": [line.score.graphs for line in lines],
            "score": [line.score.value for line in lines],
            "low": [line.score.low for line in lines],
            "high": [line.score.high for line in lines],
            "seconds": [line.seconds for line in lines],
            "peak_megabytes": [line.peak_megabytes for line in lines],
        }
    )
    with replace_file(run.folder / "scores.csv") as temporary:
        frame.write_csv(temporary, float_precision=4)


def _cost(run: Run, name: str, collection: Collection) -> tuple[float | None, float | None]:
    records = [read_job(folder) for folder in run.jobs(name, collection.name)]
    if not records:
        return None, None
    # Of a model that ranks several collections the time is shown once, with the first of them.
    seconds = [r.seconds for r in records if r.collections[0] == collection.name]
    return sum(seconds) if seconds else None, max(r.peak_megabytes for r in records)


def _show_mean(score: Mean) -> tuple[str, str]:
    interval = "too few graphs" if np.isnan(score.low) else f"{score.low:.3f} to {score.high:.3f}"
    return f"{score.value:.3f}", interval
