"""Merge a run's predictions by a recipe, write the checked CSV and score it out of fold."""

from dataclasses import dataclass

from ensembles.merge import merge_run
from ensembles.recipe import (
    EQUAL_WEIGHTS,
    Recipe,
    find_recipe,
    is_whole,
    list_recipes,
    recall,
    remember,
)
from solution.domain import predictions
from solution.domain.collection import COLLECTIONS
from solution.runs.folder import Run
from solution.system.errors import InputError
from solution.system.files import remove_leftovers
from solution.system.sealing import describe_file
from solution.system.wording import count
from submissions.report import Scores, summarise_run, write_scores
from submissions.writer import Written, read_rows, replace_submission


@dataclass(frozen=True)
class Built:
    """A merged submission with its scores, ready to be sent."""

    run: Run
    recipe: Recipe
    written: Written
    scores: Scores
    before: Recipe | None  # recipe of the submission.csv that was overwritten; None if not known

    def describe(self) -> str:
        """Return a message for the user: what was written, and which submission it replaced."""
        words = self.written.describe()
        if self.before in (None, self.recipe):
            return words
        name = self.before.name
        if name == self.recipe.name:
            again = " with its earlier contents"
        elif name == EQUAL_WEIGHTS or _comes_with_package(self.before):
            again = f"; `fastslow ensemble {name} --run {self.run.folder}` writes it again"
        else:
            again = "; `fastslow ensemble` with its file writes it again"
        return (
            f"{words}\nMerged by {self.recipe.name}. This replaces a submission that was merged by "
            f"{name}{again}."
        )


def _comes_with_package(recipe: Recipe) -> bool:
    """Return True if the package contains a recipe of the same name with the same contents."""
    return recipe.name in list_recipes() and find_recipe(recipe.name) == recipe


def build_submission(run: Run, recipe: Recipe) -> Built:
    """Merge the run's predictions; write its ranking, submission.csv and scores.csv.

    The caller holds the run's lock. The files' checksums are added to recipe.json one by one, so if
    the process is killed between two files, the checksums do not match.

    Raises InputError if the recipe does not fit the run, or the file would not pass the checker.
    """
    before = _recall_last(run)
    # Delete temporary files that an earlier merge left, even a merge by another recipe.
    remove_leftovers(run.folder, [f"*/{part}" for part in predictions.PARTS])
    merged = merge_run(run, recipe)
    scores = summarise_run(run, recipe, merged.scores)
    graphs, sample = predictions.read(run.graphs), run.sample_submission()
    with replace_submission(merged.orders, graphs, sample, run.submission) as written:
        files = {run.submission.name: written.description}
        remember(run, recipe, files=files)
    write_scores(scores.lines, run)
    remember(run, recipe, files={**files, run.scores.name: describe_file(run.scores)})
    return Built(run, recipe, written, scores, before)


def _recall_last(run: Run) -> Recipe | None:
    """Return the recipe of the run's last merge. The result is None if there was no merge, or if
    its record is damaged or out of date."""
    try:
        return recall(run.folder) if is_whole(run.folder) else None
    except InputError:
        return None


def check_complete(built: Built) -> None:
    """Raise InputError if the file lacks rows that the competition asks for, or has others.
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
