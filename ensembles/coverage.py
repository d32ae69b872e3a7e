"""Say which members of a recipe a run lacks, and how much of the weight they have.

A recipe may allow missing members, so that a run of some collections can be merged by it. The same
permission merges a run without the members that count most.
"""

from collections.abc import Collection

from ensembles.merge import find_members
from ensembles.recipe import Recipe
from solution.domain import predictions
from solution.domain.collection import COLLECTIONS
from solution.runs.folder import EXPERIMENTS, Run, recall_command
from solution.system.wording import join_names

KINDS = {collection.kind for collection in COLLECTIONS}


def list_present(run: Run, recipe: Recipe) -> list[str]:
    """Return the recipe's members that have predictions in the run, in the recipe's order."""
    known = find_members(run, recipe, "test")
    return [name for name in recipe.names() if name in known]


def describe_absent(run: Run, recipe: Recipe) -> str:
    """Return a sentence with the recipe's members that the run does not have, and their share of
    the weight in each collection of the run. The text is empty if no weight is lost."""
    shares: dict[tuple[str, str], list[str]] = {}
    collections = set(predictions.read(run.graphs, ["collection"])["collection"])
    for collection in (c for c in COLLECTIONS if c.name in collections):
        weights = {
            name: weight
            for name, weight in recipe.weights(collection.name).items()
            if _may_rank(name, collection.name, collection.kind, run)
        }
        absent = [name for name in weights if name not in run.experiments()]
        if absent:
            share = sum(weights[name] for name in absent) / sum(weights.values())
            shares.setdefault((join_names(absent), f"{share:.0%}"), []).append(collection.name)
    if not shares:
        return ""
    found = "; ".join(
        f"{names} ({share} of the weight in {join_names(where)})"
        for (names, share), where in shares.items()
    )
    return (
        f"Recipe {recipe.name} is merged without members that the run {run.folder} does not have: "
        f"{found}. Train them, too (`{recall_command(run, 'NAME')}`), or choose another recipe."
    )


def _may_rank(name: str, collection: str, kind: str, run: Run) -> bool:
    """Return False if the experiment cannot rank the collection. An experiment of the run names its
    collections; of others only the name is known, which often begins with the kind."""
    known = run.record()["settings"].get(EXPERIMENTS, {})
    if name in known:
        ranked: Collection[str] | None = known[name].get("collections")
        return ranked is None or collection in ranked
    kinds = [other for other in KINDS if name.startswith(f"{other}_")]
    return not kinds or kind in kinds
