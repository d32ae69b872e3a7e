"""Record in a run the recipe of its last merge: recipe.json in its folder.

If the run has distilled students, teacher.json records the recipe that they learned from.

The recipe's content is kept, not its name or path: a user's file may be deleted or changed, and a
record must not point outside its folder. The checksums of the merge's files stand beside it. They
show whether a merge was killed between two files.
"""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ensembles import DEFAULT_RECIPE
from ensembles.recipe import (
    EQUAL_WEIGHTS,
    Recipe,
    check_place,
    check_recipe,
    find_recipe,
    make_recipe,
)
from solution.runs.folder import Run
from solution.system.errors import InputError
from solution.system.files import write_sealed
from solution.system.sealing import is_as_described, read_record

RECORD, TEACHER = "recipe.json", "teacher.json"


def remember(
    run: Run, recipe: Recipe, name: str = RECORD, files: Mapping[str, str] | None = None
) -> None:
    """Record the recipe of the run's current submission, or of its students.

    Args:
        files: by name, describe_file's result for each file that was written so far.
    """
    made = {} if files is None else {"files": dict(files)}
    write_sealed({"recipe": recipe.model_dump(mode="json"), **made}, run.folder / name)


def recall(folder: Path, name: str = RECORD) -> Recipe | None:
    """Return the recorded recipe of the run's last merge, or of its students; None without one.

    Raises InputError if the record is damaged.
    """
    path = folder / name
    record = _read(path)
    if record is None:
        return None
    fields = record.get("recipe")
    if not isinstance(fields, dict):
        raise InputError(f"{path}: expected a recipe, found {fields!r}. Delete the file.")
    return make_recipe(str(path), fields)


def is_whole(folder: Path) -> bool:
    """Return whether the run's submission.csv and scores.csv are those of its last merge.

    Without recorded checksums this is unknown, and the result is True.

    Raises InputError if the record is damaged.
    """
    files, run = (_read(folder / RECORD) or {}).get("files"), Run(folder)
    return not isinstance(files, dict) or all(
        is_as_described(path, files.get(path.name)) for path in (run.submission, run.scores)
    )


def describe_part(folder: Path) -> str:
    """Return a warning if the files are not those of the last merge; else an empty text."""
    recipe = recall(folder)
    if recipe is None or is_whole(folder):
        return ""
    return (
        f"{folder}: submission.csv and scores.csv are not both as the last merge, by {recipe.name},"
        " writes them: it was stopped, or they were changed. `fastslow ensemble --run "
        f"{folder}` makes them again."
    )


def _read(path: Path) -> dict[str, Any] | None:
    if not os.path.lexists(path):
        return None
    try:
        return read_record(path, "the recipe of a run")
    except InputError as error:
        raise InputError(f"{error} Delete the file, and name the recipe.") from error


def choose_recipe(run: Run, name: str | None) -> Recipe:
    """Return the recipe called `name`; by default that of the last merge, or `fastslow run`'s
    default."""
    if name is None:
        return recall(run.folder) or choose_before_training(run.folder, None, run.rankers())
    return weigh_equally(run.rankers()) if name == EQUAL_WEIGHTS else find_recipe(name)


def choose_before_training(folder: Path, name: str | None, experiments: Sequence[str]) -> Recipe:
    """Return the recipe by which a run of these experiments in the folder will be merged.

    Without a name it is the recipe of the last merge or the default; if that merges none of the
    trained experiments, all of them with equal weights.

    Raises InputError if the named recipe does not fit the experiments.
    """
    if name is not None:
        recipe = find_recipe(name)
        check_place(recipe, experiments)
        check_recipe(recipe, experiments)
        return recipe
    for found in (recall(folder), find_recipe(DEFAULT_RECIPE)):
        if found is not None and found.name != EQUAL_WEIGHTS and _fits(found, experiments):
            return found
    return weigh_equally(experiments)


def weigh_equally(experiments: Sequence[str]) -> Recipe:
    """Return a recipe of all experiments with equal weights, by mean rank.

    If the control experiment (which ranks nothing) is among them, it is the fallback.
    """
    nothing = find_recipe(DEFAULT_RECIPE).fallback
    members = [name for name in experiments if name != nothing] or list(experiments)
    return Recipe(
        name=EQUAL_WEIGHTS,
        members=dict.fromkeys(members, 1.0),
        fallback=nothing if nothing in experiments else None,
        allow_missing=frozenset({"members"}),
    )


def _fits(recipe: Recipe, experiments: Sequence[str]) -> bool:
    try:
        check_recipe(recipe, experiments)
    except InputError:
        return False
    return True


def describe_choice(recipe: Recipe, experiments: Sequence[str]) -> str:
    """Return what users should know about the chosen recipe before training; may be empty."""
    beside = [name for name in experiments if name not in (*recipe.names(), recipe.fallback)]
    lines = []
    if recipe.name == EQUAL_WEIGHTS:
        lines.append(f"Merged with equal weights: {', '.join(recipe.names())}.")
    if beside:
        lines.append(
            f"Recipe {recipe.name} does not merge {', '.join(beside)}: shown with the scores, and "
            "left out of the submission. Choose another with --recipe."
        )
    return "\n".join(lines)
