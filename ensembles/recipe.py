"""Read and check recipes: TOML files that say which experiments are merged, and how.

method = "mean_rank"           # see ensembles/votes.py
fallback = "nothing_001"
allow_missing = ["members"]    # a run may lack members; "graphs": a member may lack graphs

[members]                      # weights; only their ratios matter
layout_gnn_001 = 1.0
layout_lightgbm_001 = 1.0

[collections."layout:xla:default"]   # replaces [members] in this collection
layout_gnn_001 = 3.0
layout_lightgbm_001 = 1.0

A search also writes the checksum of the labels on which it fitted the weights (fitted_on), and its
score on graphs that it was not fitted on (nested). A recipe written by hand has neither.

A run's recipe.json records the recipe of its last merge, teacher.json the recipe that distilled
students learned from. Both store the recipe's content instead of its path, because a user's file
may change, and a record must not point outside its folder.
"""

import os
import tomllib
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    ValidationError,
    model_serializer,
)
from pydantic_core import ErrorDetails

from ensembles import DEFAULT_RECIPE, SAMPLE_RECIPE
from ensembles.votes import Method
from solution.domain.collection import NAMES
from solution.runs.folder import Run
from solution.system.errors import InputError
from solution.system.files import read_bytes, write_sealed
from solution.system.names import check_name, suggest
from solution.system.sealing import read_record
from solution.system.wording import join_names

MAX_BYTES = 16 << 20  # maximum size of a recipe file; a usual one has a few hundred bytes
ENSEMBLE = "ensemble"
EQUAL_WEIGHTS = "equal_weights"  # name of the implicit recipe: every trained member
RECIPES = Path(__file__).parent / "recipes"

CollectionName = Annotated[str, Field(pattern=f"^({'|'.join(NAMES)})$")]
Name = Annotated[str, AfterValidator(check_name)]  # a valid name of a folder in the run
Weight = Annotated[float, Field(gt=0, allow_inf_nan=False, strict=True)]
Weights = Annotated[dict[Name, Weight], Field(min_length=1)]
# files in a run's folder: the recipe of the last merge, the recipe that students learned from
RECORD, TEACHER = "recipe.json", "teacher.json"


class Recipe(BaseModel):
    """Members, weights and method of a merge. A member of `members` is ignored in a collection that
    it does not predict."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: Name
    method: Method = "mean_rank"
    members: Weights
    # weights that replace `members` in a collection
    collections: dict[CollectionName, Weights] = {}
    fallback: Name | None = None  # experiment that ranks the collections that no member predicts
    allow_missing: frozenset[Literal["members", "graphs"]] = frozenset()
    fitted_on: str | None = Field(default=None, pattern="^[0-9a-f]{64}$")
    # the search's score on graphs that it was not fitted on, mean over the collections
    nested: float | None = Field(default=None, allow_inf_nan=False)

    @model_serializer(mode="wrap")
    def _leave_out_unset(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leave out fitted_on and nested if they are unset, so that earlier versions of this
        program can read the file."""
        unset = [name for name in ("fitted_on", "nested") if getattr(self, name) is None]
        return {name: value for name, value in write(self).items() if name not in unset}

    def weights(self, collection: str) -> dict[str, float]:
        """Return each member's weight in the collection."""
        return self.collections.get(collection, self.members)

    def names(self) -> list[str]:
        """Return the names of all members, of `members` and of the tables in `collections`."""
        tables = [self.members, *self.collections.values()]
        return list(dict.fromkeys(name for table in tables for name in table))

    def and_fallback(self, names: Iterable[str]) -> list[str]:
        """Return `names`, followed by the fallback if the recipe has one."""
        return [*names, *([self.fallback] if self.fallback else [])]

    def experiments(self) -> list[str]:
        """Return the names of all experiments that the recipe needs: its members, its fallback."""
        return self.and_fallback(self.names())

    @property
    def label(self) -> str:
        """Name of the merge in score tables; it has a space, which no experiment's name has."""
        return f"{ENSEMBLE} {self.name}"

    def without(self, member: str) -> "Recipe":
        """Return the recipe without the member; a collection's weights may become empty."""
        overrides = {
            collection: {name: weight for name, weight in weights.items() if name != member}
            for collection, weights in self.collections.items()
        }
        rest = {name: weight for name, weight in self.members.items() if name != member}
        return self.model_copy(update={"members": rest, "collections": overrides})


def is_merge(label: str) -> bool:
    """Return True if a label in a score table names the merge by a recipe."""
    return label.startswith(f"{ENSEMBLE} ")


