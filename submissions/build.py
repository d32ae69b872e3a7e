"""Merge a run's predictions by a recipe, write the checked CSV, and tabulate all scores."""

from dataclasses import dataclass, replace

import numpy as np
import polars as pl
from rich.table import Table

from ensembles.coverage import describe_absent, list_present
from ensembles.merge import RunScores, describe_fit, merge_run, score_run
from ensembles.recipe import ENSEMBLE, Recipe, is_merge, remember
from ensembles.statistics import mean_of_all, means_by_member, show_interval
from solution.domain import predictions
from solution.domain.collection import COLLECTIONS, Collection
from solution.domain.metrics import Mean
from solution.runs.folder import Run
from solution.runs.job import read_trained
from solution.system.errors import InputError
from solution.system.files import remove_leftovers, replace_file
from solution.system.progress import warn
from solution.system.terminal import make_table
from solution.system.wording import count
from submissions.writer import Written, read_rows, replace_submission

NOTHING = "nothing_001"


@dataclass(frozen=True)
class Line:
    """The scores and costs of a ranker, or of the ensemble, on a collection."""

    collection: Collection
    ranker: str
    score: Mean
    # mean of the scores that each seed reaches alone; None if there is only one seed
    a_seed: float | None
    seconds: float | None  # training time of all folds and seeds; None for the ensemble
    peak_megabytes: float | None

    @property
    def is_ensemble(self) -> bool:
        return is_merge(self.ranker)


@dataclass(frozen=True)
class Scores:
    """The out-of-fold scores of a run."""

    lines: list[Line]  # sorted by collection, the ensemble last
    overall: Mean | None  # the ensemble's mean over the five collections; None if one is missing
    flattered: str = ""  # reason why the ensemble's scores are too high; empty if they are not

    def describe(self) -> str:
        """Return the ensemble's scores, a line per collection."""
        named = {line.collection.name: line.score for line in self.lines if line.is_ensemble}
        named |= {"mean of the five": self.overall} if self.overall else {}
        return "\n".join(
            f"Out of fold, {name}: {score.value:.3f} ({show_interval(score)})"
            for name, score in named.items()
        )

    def of_ensemble(self) -> dict[str, float]:
        """Return the ensemble's score by collection, and the mean of all five as "mean"."""
        scores = {li.collection.name: li.score.value for li in self.lines if li.is_ensemble}
        return scores if self.overall is None else {**scores, "mean": self.overall.value}


def collect_scores(run: Run, recipe: Recipe | None = None) -> Scores:
    """Score every ranker of the run, and the ensemble of the recipe (None: no ensemble)."""
    return summarise_run(run, recipe, score_run(run, recipe))


def summarise_run(run: Run, recipe: Recipe | None, scores: RunScores) -> Scores:
    """Return the mean score of each ranker in each collection, with interval, time and memory."""
    merged = recipe.label if recipe else ""
    means = means_by_member(scores.table)
    single = scores.seeds.group_by("collection", "member").agg(pl.col("score").mean())
    a_seed = {(collection, name): score for collection, name, score in single.iter_rows()}
    lines = []
    for collection in COLLECTIONS:
        for name in [*run.experiments(), merged]:
            key = collection.name, name
            if key in means:
                cost = _cost(run, name, collection)
                lines.append(Line(collection, name, means[key], a_seed.get(key), *cost))
    overall = mean_of_all(scores.table.filter(pl.col("member") == merged).drop("member"))
    return Scores(lines, overall, describe_fit(run, recipe) if recipe else "")


def tabulate(scores: Scores) -> Table:
    """Return the table at the end of `fastslow run`, 80 columns wide."""
    table = make_table(
        "Out-of-fold scores, higher is better",
        "Time: training of all models of the ranker; a model of two collections counts with the "
        "first. MB: peak memory of the whole process in training. Score: of the average over "
        f"seeds; of one: the mean score of single seeds. {scores.flattered}".rstrip(),
        expendable=("MB", "Time", "of one"),
        names=("Collection and ranker",),
        numbers=("Score", "of one", "95% interval", "Time", "MB"),
    )
    for collection in COLLECTIONS:
        lines = [line for line in scores.lines if line.collection == collection]
        if lines:
            graphs = lines[0].score.graphs
            table.add_row(f"{collection.name}, {collection.metric}, {graphs} graphs", style="cyan")
        for line in lines:
            seconds = "" if line.seconds is None else f"{line.seconds:.1f} s"
            memory = "" if line.peak_megabytes is None else f"{line.peak_megabytes:.0f}"
            style = "bold" if line.is_ensemble else ""
            a_seed = "" if line.a_seed is None else f"{line.a_seed:.3f}"
            cells = (f"{line.score.value:.3f}", a_seed, show_interval(line.score), seconds, memory)
            table.add_row(f"  {line.ranker}", *cells, style=style)
    if scores.overall is not None:
        table.add_row("mean of the five", style="cyan")
        overall = scores.overall
        interval = show_interval(overall)
        table.add_row(f"  {ENSEMBLE}", f"{overall.value:.3f}", "", interval, style="bold")
    return table


