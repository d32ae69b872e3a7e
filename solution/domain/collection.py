"""Name the five collections of the competition, their metrics and their folders."""

from dataclasses import dataclass
from typing import Literal

from solution.system.errors import InputError
from solution.system.names import suggest

SPLITS = ("train", "valid", "test")
# a file next to the npz folder, which lists the rows that Kaggle expects
SAMPLE_SUBMISSION = "sample_submission.csv"


@dataclass(frozen=True)
class Collection:
    """One of the five sets of graphs that Kaggle scores separately; the final score is the mean."""

    name: str  # name in the submission's ID column, such as layout:xla:random
    kind: Literal["layout", "tile"]
    test_rows: int  # number of test graphs, each a row of a submission

    @property
    def folder(self) -> str:
        """The path of the collection's splits below the npz folder, such as layout/xla/random."""
        return self.name.replace(":", "/")

    @property
    def source(self) -> str:
        """The kind of the collection's programs: xla or nlp for layout, tile for tile."""
        return "tile" if self.kind == "tile" else self.name.split(":")[1]

    @property
    def metric(self) -> str:
        """Kaggle's metric: Kendall's tau, or the top-5 score of solution.domain.metrics."""
        return "tau" if self.kind == "layout" else "top-5"


COLLECTIONS = (
    Collection("layout:xla:default", "layout", 8),
    Collection("layout:xla:random", "layout", 8),
    Collection("layout:nlp:default", "layout", 17),
    Collection("layout:nlp:random", "layout", 17),
    Collection("tile:xla", "tile", 844),
)
BY_NAME = {collection.name: collection for collection in COLLECTIONS}
NAMES = tuple(BY_NAME)
LAYOUT = tuple(c.name for c in COLLECTIONS if c.kind == "layout")
XLA = tuple(c.name for c in COLLECTIONS if c.source == "xla")  # layout:xla:default and :random
NLP = tuple(c.name for c in COLLECTIONS if c.source == "nlp")
TILE = tuple(c.name for c in COLLECTIONS if c.kind == "tile")


def collection(name: str) -> Collection:
    """Return the collection called `name`; raise InputError with the five names otherwise."""
    if name not in BY_NAME:
        raise InputError(
            f"{name!r} is not a collection.{suggest(name, NAMES)} The five are: {', '.join(NAMES)}."
        )
    return BY_NAME[name]


def collection_of(key: str) -> Collection:
    """Return the collection of the key COLLECTION:GRAPH; raise InputError if it is unknown. The
    name of a graph may contain colons."""
    found = next((c for c in COLLECTIONS if key.startswith(f"{c.name}:")), None)
    return found or collection(key.rpartition(":")[0])
