"""The store that a run was made with, found again and compared with what the run has of it."""

from pathlib import Path

from solution.domain import predictions
from solution.runs.folder import Run
from solution.runs.origin import list_stores, recall_origin
from solution.store.store import Store, is_store
from solution.system.errors import InputError

# Of what a graph was prepared: where it belongs, and a checksum of what is in its npz file.
SAME = ("collection", "split", "graph", "source")


def open_run_store(run: Run, given: Path | None = None) -> Store:
    """The store with the run's graphs: where it was when the run was made, or ours of that name.

    Args:
        given: where a user says that it is; only there.

    Raises InputError where neither is there, and where what is there is another one or damaged.
    """
    places = list_stores(run) if given is None else [given]
    there = [place for place in places if given or _is_there(place)]
    refused: list[str] = []
    for place in there:
        store = Store.open(place)
        defect = find_other_graphs(run, store)
        if defect is None:
            return store
        refused.append(defect)
    if refused:
        raise InputError("\n".join(refused))
    origin = recall_origin(run)
    was = f" It was {origin.store}, made of {origin.data}." if origin else ""
    raise InputError(
        f"{places[-1]}: the store of the run is not there.{was} Give it with --data, or what "
        "`fastslow prepare` makes of the data."
    )


def find_other_graphs(run: Run, store: Store) -> str | None:
    """Why the store is not that of the run, in words; None where it has all the run's graphs."""
    graphs = predictions.read(run.graphs, SAME)
    lacking = graphs.join(store.graphs, on=SAME, how="anti")
    if lacking.is_empty():
        return None
    collection, name = lacking.select("collection", "graph").row(0)
    return (
        f"{store.folder}: is another store than that of {run.folder}: of the run's "
        f"{len(graphs)} graphs it lacks {len(lacking)}, such as {collection}:{name} as it was. "
        "Give the run's own with --data."
    )


def _is_there(place: Path) -> bool:
    """Whether a store is; not where a recorded name is none here, or may not be looked at."""
    try:
        return is_store(place)
    except (OSError, ValueError):
        return False