def check_recipe(recipe: Recipe, experiments: Collection[str]) -> None:
    """Raise InputError if the recipe cannot merge these experiments. If the recipe allows missing
    members, one present member is enough. All members may be missing only if the fallback is the
    only experiment. This is checked before training, which takes hours."""
    names = ", ".join(experiments)
    missing = [name for name in recipe.names() if name not in experiments]
    some = len(missing) < len(recipe.names()) or set(experiments) == {recipe.fallback}
    if missing and not ("members" in recipe.allow_missing and some):
        raise InputError(
            f"recipe {recipe.name} merges {join_names(missing)}, but the experiments are "
            f'{names}. Choose another recipe, or add allow_missing = ["members"] to it.'
        )
    if recipe.fallback is not None and recipe.fallback not in experiments:
        raise InputError(
            f"recipe {recipe.name} falls back on {recipe.fallback}, but the experiments are "
            f"{names}.{suggest(recipe.fallback, experiments)} Let it fall back on one of them, or "
            f"train {recipe.fallback}, too."
        )


def check_place(recipe: Recipe, experiments: Collection[str]) -> None:
    """Raise InputError if an experiment has the recipe's name. The ranking would overwrite the
    experiment's predictions."""
    if recipe.name in experiments:
        raise InputError(
            f"recipe {recipe.name} has the name of an experiment of the run, and would overwrite "
            "its predictions. Give its file another name."
        )


def check_members(recipe: Recipe, collection: str, members: Collection[str]) -> None:
    """Raise InputError if the recipe's table of this collection names a member not in `members`.
    Nothing is raised if the recipe allows missing members."""
    missing = [name for name in recipe.collections.get(collection, {}) if name not in members]
    if missing and "members" not in recipe.allow_missing:
        raise InputError(
            f"recipe {recipe.name} weighs {join_names(missing)} in {collection}, which it does not "
            "predict. Take it out of the recipe's table of that collection, or add "
            'allow_missing = ["members"] to the recipe.'
        )


def list_recipes() -> list[str]:
    """Return the names of the package's recipes."""
    return sorted(path.stem for path in RECIPES.glob("*.toml"))


def find_recipe(name: str) -> Recipe:
    """Read a recipe by its name, or by the path of a TOML file; InputError if it is not valid."""
    path = Path(name) if name.endswith(".toml") else RECIPES / f"{name}.toml"
    if not path.is_file():
        missing = ", for there is no such file" if name.endswith(".toml") else ""
        raise InputError(
            f"{name!r} is not a recipe{missing}.{suggest(name, list_recipes())} There are "
            f"{', '.join(list_recipes())}; or give the path of a TOML file."
        )
    try:
        fields = tomllib.loads(read_bytes(path, "a recipe", MAX_BYTES).decode("utf-8-sig"))
    except RecursionError:
        raise InputError(f"{path}: not a valid TOML recipe: it is nested too deeply.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: not a valid TOML recipe: {error}.") from error
    if "name" in fields:
        raise InputError(f"{path}: name: a recipe has the name of its file. Delete the line.")
    return make_file_recipe(path, fields)


def make_file_recipe(path: Path, fields: Mapping[str, Any]) -> Recipe:
    """Return a recipe named like its file; raise InputError if the name or a field is not valid."""
    if path.stem == EQUAL_WEIGHTS:
        raise InputError(
            f"{path}: {EQUAL_WEIGHTS} is the name of the built-in recipe without a file. Give the "
            "file another name."
        )
    return make_recipe(str(path), {"name": path.stem, **fields})


def make_recipe(source: str, fields: Mapping[str, Any]) -> Recipe:
    """Return a recipe with the given fields; InputError names `source` if one is not valid."""
    try:
        return Recipe(**fields)
    except ValidationError as error:
        found = "; ".join(map(_describe_defect, error.errors()))
        raise InputError(f"{source}: {found}. See ensembles/recipe.py for an example.") from error


def _describe_defect(defect: ErrorDetails) -> str:
    """Return a validation error in words for the file's author."""
    path = [str(part) for part in defect["loc"] if part != "[key]"]
    if defect["type"] == "extra_forbidden":
        known = list(Recipe.model_fields)[1:]  # without `name`, which is the name of the file
        near = suggest(path[0], known)
        return f"{path[0]}: no recipe has it.{near} There are {', '.join(known)}"
    if path[0] == "collections" and defect["type"] == "string_pattern_mismatch":
        return (
            f"{path[1]!r} is no collection.{suggest(path[1], NAMES)} There are {', '.join(NAMES)}"
        )
    if defect["type"] == "frozen_set_type":
        return f'{path[0]}: expected a list, such as ["members"], found {defect["input"]!r}'
    return f"{'.'.join(path)}: {defect['msg'].removeprefix('Value error, ')}"


