"""Choose the sample_submission.csv if the data has several, and say which others there are.

This stands apart from solution.data.folders, because the fingerprint of the code that decides
predictions covers that module: a change there would mark every run as made by other code.
"""

import filecmp
from pathlib import Path

from solution.data.folders import _is_sample_submission, _list_samples
from solution.domain.collection import SAMPLE_SUBMISSION
from solution.system.wording import count, join_names

MAX_SHOWN = 3


def choose_sample(folder: Path) -> Path | None:
    """Return the competition's sample_submission.csv with the most rows; None if there is none. Of
    several with as many rows it is the topmost. They are searched where
    solution.data.folders.find_sample_submission looks."""
    found = _find_samples(folder)
    return max(found, key=_count_lines) if found else None


def describe_other_samples(folder: Path) -> list[str]:
    """Return a list with a warning if the data has further sample submissions that differ from the
    chosen one; else an empty list."""
    chosen = choose_sample(folder)
    if chosen is None:
        return []
    found = [path for path in _find_samples(folder) if path != chosen]
    others = [path for path in found if not filecmp.cmp(path, chosen, shallow=False)]
    if not others:
        return []
    return [
        f"{count(len(others), 'other file')} called {SAMPLE_SUBMISSION} left out: "
        f"{join_names(others, MAX_SHOWN)}. The rows of a submission are those of {chosen}, which "
        "has the most or, of several with as many, lies topmost. If another one is right, "
        "move the wrong ones away."
    ]


def _find_samples(folder: Path) -> list[Path]:
    return [path for path in _list_samples(folder) if _is_sample_submission(path)]


def _count_lines(path: Path) -> int:
    with path.open("rb") as file:
        return sum(not line.isspace() for line in file)
