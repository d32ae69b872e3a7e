"""A recipe: which experiments are merged, and how. One TOML file each, read as data.

method = "mean_rank"
fallback = "nothing_001"

[members]
layout_gnn_001 = 1.0
layout_lightgbm_001 = 1.0
"""

import tomllib
from collections.abc import Collection
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from solution.errors import InputError

RECIPES = Path(__file__).parent / "recipes"


class Recipe(BaseModel):
    """What is merged. A member counts in the collections that it predicts."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    method: Literal["mean_rank"] = "mean_rank"
    members: dict[str, Annotated[float, Field(gt=0, allow_inf_nan=False)]] = Field(min_length=1)
    fallback: str | None = None  # ranks the collections that no member predicts


def check_recipe(recipe: Recipe, experiments: Collection[str]) -> None:
    """Refuse a recipe that cannot merge these experiments, before hours are spent on them.

    Members that are not among them are fine: a recipe may cover more collections than a run.
    """
    names = ", ".join(experiments)
    if recipe.fallback is None and not set(recipe.members) & set(experiments):
        raise InputError(
            f"recipe {recipe.name} merges {', '.join(recipe.members)}, but the experiments are "
            f"{names}. Choose another recipe with --recipe."
        )
    if recipe.fallback is not None and recipe.fallback not in experiments:
        raise InputError(
            f"recipe {recipe.name} falls back on {recipe.fallback}, but the experiments are "
            f"{names}. Add --experiment {recipe.fallback}, or choose another recipe."
        )


def list_recipes() -> list[str]:
    """The names of the recipes that come with the package."""
    return sorted(path.stem for path in RECIPES.glob("*.toml"))


def find_recipe(name: str) -> Recipe:
    """Read a recipe by its name, or by the path of a TOML file.

    Raises InputError where there is none or it is not valid.
    """
    path = Path(name) if name.endswith(".toml") else RECIPES / f"{name}.toml"
    if not path.is_file():
        raise InputError(
            f"{name!r} is not a recipe. There are {', '.join(list_recipes())}; or give the path of "
            "a TOML file."
        )
    try:
        return Recipe(name=path.stem, **tomllib.loads(path.read_text(encoding="utf-8")))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, TypeError) as error:
        raise InputError(f"{path}: not a valid TOML recipe: {error}.") from error
    except ValidationError as error:
        found = "; ".join(
            f"{'.'.join(map(str, defect['loc']))}: {defect['msg']}" for defect in error.errors()
        )
        raise InputError(f"{path}: {found}. See ensembles/recipe.py for an example.") from error