def remember(run: Run, recipe: Recipe, name: str = RECORD) -> None:
    """Write the recipe into the run's folder. `name`: RECORD for the recipe of the submission,
    TEACHER for the recipe of the ensemble that students learned from."""
    write_sealed({"recipe": recipe.model_dump(mode="json")}, run.folder / name)


def recall(folder: Path, name: str = RECORD) -> Recipe | None:
    """Return the recorded recipe of the run's last merge; None if there is no record. `name`:
    RECORD; or TEACHER for the students' recipe. Raises InputError if the record is damaged."""
    path = folder / name
    record = _read(path)
    if record is None:
        return None
    fields = record.get("recipe")
    if not isinstance(fields, dict):
        raise InputError(f"{path}: expected a recipe, found {fields!r}. Delete the file.")
    return make_recipe(str(path), fields)


def _read(path: Path) -> dict[str, Any] | None:
    if not os.path.lexists(path):
        return None
    try:
        return read_record(path, "the recipe of a run")
    except InputError as error:
        raise InputError(f"{error} Delete the file, and name the recipe.") from error


def choose_recipe(run: Run, name: str | None) -> Recipe:
    """Return the recipe called `name`. Without a name, return the recipe of the last merge, else
    the recipe that `fastslow run` chooses."""
    if name is None:
        return recall(run.folder) or choose_before_training(run.folder, None, run.rankers())
    return weigh_equally(run.rankers()) if name == EQUAL_WEIGHTS else find_recipe(name)


def choose_before_training(
    folder: Path, name: str | None, experiments: Sequence[str], *, afresh: bool = False
) -> Recipe:
    """Return the recipe by which a run of these experiments in the folder will be merged.
    `afresh`: a run that is there will be deleted, so its recipe does not count.

    Without a name it is the recipe of the last merge, if it fits the experiments. Otherwise it is
    SAMPLE_RECIPE or DEFAULT_RECIPE, whichever fits and merges more of the experiments. If none
    fits, it is all experiments with equal weights.

    Raises InputError if the named recipe does not fit the experiments.
    """
    if name is not None:
        recipe = find_recipe(name)
        check_place(recipe, experiments)
        check_recipe(recipe, experiments)
        return recipe
    usual = [find_recipe(SAMPLE_RECIPE), find_recipe(DEFAULT_RECIPE)]
    usual.sort(key=lambda recipe: len(_list_unmerged(recipe, experiments)))
    recalled = None if afresh else recall(folder)
    if recalled in usual and not set(recalled.names()) <= set(experiments):
        recalled = None  # a default recipe, used by a run of some members: not a user's choice
    for found in (recalled, *usual):
        if found is not None and found.name != EQUAL_WEIGHTS:
            with suppress(InputError):
                check_recipe(found, experiments)
                return found
    return weigh_equally(experiments)


def _list_unmerged(recipe: Recipe, experiments: Sequence[str]) -> list[str]:
    """Return the experiments that the recipe neither merges nor falls back on."""
    return [name for name in experiments if name not in recipe.experiments()]


def weigh_equally(experiments: Sequence[str]) -> Recipe:
    """Return a recipe of all experiments with equal weights, by mean rank. If the control
    experiment, which scores all configurations alike, is among them, it is the fallback."""
    nothing = find_recipe(DEFAULT_RECIPE).fallback
    members = [name for name in experiments if name != nothing] or list(experiments)
    return Recipe(
        name=EQUAL_WEIGHTS,
        members=dict.fromkeys(members, 1.0),
        fallback=nothing if nothing in experiments else None,
        allow_missing=frozenset({"members"}),
    )


def describe_choice(recipe: Recipe, experiments: Sequence[str]) -> str:
    """Return a notice for the user before training; may be empty. It tells whether weights are
    equal, and which experiments the recipe does not merge."""
    unmerged = _list_unmerged(recipe, experiments)
    lines = []
    if recipe.name == EQUAL_WEIGHTS:
        lines.append(f"Merged with equal weights: {', '.join(recipe.names())}.")
    if unmerged:
        lines.append(
            f"Recipe {recipe.name} does not merge {', '.join(unmerged)}: shown with the scores, "
            "and left out of the submission. Another recipe may merge them, too."
        )
    return "\n".join(lines)
