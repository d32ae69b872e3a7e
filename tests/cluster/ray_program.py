"""Runs the program of Ray's that its arguments name, as Python would: a worker, or what a node has.

A worker that trains imports torch, for seconds; as a fork of tests/processes.py it has it already.
Ray itself is imported anew: it reads its settings then.
"""

import runpy
import sys

if __name__ == "__main__":
    # Ahead of the program stand options of Python's, to keep no output back. Nobody waits for it.
    first = next(place for place, word in enumerate(sys.argv) if word.endswith(".py") and place)
    sys.argv = sys.argv[first:]
    runpy.run_path(sys.argv[0], run_name="__main__")