def summarise(scores: Scores) -> str:
    """Return a sentence on how well the ensemble ranks, compared with guessing."""
    parts = []
    tile, layout = (_find_mean(scores, kind, "") for kind in ("tile", "layout"))
    control = _find_mean(scores, "tile", NOTHING)
    if tile is not None:
        random = "" if control is None else f" ({1 - control:.1%} for five random tiles)"
        parts.append(
            "of the tiles of a kernel, the best of the five it names takes "
            f"{1 - tile:.1%} longer than the best of all{random}"
        )
    if layout is not None:
        parts.append(
            "of two layouts of a program, it names the faster one in "
            f"{(1 + layout) / 2:.0%} of the pairs (50% by guessing)"
        )
    if not parts:
        return "No program was held out, so it is unknown how good the ensemble is."
    return f"On programs that no model has seen: {'; '.join(parts)}."


def _find_mean(scores: Scores, kind: str, ranker: str) -> float | None:
    """Return a ranker's mean score over the collections of `kind`, "tile" or "layout". An empty
    `ranker` means the ensemble. The result is None without scores."""
    lines = (line for line in scores.lines if line.collection.kind == kind)
    values = [li.score.value for li in lines if (li.ranker == ranker if ranker else li.is_ensemble)]
    return float(np.mean(values)) if values else None


def write_scores(lines: list[Line], run: Run) -> None:
    """Write scores.csv into the run folder: a row per entry of `lines`."""
    columns = ["collection", "ranker", "graphs", "score", "a_seed", "low", "high"]
    columns += ["seconds", "peak_megabytes"]
    rows = []
    for line in lines:
        score, costs = line.score, (line.seconds, line.peak_megabytes)
        means = (score.graphs, score.value, line.a_seed, score.low, score.high)
        rows.append((line.collection.name, line.ranker, *means, *costs))
    with replace_file(run.scores) as temporary:
        frame = pl.DataFrame(rows, schema=columns, orient="row", infer_schema_length=None)
        frame.write_csv(temporary, float_precision=4)


def _cost(run: Run, name: str, collection: Collection) -> tuple[float | None, float | None]:
    records = [read_trained(folder) for folder in run.jobs(name, collection.name)]
    if not records:
        return None, None
    # A model that ranks several collections shows its time once, with the first of them.
    seconds = [r.seconds for r in records if r.collections[0] == collection.name]
    return sum(seconds) if seconds else None, max(r.peak_megabytes for r in records)


@dataclass(frozen=True)
class Built:
    """A merged submission with its scores, ready to be sent."""

    run: Run
    recipe: Recipe
    members: list[str]  # members of the recipe that were merged, because the run has them
    written: Written
    scores: Scores


def build_submission(run: Run, recipe: Recipe) -> Built:
    """Merge the run's predictions; write its ranking, submission.csv, scores.csv and, last, the
    recipe. Warn of members that the run does not have. The caller holds the run's lock.

    Raises InputError if the recipe does not fit the run, or the file would not pass the checker.
    """
    # Delete temporary files that an earlier merge left, even a merge by another recipe.
    remove_leftovers(run.folder, [f"*/{part}" for part in predictions.PARTS])
    scored, orders = merge_run(run, recipe)
    scores = summarise_run(run, recipe, scored)
    graphs, sample = predictions.read(run.graphs), run.sample_submission()
    written = replace_submission(orders, graphs, sample, run.submission)
    written = replace(written, is_quick=run.is_quick)
    write_scores(scores.lines, run)
    remember(run, recipe)
    if absent := describe_absent(run, recipe):
        warn(absent)
    return Built(run, recipe, list_present(run, recipe), written, scores)


def check_complete(built: Built) -> None:
    """Raise InputError if the file lacks rows that the competition asks for, or has other rows.
    Uploading such a file would waste one of the day's submissions."""
    path = built.written.path
    names = [name for name, _ in read_rows(path, path)]
    rows = {c: sum(name.startswith(f"{c.name}:") for name in names) for c in COLLECTIONS}
    wrong = [f"{c.name} {n} of {c.test_rows}" for c, n in rows.items() if n != c.test_rows]
    others = len(names) - sum(rows.values())
    if others:
        wrong.append(f"{count(others, 'row')} of no collection")
    if wrong:
        raise InputError(
            f"{path}: not the rows that the competition asks for: {', '.join(wrong)}. Make a run "
            "on the competition's data: `make data`, then `make run DATA=data`."
        )
