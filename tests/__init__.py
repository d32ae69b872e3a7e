"""Tests of everything; see the rooms."""

import os

# A process a core: more threads would wait for each other. Read when a library is imported, so it
# stands here, before all of them.
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ.setdefault("POLARS_MAX_THREADS", "1")
