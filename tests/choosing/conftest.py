"""Programs that are compiled, and the children that do it."""

from tests.made.timed import dense, heavy, ragged, workers  # noqa: F401
