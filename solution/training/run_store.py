"""Find the store of a run again, and check that it contains the run's graphs."""

from pathlib import Path

from solution.domain import predictions
from solution.runs.folder import Run
from solution.runs.origin import list_stores, recall_origin
from solution.store.store import Store, is_store
from solution.system.errors import InputError

# Columns that identify a graph and the contents of its npz file (a hash).
SAME = ("collection", "split", "graph", "source")


def open_run_store(run: Run, given: Path | None = None) -> Store:
    """Return the store with the run's graphs, from its recorded path or this machine's stores.

    Args:
        given: a path from the user; if given, only that path is tried.

    Raises InputError if no store is found, or the stores found have other graphs or are damaged.
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
    """Return in words why the store is not the run's; None if it has all graphs of the run."""
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
    """Return whether a store exists there; False if the recorded path is invalid or
    inaccessible."""
    try:
        return is_store(place)
    except (OSError, ValueError):
        return False
